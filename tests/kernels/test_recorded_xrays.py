"""The shipped x-rays are what the chapters' kernels do, and serve where nothing can be built."""

import json
import os
import subprocess
import sys

import pytest

from tinyvllm_lab.errors import KernelError
from tinyvllm_lab.kernels import recorded_xray
from tinyvllm_lab.kernels.cpu.build import find_compiler
from tinyvllm_lab.kernels.recorded import SUFFIX, index, read_xray, recordings_dir, write_xray

RECIPE = recordings_dir()
NAMES = sorted(path.stem for path in RECIPE.glob(f"*{SUFFIX}"))
STALE = "run `python assets/xrays/make_xrays.py`: a chapter or a kernel that it shows has changed"


@pytest.mark.parametrize("name", NAMES)
def test_a_recording_loads_and_is_whole(name):
    seen = recorded_xray(name)
    assert seen.events_dropped == 0
    assert seen.steps
    assert {line.file for line in seen.lines} <= set(seen.sources)
    assert not any("/" in file for file in seen.sources)


def test_what_is_stored_is_read_again(tmp_path):
    seen = recorded_xray("hasty")
    assert seen.findings
    write_xray(seen, tmp_path / "again")
    assert read_xray(tmp_path / "again") == seen
    assert (tmp_path / "again").read_bytes() == (RECIPE / f"hasty{SUFFIX}").read_bytes()


def test_the_index_names_them_all_and_they_are_small():
    assert sorted(index()["xrays"].values()) == NAMES
    assert sum(path.stat().st_size for path in RECIPE.iterdir() if path.is_file()) < 600_000
    with pytest.raises(KernelError, match="no recorded x-ray 'nothing'"):
        recorded_xray("nothing")


@pytest.fixture(scope="module")
def recipe():
    sys.path.insert(0, str(RECIPE))
    try:
        import make_xrays

        yield make_xrays
    finally:
        sys.path.remove(str(RECIPE))


@pytest.fixture(scope="module")
def again(recipe):
    """All of them, made again."""
    recorder = recipe.Recorder()
    for chapter in recipe.CHAPTERS:
        recipe.record(chapter, recorder)
    return recorder


@pytest.mark.needs("cxx")
def test_they_are_of_the_kernels_and_calls_of_today(again):
    assert again.names == index()["xrays"], STALE
    assert sorted(again.checks) == sorted(index()["checks"]), STALE
    assert sorted(again.sources) == index()["sources"], STALE


@pytest.mark.needs("cxx")
def test_made_again_they_are_the_same(again):
    """Exactly, with the compiler that made them; another one may merge and split accesses."""
    exact = find_compiler().version == index()["compiler"]
    for name, found in again.xrays.items():
        stored = recorded_xray(name)
        if exact:
            assert found == stored, f"{name}: {STALE}"
        assert (found.kernel, found.grid, found.block) == (stored.kernel, stored.grid, stored.block)
        kinds = [{finding.kind for finding in one.findings} for one in (found, stored)]
        assert kinds[0] == kinds[1], name
        assert {a.name for a in found.arrays} == {a.name for a in stored.arrays}
    if exact:
        assert json.loads(json.dumps(again.checks)) == index()["checks"], STALE


WITHOUT = """
import torch
from tinyvllm_lab.errors import KernelError
from tinyvllm_lab.kernels import check, load, load_source, recorded_xray, xray
rows, dim = 32, 2048
args = torch.zeros(rows, dim), torch.zeros(rows, dim), torch.ones(dim), dim, 1e-5
tree = load("rmsnorm", backend="cpu").get_function("rmsnorm_tree_f32")
seen = xray(tree, *args, grid=rows, block=256, shared=1024, blocks=rows)
assert seen == recorded_xray("rmsnorm_tree_f32")
SOURCE
x = torch.zeros(4, 256)
broken = load_source(TREE, "tree", backend="cpu").get_function("rmsnorm")
found = check(broken, x, x, torch.ones(256), 256, 1e-5, grid=4, block=128)
assert not found.ok
print(found.findings[0].kind)
attempts = (
    lambda: xray(tree, *args, grid=rows, block=128, shared=1024, blocks=rows),
    lambda: check(tree, *args, grid=1, block=128),
    lambda: tree(*args, grid=rows, block=256, shared=1024),
    lambda: load_source(TREE + "//", "tree", backend="cpu"),
)
for attempt in attempts:
    try:
        attempt()
    except KernelError as error:
        assert "No C++ compiler" in str(error) and "Install g++" in str(error), error
    else:
        raise AssertionError("it ran")
"""


def test_without_a_compiler_the_calls_of_a_chapter_give_their_recordings(recipe):
    source = next(cell for cell in recipe._cells("06_kernels_one") if cell.startswith("TREE ="))
    environment = {**os.environ, "CXX": "no-such-compiler"}
    run = subprocess.run(
        [sys.executable, "-c", WITHOUT.replace("SOURCE", source)],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr
    line = "No C++ compiler found (looked for no-such-compiler). This is a recording;"
    printed = run.stdout.splitlines()
    assert [text.startswith(line) for text in printed] == [True, True, False]
    assert printed[-1] == "race"
