"""Compile a `.cu` file, unchanged, into a shared object for the CPU.

The file is preprocessed once to find its kernels, then compiled between a header that gives CUDA's
words a meaning (`include/simt.h`) and a generated end that lists the kernels.
"""

import ctypes
import functools
import os
import platform
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tinyvllm_lab.errors import KernelError
from tinyvllm_lab.kernels.arguments import MAX_SHARED_BYTES
from tinyvllm_lab.kernels.build_cache import build_once, digest
from tinyvllm_lab.kernels.signatures import PARSER, Declarations, parse_declarations
from tinyvllm_lab.kernels.sources import include_dirs, source_closure

_HERE = Path(__file__).resolve().parent
INCLUDE_DIR = _HERE / "include"
_RUNTIME_DIR = _HERE / "runtime"

# No sibling calls: the runtime finds the line that called it by its return address.
_COMMON = (
    *("-std=c++17", "-fPIC", "-fvisibility=hidden", "-w"),
    *("-fno-strict-aliasing", "-fno-optimize-sibling-calls"),
)
_HOOKS = ("-fsanitize=thread", "-fno-tree-vectorize", "-fno-tree-slp-vectorize")
_TRAPS = ("-fsanitize=bounds,integer-divide-by-zero",)
# How a file can be built: as fast as is portable; with a hook on each load and store; and with one
# more at each basic block, for the x-ray. No -march=native: builds and results stay comparable.
VARIANTS: dict[str, tuple[str, ...]] = {
    "fast": ("-O2", "-g1", "-gdwarf-4"),
    "checked": ("-O1", "-g", "-gdwarf-4", *_HOOKS, *_TRAPS),
    "xray": ("-O1", "-g", "-gdwarf-4", *_HOOKS, *_TRAPS, "-fsanitize-coverage=trace-pc"),
}


@dataclass(frozen=True)
class Compiler:
    """A C++ compiler: its command, "gcc" or "clang", and what it says about its version."""

    command: str
    family: str
    version: str

    @property
    def flags(self) -> tuple[str, ...]:
        """Flags that only this family understands."""
        return ("-fno-extern-tls-init",) if self.family == "gcc" else ()

    @property
    def hook_flags(self) -> tuple[str, ...]:
        """No hooks at function entry and exit; a float4 stays one access, not four of its parts."""
        if self.family == "gcc":
            off = "--param=tsan-instrument-func-entry-exit=0"
            return (off, "-fno-tree-sra", "-fno-ipa-sra")
        return ("-mllvm", "-tsan-instrument-func-entry-exit=0")


@functools.cache
def find_compiler(wanted: str | None = None) -> Compiler:
    """The compiler named by `wanted` or `$CXX`, else g++, else clang++.

    Raises:
        KernelError: none is installed, or this machine is not a Linux PC or ARM machine.
    """
    if platform.system() != "Linux" or platform.machine() not in ("x86_64", "aarch64"):
        raise KernelError(
            f"The CPU back end does not run on {platform.system()} {platform.machine()}.",
            expected="Linux on x86-64 or aarch64",
        )
    chosen = wanted or os.environ.get("CXX")
    candidates = [chosen] if chosen else ["g++", "clang++"]
    for command in candidates:
        if shutil.which(command):
            version = _run([command, "--version"]).splitlines()[0]
            return Compiler(command, "clang" if "clang" in version else "gcc", version)
    raise KernelError(
        f"No C++ compiler found (looked for {', '.join(candidates)}).",
        fix="Install g++ (Debian, Ubuntu: apt install g++), or set CXX.",
    )


def _run(command: list[str]) -> str:
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        raise KernelError(
            f"{Path(command[0]).name} could not compile the file:\n{result.stderr.strip()}"
        )
    return result.stdout


@functools.cache
def _file_contents(folder: Path) -> tuple[bytes, ...]:
    files = sorted(p for p in folder.iterdir() if p.suffix in (".h", ".cpp"))
    return tuple(part for p in files for part in (p.name.encode(), p.read_bytes()))


