"""Load the fake driver, so that PyCUDA runs without a GPU. For tests in a process of their own."""

import ctypes
import os
import re
import subprocess
import sys
from pathlib import Path

from build_pycuda import build_pycuda, pycuda_dir

from tinyvllm_lab.kernels.build_cache import build_once, digest
from tinyvllm_lab.kernels.cpu.build import find_compiler, load_runtime, runtime_library

__all__ = ["environment", "has_real_driver", "load_fake_driver", "why_no_pycuda"]

HERE = Path(__file__).parent
RUNTIME = Path(sys.modules["tinyvllm_lab.kernels.cpu.build"].__file__ or "").parent / "runtime"


def has_real_driver() -> bool:
    """Whether NVIDIA's own libcuda can be loaded here."""
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


def why_no_pycuda() -> str:
    """Why PyCUDA cannot run on the fake driver here; "" if it can. In CI it is built now."""
    if not pycuda_dir().is_dir():
        if not os.environ.get("CI"):
            return "PyCUDA is not built: python tests/kernels/fake_driver/build_pycuda.py"
        build_pycuda()  # once on a machine, some minutes
    return ""


def environment() -> dict[str, str]:
    """Variables for a process in which `load_fake_driver` will be called."""
    path = os.pathsep.join([str(HERE), str(Path(sys.executable).parent), os.environ["PATH"]])
    imports = os.pathsep.join([str(pycuda_dir()), str(HERE), os.environ.get("PYTHONPATH", "")])
    return {**os.environ, "PATH": path, "PYTHONPATH": imports, "TINYVLLM_FAKE_DRIVER": "1"}


def _linked_symbols() -> list[str]:
    """The driver's functions that PyCUDA's extension module asks for."""
    (extension,) = pycuda_dir().glob("pycuda/_driver*.so")
    listed = subprocess.run(
        ["nm", "-D", "-u", extension], capture_output=True, text=True, check=True
    )
    return sorted(set(re.findall(r"\bU (cu[A-Z]\w+)", listed.stdout)))


def load_fake_driver() -> None:
    """Put the fake `libcuda.so.1` into this process; `import pycuda.driver` then finds it loaded.

    Raises:
        RuntimeError: a real driver is here.
    """
    if has_real_driver():
        raise RuntimeError("This machine has a real CUDA driver; the fake one stays out.")
    load_runtime()
    source, symbols = HERE / "libcuda.cpp", _linked_symbols()
    key = digest(source.read_bytes(), symbols, runtime_library().name)
    library = build_once(f"fake-driver-{key}", lambda folder: _build(folder, source, symbols))
    ctypes.CDLL(str(library / "libcuda.so.1"), mode=ctypes.RTLD_GLOBAL)


def _build(folder: Path, source: Path, symbols: list[str]) -> None:
    rest = folder / "rest.cpp"  # 801: not supported. Weak, so that the real ones take precedence.
    stub = 'extern "C" __attribute__((weak)) int {}() {{ return 801; }}\n'
    rest.write_text("".join(map(stub.format, symbols)))
    flags = ["-std=c++17", "-O1", "-fPIC", "-shared", f"-I{RUNTIME}", "-Wl,-soname,libcuda.so.1"]
    output = ["-o", str(folder / "libcuda.so.1"), str(source), str(rest), str(runtime_library())]
    subprocess.run([find_compiler().command, *flags, *output], check=True)
