"""`make gpu-check` without a GPU: it says so; dry, on the fake driver, all of its paths run."""

import copy
import importlib
import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tinyvllm_lab.paths import assets_dir

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent / "kernels" / "fake_driver"))
fake_driver = importlib.import_module("fake_driver")
gpu_check = importlib.import_module("gpu_check")
gpu_card = importlib.import_module("gpu_card")
gpu_engine = importlib.import_module("gpu_engine")
gpu_report = importlib.import_module("gpu_report")
gpu_timing = importlib.import_module("gpu_timing")


def run_check(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, HERE / "gpu_check.py", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.fixture(scope="module")
def dry(tmp_path_factory):
    """The report of a dry run, and what it printed."""
    if fake_driver.has_real_driver():
        pytest.skip("a GPU is here: run make gpu-check")
    if reason := fake_driver.why_no_pycuda():
        pytest.skip(reason)
    path = tmp_path_factory.mktemp("gpu") / "dry.json"
    done = run_check("--dry-run", "--out", path)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(path.read_text()), done.stdout


@pytest.mark.needs("cxx", "nvcc")
@pytest.mark.timeout(1800)
def test_a_dry_run_goes_through_everything(dry):
    report, told = dry
    gpu_report.check_schema(report)
    assert report["dry_run"]
    assert report["problems"] == []
    assert "Everything is equal." in told
    from gpu_cases import LADDERS

    measured = {(k["op"], k["version"], k["dtype"]) for k in report["kernels"]}
    assert measured == {
        (op, version or "vec", dtype)
        for op, versions in LADDERS.items()
        for version in versions
        for dtype in ("f32", "bf16")
    }
    assert all(k["floor_us"] > 0 and k["us"] > 0 for k in report["kernels"])
    assert all(route["as_torch"] for route in report["engine"]["tokens"].values())
    assert report["engine"]["replays"]["own kernels, CUDA graphs"] > 0
    assert report["suites"][0]["passed"] > 0


@pytest.mark.needs("cxx", "nvcc")
def test_what_is_not_equal_is_a_problem(dry):
    report = copy.deepcopy(dry[0])
    report["kernels"][3]["error"] = 1.5
    report["builds"][0]["spilled_bytes"] = 8
    report["suites"][0]["failed"] = ["test_x"]
    kernel, suite = report["kernels"][3], report["suites"][0]["file"]
    found = gpu_check.problems_of(report)
    assert len(found) == 3
    assert found[1] == f"{suite}: test_x failed"
    assert found[2].startswith(
        f"{kernel['op']} {kernel['version']} {kernel['dtype']}: error is 1.5"
    )


def test_the_engines_problems():
    names = gpu_report.PER_ROUTE
    report = gpu_engine.EngineReport(
        tokens={name: [[1, 2]] for name in names},
        replays={names[2]: 9},
        bf16_error=dict.fromkeys(names, 0.1),
    )
    assert report.problems() == []
    report.tokens[names[1]], report.replays[names[2]] = [[1, 3]], 0
    report.bf16_error[names[2]], report.left_streams = 0.3, 1
    assert [problem.split()[1] for problem in report.problems()] == [
        "own", "own", "own", "after",
    ]  # fmt: skip


def test_every_operation_is_in_the_ladders():
    from gpu_cases import LADDERS

    from tinyvllm_lab.kernels.ops import OPS

    assert set(LADDERS) == set(OPS)


@pytest.mark.skipif(fake_driver.has_real_driver(), reason="a GPU is here: run make gpu-check")
def test_without_a_gpu_it_says_so_in_one_line():
    done = run_check()
    assert done.returncode == gpu_check.NO_GPU == 3
    assert done.stdout == ""
    assert done.stderr.startswith("gpu-check: no GPU that PyCUDA and PyTorch can use: ")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("NVIDIA A10G", "A10G"),
        ("NVIDIA L4", "L4"),
        ("NVIDIA L40S", None),
        ("NVIDIA GeForce RTX 4090", "GeForce RTX 4090"),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", None),
        ("NVIDIA A100-SXM4-80GB", "A100 SXM4 80 GB"),
        ("NVIDIA A100 80GB PCIe", None),
        ("NVIDIA H100 80GB HBM3", "H100 SXM5 80 GB"),
        ("NVIDIA H100 PCIe", None),
        ("NVIDIA H200", "H200 SXM 141 GB"),
    ],
)
def test_a_card_is_found_in_the_table_by_the_drivers_name(name, key):
    peaks = gpu_card.datasheet(name)
    assert (peaks.source if peaks else None) == (key and f"assets/hardware.json, NVIDIA {key}")


def test_the_floor_is_the_slower_of_bytes_and_operations():
    import torch

    peaks = gpu_card.Peaks("", 1e12, {"float32": 1e13, "bfloat16": 1e14})
    assert peaks.floor_us(2e6, 1e7, torch.float32) == pytest.approx(2)
    assert peaks.floor_us(2e6, 1e9, torch.float32) == pytest.approx(100)
    assert peaks.floor_us(2e6, 1e9, torch.bfloat16) == pytest.approx(10)


@pytest.mark.parametrize(
    ("late", "timing"),
    [
        ([0, 0, 0, 0, 0], (3.0, 5, 0)),
        ([0, 1, 1, 0, 0], (4.0, 5, 2)),  # what Python was too slow for does not count
        ([1, 1, 1, 0, 0], (3.0, 5, 3)),  # nothing better was to be had
    ],
)
def test_samples_with_pythons_gaps_are_dropped(monkeypatch, late, timing):
    watch = object.__new__(gpu_timing.Stopwatch)
    watch.dry, watch.stream = False, SimpleNamespace(synchronize=lambda: None)
    samples = iter(zip([1.0, 2.0, 3.0, 4.0, 5.0], late, strict=True))
    monkeypatch.setattr(gpu_timing, "MOST_SAMPLES", 5)
    monkeypatch.setattr(watch, "_sample", lambda run: next(samples))
    assert watch.time(lambda: None) == gpu_timing.Timing(*timing)


@pytest.mark.parametrize(
    ("schema", "value", "words"),
    [
        ({"a": int}, {"a": 1, "b": 2}, "not the fields"),
        ({"a": {"b": str}}, {"a": {"b": 3}}, r"x\.a\.b is 3"),
        ([int], [1, True], r"x\[1\] is True"),
        ([int], 5, "not a list"),
    ],
)
def test_a_wrong_field_is_named(schema, value, words):
    with pytest.raises(ValueError, match=words):
        gpu_report.check_schema(value, schema, "x")


def test_files_are_called_like_the_card():
    path = gpu_report.default_path("NVIDIA H100 80GB HBM3")
    assert path == assets_dir() / "measured" / "nvidia-h100-80gb-hbm3.json"


def test_what_is_kept_was_measured_on_a_card_and_is_equal():
    for path in (assets_dir() / "measured").glob("*.json"):
        report = json.loads(path.read_text())
        gpu_report.check_schema(report)
        assert not report["dry_run"]
        assert report["problems"] == []
        assert path == gpu_report.default_path(report["card"]["name"])
