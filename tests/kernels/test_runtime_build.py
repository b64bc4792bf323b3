"""Builds: what is found in the cache, what is built again, and what never gets into it."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tinyvllm_lab.errors import KernelError
from tinyvllm_lab.kernels import backend, load, load_source
from tinyvllm_lab.kernels.backend import announce, choose_backend
from tinyvllm_lab.kernels.build_cache import build_once, cache_dir, digest
from tinyvllm_lab.kernels.cpu.build import build, find_compiler
from tinyvllm_lab.paths import kernels_dir

pytestmark = pytest.mark.needs("cxx")

ADD = """
#include "amount.cuh"
extern "C" __global__ void add(int* x) { x[threadIdx.x] += AMOUNT; }
"""


@pytest.fixture
def add_file(tmp_path):
    (tmp_path / "amount.cuh").write_text("#pragma once\n#define AMOUNT 1\n")
    path = tmp_path / "add.cu"
    path.write_text(ADD)
    return path


def result_of(path, **options):
    x = np.zeros(4, np.int32)
    load(path, backend="cpu", **options).get_function("add")(x, grid=1, block=4)
    return x.tolist()


# ---- the cache ------------------------------------------------------------
def test_a_build_is_made_once(add_file):
    first = build(add_file).library
    stamp = first.stat().st_mtime_ns
    assert build(add_file).library == first
    assert first.stat().st_mtime_ns == stamp


def test_every_input_changes_the_key(add_file):
    folders = {build(add_file).library, build(add_file, "checked").library}
    folders.add(build(add_file, defines=("OTHER",)).library)
    (add_file.parent / "amount.cuh").write_text("#pragma once\n#define AMOUNT 7\n")
    folders.add(build(add_file).library)
    assert len(folders) == 4
    assert result_of(add_file) == [7] * 4


def test_an_edited_file_is_built_again_in_the_same_process(add_file):
    assert result_of(add_file) == [1] * 4
    add_file.write_text(ADD.replace("+= AMOUNT", "-= AMOUNT"))
    assert result_of(add_file) == [-1] * 4


def test_a_failed_build_leaves_nothing(add_file, monkeypatch):
    monkeypatch.setenv("TINYVLLM_CACHE_DIR", str(add_file.parent / "cache"))
    add_file.write_text('extern "C" __global__ void add(int* x) {\n  x[0] = nothing;\n}\n')
    with pytest.raises(KernelError, match=r"add\.cu:2:\d+: error: .nothing. was not declared"):
        load(add_file, backend="cpu")
    assert not [p for p in cache_dir().iterdir() if not p.name.startswith("runtime")]


def test_a_build_that_misses_a_symbol_never_gets_into_the_cache(add_file):
    add_file.write_text('void gone(); extern "C" __global__ void add(int* x) { gone(); }\n')
    for _ in range(2):
        with pytest.raises(KernelError, match="undefined reference to `gone"):
            load(add_file, backend="cpu")


def test_processes_that_build_at_once_agree(add_file):
    code = f"from tinyvllm_lab.kernels import load; load({str(add_file)!r}, backend='cpu')"
    environment = {**os.environ, "TINYVLLM_CACHE_DIR": str(add_file.parent / "cache")}
    command = [sys.executable, "-c", code]
    running = [subprocess.Popen(command, env=environment) for _ in range(2)]
    assert [process.wait() for process in running] == [0, 0]
    left = [p.name for p in (add_file.parent / "cache" / "kernels").iterdir()]
    assert not [name for name in left if name.startswith(".building")]


def test_a_cache_that_cannot_be_written_is_named(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TINYVLLM_CACHE_DIR", str(tmp_path / "file"))
    with pytest.raises(KernelError, match="TINYVLLM_CACHE_DIR"):
        build_once("anything", lambda folder: None)


def test_digest_keeps_its_parts_apart():
    assert digest("ab", "c") != digest("a", "bc")
    assert digest("a") == digest(b"a")


# ---- files ------------------------------------------------------------
def test_a_missing_file_lists_what_there_is():
    with pytest.raises(KernelError, match=r"There is no kernel file 'rmsnrom'.\n.*rmsnorm"):
        load("rmsnrom", backend="cpu")


def test_a_missing_kernel_lists_what_there_is(add_file):
    with pytest.raises(KernelError, match=r"add\.cu has no kernel 'ad'\.\nExpected: add"):
        load(add_file, backend="cpu").get_function("ad")


def test_source_from_a_notebook_cell_runs_checked():
    text = 'extern "C" __global__ void put(int* x) {\n  x[threadIdx.x] = 1;\n}\n'
    module = load_source(text, "cell", backend="cpu")
    x = np.zeros(3, np.int32)
    module.get_function("put")(x, grid=1, block=3)
    assert x.tolist() == [1, 1, 1]
    with pytest.raises(KernelError, match=r"out-of-bounds write.*'x' at byte 12.*cell\.cu:2"):
        module.get_function("put")(x, grid=1, block=4)
    with pytest.raises(KernelError, match="file name"):
        load_source(text, "../cell", backend="cpu")


@pytest.mark.parametrize("path", sorted(kernels_dir().glob("*.cu")), ids=lambda path: path.stem)
def test_the_courses_files_build_fast_and_checked(path):
    for checked in (False, True):
        module = load(path.stem, backend="cpu", checked=checked)
        assert module.signatures
        assert module.backend == "cpu"


# ---- compilers and back ends ------------------------------------------------------------
def test_without_a_compiler_the_reason_is_told(monkeypatch):
    monkeypatch.setattr(backend, "why_not_cuda", lambda: "no PyCUDA")
    monkeypatch.setattr(backend, "why_not_cpu", lambda: "no C++ compiler")
    monkeypatch.delenv("TINYVLLM_BACKEND", raising=False)
    choice = choose_backend()
    assert (choice.name, choice.reason) == ("torch", "no PyCUDA; no C++ compiler")
    with pytest.raises(KernelError, match=r"'cpu' \(asked for\) cannot be used: no C\+\+ comp"):
        choose_backend("cpu")


def test_the_environment_chooses(monkeypatch):
    monkeypatch.setenv("TINYVLLM_BACKEND", "torch")
    assert choose_backend().name == "torch"
    with pytest.raises(KernelError, match="'torch' cannot load"):
        load("rmsnorm")
    monkeypatch.setenv("TINYVLLM_BACKEND", "cpu")
    assert load("rmsnorm").backend == "cpu"
    monkeypatch.setenv("TINYVLLM_BACKEND", "gpu")
    with pytest.raises(KernelError, match=r"no back end 'gpu'.\nExpected: cuda, cpu, torch"):
        choose_backend()


def test_a_choice_is_printed_once(capsys):
    backend._print_once.cache_clear()
    for _ in range(3):
        announce(choose_backend("cpu"))
    assert capsys.readouterr().out == "kernels run on 'cpu': asked for\n"


def test_an_unknown_compiler_is_refused():
    with pytest.raises(KernelError, match=r"looked for no-such-compiler.*\n.*Install g\+\+"):
        find_compiler("no-such-compiler")


def test_importing_the_room_is_light():
    code = (
        "import sys, tinyvllm_lab.kernels as k, tinyvllm_lab.kernels.resources;"
        "k.load, k.check, k.choose_backend;"
        "sys.exit(any(m in sys.modules for m in ('torch', 'numpy', 'pycuda')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_runtime_compiles_without_a_warning(tmp_path):
    runtime = Path(sys.modules[build.__module__].__file__ or "").parent / "runtime"
    flags = ["-std=c++17", "-O1", "-fsyntax-only", "-Wall", "-Wextra", "-Werror"]
    for source in sorted(runtime.glob("*.cpp")):
        subprocess.run([find_compiler().command, *flags, source], check=True)
