"""Choose a compiler and a target for a GPU, and build; works without a GPU and without a driver."""

from dataclasses import dataclass
from pathlib import Path

from tinyvllm_lab.errors import KernelError
from tinyvllm_lab.kernels.build_cache import build_once, digest
from tinyvllm_lab.kernels.cpu.build import INCLUDE_DIR, find_compiler, preprocess
from tinyvllm_lab.kernels.cuda.nvcc import Nvcc, find_nvcc
from tinyvllm_lab.kernels.cuda.nvrtc import Nvrtc, find_nvrtc
from tinyvllm_lab.kernels.signatures import PARSER, Declarations, parse_declarations
from tinyvllm_lab.kernels.sources import include_dirs, source_closure

# No --use_fast_math: a kernel says itself where an approximation is enough (__expf).
_FLAGS = ("-std=c++17", "-lineinfo")


@dataclass(frozen=True)
class CudaBuild:
    """A file compiled for a GPU.

    Attributes:
        source: the file.
        target: "sm_80" (machine code) or "compute_80" (PTX, compiled further by the driver).
        code: where the machine code or PTX is.
        declarations: its kernels and their parameters.
        ptxas: what ptxas said about registers and memory; "" for PTX.
    """

    source: Path
    target: str
    code: Path
    declarations: Declarations
    ptxas: str


def find_cuda_compiler() -> Nvcc | Nvrtc:
    """nvcc if it is installed, else NVRTC.

    Raises:
        KernelError: neither is there.
    """
    found = find_nvcc() or find_nvrtc()
    if found is None:
        raise KernelError(
            "No compiler for CUDA found (looked for nvcc and for NVRTC).",
            fix="conda install -c conda-forge cuda-nvcc, or pip install nvidia-cuda-nvrtc.",
        )
    return found


def choose_target(device: int, compiler: tuple[int, ...]) -> str:
    """What to compile for: machine code if the compiler knows the device, else older PTX.

    Args:
        device: the device's compute capability, as 10 * major + minor.
        compiler: what the compiler can compile for.

    Raises:
        KernelError: the device is older than anything the compiler knows.
    """
    if device in compiler:
        return f"sm_{device}"
    older = [capability for capability in compiler if capability < device]
    if not older:
        raise KernelError(
            f"The compiler knows no GPU as old as this one (sm_{device}).",
            expected=f"sm_{min(compiler)} or newer",
            fix="Install an older CUDA toolkit, or set TINYVLLM_BACKEND=cpu.",
        )
    return f"compute_{max(older)}"


def build_cuda(source: Path, target: str, defines: tuple[str, ...] = ()) -> CudaBuild:
    """Compile `source`, or find it in the cache.

    Args:
        source: a `.cu` file.
        target: from `choose_target`.
        defines: macros, "NAME" or "NAME=value".

    Raises:
        KernelError: no compiler, or the file does not compile.
    """
    compiler = find_cuda_compiler()
    options = [*_FLAGS, *(f"-D{d}" for d in defines), *(f"-I{d}" for d in include_dirs(source))]
    contents = [part for path, data in source_closure(source).items() for part in (path, data)]
    contents += [Path(__file__).read_bytes(), PARSER]
    key = digest(compiler.version, target, options, *contents)

    def compile_into(folder: Path) -> None:
        said = compiler.compile(source, target, options, folder / "kernels.code")
        (folder / "ptxas.txt").write_text(said, encoding="utf-8")
        declared = declarations(source, defines).to_json()
        (folder / "declarations.json").write_text(declared, encoding="utf-8")

    folder = build_once(f"{source.stem}-{target}-{key}", compile_into)
    declared = (folder / "declarations.json").read_text(encoding="utf-8")
    ptxas = (folder / "ptxas.txt").read_text(encoding="utf-8")
    return CudaBuild(
        source, target, folder / "kernels.code", Declarations.from_json(declared), ptxas
    )


def declarations(source: Path, defines: tuple[str, ...]) -> Declarations:
    """The kernels of a file. Needs a C++ preprocessor: g++, clang++ or nvcc's.

    Raises:
        KernelError: there is none, or a parameter has a type we cannot pass.
    """
    folders = [INCLUDE_DIR, *include_dirs(source)]
    options = [f"-D{d}" for d in defines] + [f"-I{d}" for d in folders]
    return parse_declarations(preprocess(source, options, _preprocessor()))


def _preprocessor() -> str:
    nvcc = find_nvcc()
    try:
        return find_compiler().command
    except KernelError:
        if nvcc is None:
            raise
        return nvcc.command
