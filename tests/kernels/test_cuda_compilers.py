"""nvcc and NVRTC: what they are asked, what comes back, and how errors are told. No GPU needed."""

import ctypes
import subprocess
from pathlib import Path

import pytest

from tinyvllm_lab.errors import KernelError
from tinyvllm_lab.kernels.cpu.build import find_compiler
from tinyvllm_lab.kernels.cuda import compiler, nvcc
from tinyvllm_lab.kernels.cuda.compiler import build_cuda, declarations, find_cuda_compiler
from tinyvllm_lab.kernels.cuda.nvcc import find_nvcc
from tinyvllm_lab.kernels.cuda.nvrtc import Nvrtc
from tinyvllm_lab.kernels.resources import parse_ptxas

HERE = Path(__file__).parent

# A library with NVRTC's functions: "machine code" is the options, and a source with "error" fails.
FAKE_NVRTC = r"""
#include <cstring>
#include <string>
struct Program { std::string source, code, log; };
extern "C" {
int nvrtcGetNumSupportedArchs(int* n) { *n = 2; return 0; }
int nvrtcGetSupportedArchs(int* archs) { archs[0] = 90; archs[1] = 75; return 0; }
int nvrtcCreateProgram(Program** p, const char* source, const char*, int, void*, void*) {
    *p = new Program{source, "", ""};
    return 0;
}
int nvrtcCompileProgram(Program* p, int n, const char** options) {
    for (int i = 0; i < n; ++i) p->code += std::string(options[i]) + "\n";
    if (p->source.find("error") == std::string::npos) return 0;
    p->log = "line 1: error";
    return 6;
}
int nvrtcGetProgramLogSize(Program* p, size_t* n) { *n = p->log.size() + 1; return 0; }
int nvrtcGetProgramLog(Program* p, char* to) { strcpy(to, p->log.c_str()); return 0; }
int nvrtcGetCUBINSize(Program* p, size_t* n) { *n = p->code.size(); return 0; }
int nvrtcGetCUBIN(Program* p, char* to) { memcpy(to, p->code.data(), p->code.size()); return 0; }
int nvrtcGetPTXSize(Program*, size_t* n) { *n = 3; return 0; }
int nvrtcGetPTX(Program*, char* to) { memcpy(to, "ptx", 3); return 0; }
int nvrtcDestroyProgram(Program** p) { delete *p; return 0; }
}
"""


@pytest.fixture
def nvrtc(tmp_path):
    (tmp_path / "nvrtc.cpp").write_text(FAKE_NVRTC)
    library = tmp_path / "libnvrtc.so"
    command = [find_compiler().command, "-shared", "-fPIC", "-o", library, tmp_path / "nvrtc.cpp"]
    subprocess.run(command, check=True)
    return Nvrtc(ctypes.CDLL(str(library)), Path("/headers"), "NVRTC 13.0")


@pytest.mark.needs("cxx")
def test_nvrtc_is_asked_and_answers(nvrtc, tmp_path):
    source, output = tmp_path / "k.cu", tmp_path / "k.code"
    source.write_text("fine")
    assert nvrtc.architectures() == (75, 90)
    assert nvrtc.compile(source, "sm_90", ["-DX"], output) == ""
    options = output.read_text().split()
    assert options == ["--gpu-architecture=sm_90", "-DX", "-I/headers", "--ptxas-options=-v"]
    nvrtc.compile(source, "compute_90", [], output)
    assert output.read_bytes() == b"ptx"
    source.write_text("error")
    with pytest.raises(KernelError, match=r"NVRTC could not compile k\.cu:\nline 1: error"):
        nvrtc.compile(source, "sm_90", [], output)


def test_without_any_compiler_the_fix_is_told(monkeypatch):
    monkeypatch.setattr(compiler, "find_nvcc", lambda: None)
    monkeypatch.setattr(compiler, "find_nvrtc", lambda: None)
    with pytest.raises(KernelError, match=r"No compiler for CUDA.*\n.*cuda-nvcc"):
        find_cuda_compiler()


def test_the_environment_names_nvcc(monkeypatch, tmp_path):
    mine = tmp_path / "my-nvcc"
    mine.write_text("#!/bin/sh\necho release 99\n")
    mine.chmod(0o755)
    monkeypatch.setenv("NVCC", str(mine))
    assert find_nvcc() == nvcc.Nvcc(str(mine), "release 99")


@pytest.mark.needs("nvcc", "cxx")
def test_nvcc_makes_machine_code_ptx_and_a_report(tmp_path):
    found = find_nvcc()
    assert {75, 80, 90} <= set(found.architectures())
    source, output = tmp_path / "k.cu", tmp_path / "k.code"
    source.write_text('extern "C" __global__ void k(float* x) { x[threadIdx.x] *= SCALE; }\n')
    said = found.compile(source, "sm_80", ["-DSCALE=2"], output)
    (resources,) = parse_ptxas(said)
    assert (resources.kernel, resources.architecture) == ("k", 80)
    assert output.read_bytes().startswith(b"\x7fELF")
    found.compile(source, "compute_80", ["-DSCALE=2"], output)
    assert b".target sm_80" in output.read_bytes()
    with pytest.raises(KernelError, match=r"k\.cu\(1\): error: identifier .SCALE. is undefined"):
        found.compile(source, "sm_80", [], output)


@pytest.mark.needs("nvcc", "cxx")
def test_a_cuda_build_is_cached_with_its_declarations():
    build = build_cuda(HERE / "correct.cu", "sm_80")
    assert build == build_cuda(HERE / "correct.cu", "sm_80")
    assert build.declarations == declarations(HERE / "correct.cu", ())
    assert {r.kernel for r in parse_ptxas(build.ptxas)} == {
        kernel.name for kernel in build.declarations.kernels
    }


@pytest.mark.needs("nvcc", "cxx")
def test_nvccs_own_preprocessor_gives_the_same_declarations(monkeypatch):
    expected = declarations(HERE / "runtime_subjects.cu", ())

    def no_compiler():
        raise KernelError("No C++ compiler found")

    monkeypatch.setattr(compiler, "find_compiler", no_compiler)
    assert declarations(HERE / "runtime_subjects.cu", ()) == expected
    assert len(expected.kernels) > 10
