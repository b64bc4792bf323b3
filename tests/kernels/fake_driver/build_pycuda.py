"""Build PyCUDA once, on a machine that has the CUDA toolkit but no GPU, and keep it.

    python tests/kernels/fake_driver/build_pycuda.py

PyCUDA comes as source only, and its build wants three things that such a machine may lack: the
toolkit's root (an nvcc on PATH may be a wrapper from elsewhere), cuRAND, and a libcuda to link
with. We give it the root, switch cuRAND off, and link with an empty stand-in. Takes 1 to 4 minutes.
The result goes into a folder of its own beside the kernel builds, not into the environment.
"""

import fcntl
import os
import re
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from tinyvllm_lab.kernels.build_cache import build_once, cache_dir

VERSION = "2026.1"
PIP = (sys.executable, "-m", "pip")
NAME = f"pycuda-{VERSION}-cp{sys.version_info.major}{sys.version_info.minor}"


def pycuda_dir() -> Path:
    """Where the build is, or will be: a folder for `sys.path`."""
    return cache_dir() / NAME


def cuda_root() -> Path:
    """The toolkit that nvcc belongs to, as nvcc itself says."""
    with tempfile.NamedTemporaryFile(suffix=".cu") as empty:
        told = subprocess.run(["nvcc", "--dryrun", empty.name], capture_output=True, text=True)
    found = re.search(r"^#\$ TOP=(.*)$", told.stderr, re.M)
    if not found:
        raise SystemExit(f"nvcc does not say where its toolkit is:\n{told.stderr}")
    return Path(found[1]).resolve()


def run(*command: object, cwd: Path, **environment: str) -> None:
    """Run a command; show its output only if it fails."""
    environment = {**os.environ, **environment}
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, command))}\n{done.stdout[-4000:]}")


def make_stub(folder: Path) -> None:
    """An empty libcuda to link with; the real one, or our fake, takes its place at run time."""
    (folder / "empty.c").write_text("")
    soname = "-Wl,-soname,libcuda.so.1"
    run("gcc", "-shared", "empty.c", soname, "-o", "libcuda.so", cwd=folder)


def unpack_sdist(folder: Path) -> Path:
    """Download and unpack PyCUDA's source."""
    run(*PIP, "download", "--no-deps", "--no-binary", "pycuda", f"pycuda=={VERSION}", cwd=folder)
    (archive,) = folder.glob("pycuda-*.tar.gz")
    with tarfile.open(archive) as sdist:
        sdist.extractall(folder, filter="data")
    return folder / f"pycuda-{VERSION}"


def build_pycuda() -> Path:
    """The folder with PyCUDA, built now if it is not there yet."""
    cache_dir().mkdir(parents=True, exist_ok=True)
    with (cache_dir() / f"{NAME}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # tests in several processes: one builds, the others wait
        return build_once(NAME, _build)


def _build(target: Path) -> None:
    """Fill `target` with PyCUDA and what it imports."""
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        make_stub(work)
        source = unpack_sdist(work)
        settings = {"CUDA_ROOT": str(cuda_root()), "CUDA_ENABLE_CURAND": False}
        settings["CUDADRV_LIB_DIR"] = [name]
        lines = [f"{key} = {value!r}" for key, value in settings.items()]
        (source / "siteconf.py").write_text("\n".join(lines))  # what its configure.py would write
        # --no-as-needed: the extension must name libcuda.so.1, though the stand-in defines nothing.
        linking = {"LDFLAGS": "-Wl,--no-as-needed"}
        run(*PIP, "wheel", "--no-deps", "-w", work, ".", cwd=source, **linking)
        (built,) = work.glob("pycuda-*.whl")
        needed = ["pytools", "platformdirs", "mako", "siphash24"]
        run(*PIP, "install", "--target", target, "--no-deps", built, *needed, cwd=work)


if __name__ == "__main__":
    print(build_pycuda())