@functools.cache
def runtime_library() -> Path:
    """The runtime as a shared object: built on first use (about 2 s), then cached."""
    compiler = find_compiler()
    flags = ["-std=c++17", "-O2", "-g1", "-fPIC", "-fvisibility=hidden", "-shared", "-pthread"]
    flags += compiler.flags
    sources = [*_file_contents(_RUNTIME_DIR), *_file_contents(INCLUDE_DIR)]
    key = digest(compiler, platform.machine(), flags, *sources)
    name = f"libsimt-{key}.so"

    def build(folder: Path) -> None:
        sources = [str(p) for p in sorted(_RUNTIME_DIR.glob("*.cpp"))]
        target = str(folder / name)
        _run([compiler.command, *flags, f"-Wl,-soname,{name},-z,defs", "-o", target, *sources])

    return build_once(f"runtime-{key}", build) / name


@functools.cache
def load_runtime() -> ctypes.CDLL:
    """The runtime, loaded so that kernel files find its symbols."""
    return ctypes.CDLL(str(runtime_library()), mode=ctypes.RTLD_LOCAL)


@dataclass(frozen=True)
class Build:
    """A built file: its shared object and what it declares."""

    source: Path
    variant: str
    library: Path
    declarations: Declarations


def build(source: Path, variant: str = "fast", defines: tuple[str, ...] = ()) -> Build:
    """Compile `source`, or find it in the cache.

    The key holds everything that matters: the file and what it includes (and where it lies, because
    reports name it), headers, runtime, flags, defines and compiler.

    Raises:
        KernelError: no compiler, or the file does not compile; the message has the compiler's own.
    """
    compiler = find_compiler()
    flags = [*_COMMON, *compiler.flags, *VARIANTS[variant]]
    if variant != "fast":
        flags += compiler.hook_flags
    options = [f"-D{d}" for d in defines] + [f"-I{d}" for d in [INCLUDE_DIR, *include_dirs(source)]]
    contents = [part for path, data in source_closure(source).items() for part in (path, data)]
    contents += [Path(__file__).read_bytes(), PARSER]
    key = digest(compiler, platform.machine(), flags, options, runtime_library().name, *contents)

    def compile_into(folder: Path) -> None:
        declarations = parse_declarations(preprocess(source, options, compiler.command))
        (folder / "declarations.json").write_text(declarations.to_json(), encoding="utf-8")
        (folder / "unit.cpp").write_text(_unit(source, declarations), encoding="utf-8")
        _compile(folder, compiler, [*flags, *options])

    folder = build_once(f"{source.stem}-{variant}-{key}", compile_into)
    saved = (folder / "declarations.json").read_text(encoding="utf-8")
    return Build(source, variant, folder / "kernels.so", Declarations.from_json(saved))


def _compile(folder: Path, compiler: Compiler, flags: list[str]) -> None:
    """From unit.cpp to kernels.so."""
    unit, compiled, library = (str(folder / name) for name in ("unit.cpp", "unit.o", "kernels.so"))
    runtime = runtime_library()
    _run([compiler.command, *flags, "-c", "-o", compiled, unit])
    # Linked without -fsanitize: the hooks are our runtime's. -z defs: nothing may be missing.
    linking = ["-shared", "-lm", f"-Wl,-z,defs,-rpath,{runtime.parent}"]
    _run([compiler.command, "-o", library, compiled, str(runtime), *linking])
    Path(compiled).unlink()


def preprocess(source: Path, options: list[str], command: str) -> str:
    """The file after the preprocessor, with `__global__` and `__shared__` kept as marks."""
    flags = ["-x", "c++", "-std=c++17", "-E", "-DSIMT_SCAN", "-include", "simt.h"]
    return _run([command, *flags, *options, str(source)])


def _unit(source: Path, declarations: Declarations) -> str:
    """What is compiled: the header, the file, and a list of what is in it.

    The file is included, not pasted, so that debug information names the file itself.
    """
    lines = ['#include "simt.h"', f'#include "{source}"']
    lines += [f"SIMT_KERNEL({kernel.name})" for kernel in declarations.kernels]
    lines += [
        f"SIMT_DYNAMIC_SHARED({c_type}, {name}, {MAX_SHARED_BYTES})"
        for name, c_type in declarations.dynamic_shared
    ]
    lines.append("static thread_local char simt_tls_anchor;")
    lines.append("SIMT_API SIMT_NO_HOOKS void* simt_anchor() { return &simt_tls_anchor; }")
    return "\n".join(lines) + "\n"
