"""NVRTC, NVIDIA's compiler as a library: comes with torch's CUDA wheels, needs no host compiler.

It has no C++ standard library and no `INFINITY`; the course's kernels need neither.
"""

import ctypes
import functools
import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tinyvllm_lab.errors import KernelError


def _folders() -> list[Path]:
    """pip's NVIDIA packages, then toolkits."""
    spec = importlib.util.find_spec("nvidia")
    roots = [Path(p) for p in spec.submodule_search_locations or ()] if spec else []
    return [p for root in roots for p in sorted(root.iterdir())] + [Path("/usr/local/cuda")]


def _find(pattern: str) -> Path | None:
    return next((path for folder in _folders() for path in sorted(folder.glob(pattern))), None)


@functools.cache
def _library() -> ctypes.CDLL | None:
    path = _find("lib*/libnvrtc.so*")
    if path is None:
        return None
    for builtins in path.parent.glob("libnvrtc-builtins.so*"):
        ctypes.CDLL(str(builtins), mode=ctypes.RTLD_GLOBAL)  # NVRTC looks for it by name only
    return ctypes.CDLL(str(path))


@dataclass(frozen=True)
class Nvrtc:
    """The NVRTC library and the folder of CUDA's headers."""

    library: ctypes.CDLL
    headers: Path
    version: str

    def architectures(self) -> tuple[int, ...]:
        """Compute capabilities it can compile for, as 10 * major + minor, ascending."""
        count = ctypes.c_int()
        self.library.nvrtcGetNumSupportedArchs(ctypes.byref(count))
        numbers = (ctypes.c_int * count.value)()
        self.library.nvrtcGetSupportedArchs(numbers)
        return tuple(sorted(numbers))

    def compile(self, source: Path, target: str, options: Sequence[str], output: Path) -> str:
        """Write machine code for "sm_80", or PTX for "compute_80"; returns what ptxas said.

        Raises:
            KernelError: the file does not compile; the message has NVRTC's own.
        """
        flags = [f"--gpu-architecture={target}", *options, f"-I{self.headers}"]
        if target.startswith("sm_"):
            flags.append("--ptxas-options=-v")
        program = ctypes.c_void_p()
        text, name = source.read_bytes(), str(source).encode()
        self._call("nvrtcCreateProgram", ctypes.byref(program), text, name, 0, None, None)
        try:
            array = (ctypes.c_char_p * len(flags))(*(flag.encode() for flag in flags))
            failed = self.library.nvrtcCompileProgram(program, len(flags), array)
            log = self._read(program, "ProgramLog").decode(errors="replace").strip("\0")
            if failed:
                raise KernelError(f"NVRTC could not compile {source.name}:\n{log.strip()}")
            output.write_bytes(self._read(program, "CUBIN" if target.startswith("sm_") else "PTX"))
            return log
        finally:
            self.library.nvrtcDestroyProgram(ctypes.byref(program))

    def _read(self, program: ctypes.c_void_p, what: str) -> bytes:
        size = ctypes.c_size_t()
        self._call(f"nvrtcGet{what}Size", program, ctypes.byref(size))
        data = ctypes.create_string_buffer(size.value)
        self._call(f"nvrtcGet{what}", program, data)
        return data.raw

    def _call(self, name: str, *args: Any) -> None:
        code = getattr(self.library, name)(*args)
        if code:
            raise KernelError(f"{name} failed with code {code}.")


def find_nvrtc() -> Nvrtc | None:
    """NVRTC and CUDA's headers, from pip's packages or /usr/local/cuda."""
    library, header = _library(), _find("include/cuda_bf16.h")
    if library is None or header is None:
        return None
    major, minor = ctypes.c_int(), ctypes.c_int()
    library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
    return Nvrtc(library, header.parent, f"NVRTC {major.value}.{minor.value}")
