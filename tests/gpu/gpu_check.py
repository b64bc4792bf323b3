"""`make gpu-check`: is every kernel right on this card, how fast is it, and does the engine agree?

    python tests/gpu/gpu_check.py [--out FILE] [--dry-run]

Builds all kernels for the card; runs the tests of the operations and of the CUDA back end on it;
compares every kernel at the sizes of Llama 3.2 1B with float64 and times it against the floor of
the card and against torch; runs the engine by torch, by own kernels and by CUDA graphs. Writes one
JSON file, by default `assets/measured/<card>.json`, and prints it as a table.

Exit status: 0 all is equal, 1 something is not (the file is written all the same), 3 no GPU here.
`--dry-run` goes through all of it on the tests' fake driver, at small sizes; its times
mean nothing.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from tinyvllm_lab.errors import KernelError

HERE = Path(__file__).resolve().parent
KERNEL_TESTS = HERE.parent / "kernels"
BESIDES = ("kernels/fake_driver", "kernels", "engine", "model", "bench")  # of which we use modules
sys.path += [str(HERE.parent / folder) for folder in BESIDES]

NO_GPU = 3
SUITES = (
    "test_ops_dense.py",
    "test_ops_cache.py",
    "test_ops_attention.py",
    "test_ops_sampling.py",
    "cuda_suite.py",
)
DRY_SUITES, DRY_TESTS = ("test_ops_cache.py",), "copy_blocks and 2-32-16"


def main(arguments: list[str] | None = None) -> int:
    """Do it; returns the exit status."""
    parser = argparse.ArgumentParser(description="Check and time the kernels on this card.")
    parser.add_argument("--out", type=Path, help="the JSON file (assets/measured/<card>.json)")
    parser.add_argument("--dry-run", action="store_true", help="on the fake driver, small sizes")
    options = parser.parse_args(arguments)
    if options.dry_run:
        _enter_dry_run()
    elif problem := why_no_gpu():
        print(f"gpu-check: no GPU that PyCUDA and PyTorch can use: {problem}", file=sys.stderr)
        return NO_GPU
    from gpu_report import default_path, show, write

    report = check(options.dry_run)
    show(report)
    if options.out or not options.dry_run:
        path = options.out or default_path(report["card"]["name"])
        write(report, path)
        print(f"written: {path}")
    return 1 if report["problems"] else 0


def why_no_gpu() -> str:
    """Why this machine's GPU cannot be checked, in one line; "" if it can."""
    from tinyvllm_lab.kernels.backend import why_not_cuda

    if problem := why_not_cuda():
        return problem
    return "" if torch.cuda.is_available() else "PyTorch has no CUDA: install its CUDA build"


def _enter_dry_run() -> None:
    """Make sure that this process finds PyCUDA, the fake driver and the fake nvcc."""
    from fake_driver import environment, load_fake_driver, why_no_pycuda

    if reason := why_no_pycuda():
        sys.exit(f"gpu-check: {reason}")
    if "TINYVLLM_FAKE_DRIVER" not in os.environ:
        command = [sys.executable, __file__, *sys.argv[1:]]
        sys.exit(subprocess.run(command, env=environment(), check=False).returncode)
    load_fake_driver()


def check(dry: bool) -> dict[str, Any]:
    """Everything, as the report."""
    import gpu_card
    from gpu_engine import check_engine

    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    device = "cpu" if dry else "cuda"
    report: dict[str, Any] = {"version": 1, "date": datetime.now(UTC).isoformat(), "dry_run": dry}
    report |= {"card": gpu_card.describe_card(), "software": gpu_card.describe_software()}
    report["builds"] = list(builds(report["card"]["capability"], dry))
    report["suites"] = list(suites(dry))
    broken = time_kernels(report, device, dry)
    engine = check_engine(device, dry)
    report["engine"] = engine.to_json()
    report["problems"] = [*broken, *problems_of(report), *engine.problems()]
    return report


def time_kernels(report: dict[str, Any], device: str, dry: bool) -> list[str]:
    """Put peaks, clocks and kernels into the report; returns what could not be launched."""
    import gpu_card
    from gpu_timing import Stopwatch

    from tinyvllm_lab.kernels.cuda.device import engine_stream

    broken: list[str] = []
    with engine_stream() as stream:
        watch = Stopwatch(stream, device, dry)
        measured = gpu_card.measured_peaks(watch, device, 64 if dry else 8192)
        used = gpu_card.datasheet(report["card"]["name"]) or measured
        report["peaks"] = {"used": asdict(used), "measured": asdict(measured)}
        report["empty_us"], before = watch.empty_us, gpu_card.clocks()
        report["kernels"] = list(kernels(watch, used, device, dry, broken))
        report["clocks"] = {"before": before, "after": gpu_card.clocks()}
    return broken


def problems_of(report: dict[str, Any]) -> list[str]:
    """What is not as it should be, of builds, tests and kernels."""
    found = [f"build: {b['file']} spills registers" for b in report["builds"] if b["spilled_bytes"]]
    for suite in report["suites"]:
        found += [f"{suite['file']}: {name} failed" for name in suite["failed"]]
        if not suite["passed"]:
            found.append(f"{suite['file']}: no test passed")
    return found + [
        f"{k['op']} {k['version']} {k['dtype']}: error is {k['error']:.3g} of what is allowed"
        for k in report["kernels"]
        if k["error"] > 1
    ]


# ---- builds and tests ---------------------------------------------------------------------------
def builds(capability: int, dry: bool) -> Iterator[dict[str, Any]]:
    """Every kernel file, built for the card."""
    from tinyvllm_lab.kernels.cuda.compiler import build_cuda, choose_target, find_cuda_compiler
    from tinyvllm_lab.kernels.resources import parse_ptxas
    from tinyvllm_lab.kernels.sources import find_source
    from tinyvllm_lab.paths import kernels_dir

    target = choose_target(capability, find_cuda_compiler().architectures())
    files = sorted(path.stem for path in kernels_dir().glob("*.cu"))
    for file in _bar(files[:2] if dry else files, "builds"):
        begin = time.perf_counter()
        build = build_cuda(find_source(file), target)
        resources = parse_ptxas(build.ptxas) if build.ptxas else []  # PTX: the driver knows
        yield {
            "file": f"{file}.cu",
            "target": target,
            "seconds": time.perf_counter() - begin,
            "kernels": len(build.declarations.kernels),
            "most_registers": max((r.registers for r in resources), default=0),
            "spilled_bytes": sum(r.spill_stores + r.spill_loads for r in resources),
        }


def suites(dry: bool) -> Iterator[dict[str, Any]]:
    """The test files, each in a process of its own: a fault on the GPU ends a process's context."""
    environment = {**os.environ, "TINYVLLM_OPS_BACKEND": "cuda"}
    environment.pop("TINYVLLM_BACKEND", None)
    for file in _bar(DRY_SUITES if dry else SUITES, "tests"):
        with tempfile.TemporaryDirectory() as folder:
            xml = Path(folder) / "junit.xml"
            command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", file]
            command += [f"--junitxml={xml}", *(["-k", DRY_TESTS] if dry else [])]
            done = subprocess.run(
                command, cwd=KERNEL_TESTS, env=environment, capture_output=True, text=True
            )
            if done.returncode:
                print(done.stdout[-6000:] + done.stderr[-2000:], file=sys.stderr)
            yield {"file": file, **_counts(xml)}


def _counts(xml: Path) -> dict[str, Any]:
    cases = list(ET.parse(xml).iter("testcase")) if xml.exists() else []
    failed = [c for c in cases if c.find("failure") is not None or c.find("error") is not None]
    skipped = [c for c in cases if c.find("skipped") is not None]
    return {
        "passed": len(cases) - len(failed) - len(skipped),
        "failed": [str(c.get("name")) for c in failed],
        "skipped": len(skipped),
        "seconds": sum(float(c.get("time", 0)) for c in cases),
    }


# ---- kernels ------------------------------------------------------------------------------------
def kernels(
    watch: Any, peaks: Any, device: str, dry: bool, broken: list[str]
) -> Iterator[dict[str, Any]]:
    """Every version of every operation, in both types: its error and its time.

    What cannot be built or launched is named in `broken`, and the others go on.
    """
    from gpu_cases import LADDERS, SMALL, Maker, Sizes
    from ops_harness import DTYPES

    work = [
        (make, op, dtype)
        for dtype in DTYPES
        for op, make in Maker(SMALL if dry else Sizes(), dtype, device).cases()
    ]
    for make, op, dtype in _bar(work, "kernels"):
        case = make()
        kept = [arg.clone() if isinstance(arg, torch.Tensor) else arg for arg in case.args]
        torch_us = watch.time(case.torchs[1]).us
        for version in LADDERS[op]:
            for arg, copy in zip(case.args, kept, strict=True):
                if isinstance(arg, torch.Tensor):
                    arg.copy_(copy)
            try:
                yield _measure(watch, peaks, op, version, dtype, case) | {"torch_us": torch_us}
            except KernelError as error:
                broken.append(f"{op} {version} {dtype}: {error}")


def _measure(
    watch: Any, peaks: Any, op: str, version: str | None, dtype: torch.dtype, case: Any
) -> dict[str, Any]:
    from gpu_cases import drawn_by_the_rule
    from ops_harness import NAMES, gpu_runner, poison

    from tinyvllm_lab.kernels.ops import OPS

    work = OPS[op].work(*case.args, **({"version": version} if version else {}))
    poison(work, case.args)
    result = gpu_runner().run(work)
    drawn = op == "sample_top_k_top_p"
    error = drawn_by_the_rule(case, result) if drawn else case.share_of_tolerance(result, version)
    timing = watch.time(lambda: gpu_runner().run(work))
    return {
        "op": op,
        "version": version or "vec",
        "dtype": NAMES[dtype],
        "sizes": case.sizes,
        "error": min(error, 1e9),
        "us": timing.us,
        "samples": timing.samples,
        "late": timing.late,
        "bytes": case.num_bytes,
        "flops": case.flops,
        "floor_us": peaks.floor_us(case.num_bytes, case.flops, dtype),
        "torch": case.torchs[0],
    }


def _bar(items: Any, what: str) -> Any:
    """A progress bar, if it takes longer than two seconds."""
    return tqdm(list(items), desc=what, delay=2.0, leave=False)


if __name__ == "__main__":
    sys.exit(main())
