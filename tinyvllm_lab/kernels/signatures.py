"""What a kernel takes: its parameters, read from the preprocessed source.

CUDA does not check a kernel's arguments; a wrong count or width is undefined behaviour. We read the
declaration and check every call against it.
"""

import json
import re
from dataclasses import asdict, dataclass
from pathlib import Path

from tinyvllm_lab.errors import KernelError

# This file, as part of each build's key: builds keep what it read.
PARSER = Path(__file__).read_bytes()

# C type -> (dtype of one element, elements in it). `void` stands for any dtype.
_C_TYPES: dict[str, tuple[str, int]] = {
    "void": ("any", 1),
    "bool": ("bool", 1),
    "char": ("int8", 1),
    "signed char": ("int8", 1),
    "int8_t": ("int8", 1),
    "unsigned char": ("uint8", 1),
    "uint8_t": ("uint8", 1),
    "short": ("int16", 1),
    "int16_t": ("int16", 1),
    "unsigned short": ("uint16", 1),
    "uint16_t": ("uint16", 1),
    "int": ("int32", 1),
    "int32_t": ("int32", 1),
    "unsigned": ("uint32", 1),
    "unsigned int": ("uint32", 1),
    "uint32_t": ("uint32", 1),
    "long": ("int64", 1),
    "long long": ("int64", 1),
    "int64_t": ("int64", 1),
    "unsigned long": ("uint64", 1),
    "unsigned long long": ("uint64", 1),
    "uint64_t": ("uint64", 1),
    "size_t": ("uint64", 1),
    "float": ("float32", 1),
    "float2": ("float32", 2),
    "float4": ("float32", 4),
    "double": ("float64", 1),
    "int2": ("int32", 2),
    "int4": ("int32", 4),
    "uint2": ("uint32", 2),
    "uint4": ("uint32", 4),
    "__half": ("float16", 1),
    "half": ("float16", 1),
    "__half2": ("float16", 2),
    "half2": ("float16", 2),
    "__nv_bfloat16": ("bfloat16", 1),
    "nv_bfloat16": ("bfloat16", 1),
    "__nv_bfloat162": ("bfloat16", 2),
    "nv_bfloat162": ("bfloat16", 2),
}
_DTYPE_BYTES = {"any": 1, "bool": 1, "bfloat16": 2, "float16": 2}


def dtype_bytes(dtype: str) -> int:
    """Bytes of one element, from the number of bits in the dtype's name: int32 -> 4."""
    return _DTYPE_BYTES.get(dtype) or int(re.sub(r"\D", "", dtype)) // 8


@dataclass(frozen=True)
class Parameter:
    """One parameter of a kernel.

    Attributes:
        name: as in the source.
        dtype: of the scalar, or of what the pointer points to ("float32", ..., "any").
        pointer: whether it takes an array.
        writable: whether the kernel may write through the pointer (no `const`).
        alignment: bytes the address must be a multiple of (16 for `float4*`).
    """

    name: str
    dtype: str
    pointer: bool = False
    writable: bool = False
    alignment: int = 1

    @property
    def nbytes(self) -> int:
        """Bytes the argument itself takes: 8 for a pointer."""
        return 8 if self.pointer else dtype_bytes(self.dtype)

    def __str__(self) -> str:
        if not self.pointer:
            return f"{self.dtype} {self.name}"
        return f"{'' if self.writable else 'const '}{self.dtype}* {self.name}"


@dataclass(frozen=True)
class Signature:
    """A kernel's name and parameters, in order.

    Attributes:
        name: as in the source.
        parameters: in order.
        max_threads: of a block, from its `__launch_bounds__`; a GPU refuses a launch with more.
    """

    name: str
    parameters: tuple[Parameter, ...]
    max_threads: int = 1024

    def __str__(self) -> str:
        return f"{self.name}({', '.join(map(str, self.parameters))})"


@dataclass(frozen=True)
class Declarations:
    """What a preprocessed file declares: kernels, and `extern __shared__` arrays (name, type)."""

    kernels: tuple[Signature, ...]
    dynamic_shared: tuple[tuple[str, str], ...]

    def to_json(self) -> str:
        """Text that `from_json` reads; kept beside a build."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "Declarations":
        """The inverse of `to_json`."""
        data = json.loads(text)
        kernels = tuple(
            Signature(k["name"], tuple(Parameter(**p) for p in k["parameters"]), k["max_threads"])
            for k in data["kernels"]
        )
        return cls(kernels, tuple((name, c_type) for name, c_type in data["dynamic_shared"]))


_NOISE = re.compile(
    r"__attribute__\s*\(\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)\)|alignas\s*\([^()]*\)"
    r"|^\s*#.*$",
    re.M,
)
_EXTERN_C = r'extern\s+"C"\s*'
_BOUNDS = r"(?:__simt_launch_bounds__\s*\(([^()]*)\)\s*)?"
_KERNEL = re.compile(
    rf"({_EXTERN_C})?{_BOUNDS}__simt_global__\s+{_BOUNDS}void\s+{_BOUNDS}(\w+)\s*\(([^()]*)\)"
)
_DYNAMIC = re.compile(r"extern\s+__simt_shared__\s+([\w:\s]+?)\s+(\w+)\s*\[\s*\]")


def parse_declarations(preprocessed: str) -> Declarations:
    """Find kernels in text whose `__global__` and `__shared__` became `__simt_global__`, ...

    Raises:
        KernelError: a parameter has a type we cannot pass, or a kernel is not `extern "C"`.
    """
    text = _NOISE.sub(" ", preprocessed)
    in_block = re.search(_EXTERN_C + r"\{", text)
    kernels = {}
    for extern_c, *bounds, name, declared in _KERNEL.findall(text):
        if not extern_c and not in_block:
            raise KernelError(
                f"Kernel {name!r} has a C++ name, which no launch can find.",
                expected=f'extern "C" __global__ void {name}(...)',
            )
        most = _most_threads("".join(bounds), text)
        kernels[name] = Signature(name, tuple(_parameters(name, declared)), most)
    dynamic = {name: " ".join(c_type.split()) for c_type, name in _DYNAMIC.findall(text)}
    return Declarations(tuple(kernels.values()), tuple(dynamic.items()))


def _most_threads(bounds: str, text: str) -> int:
    """What `__launch_bounds__(bounds)` allows: a number, or a constant of the file."""
    first = bounds.partition(",")[0].strip()
    if first.isidentifier():
        constant = re.search(rf"\bconst(?:expr)?\s+int\s[^;]*?\b{first}\s*=\s*(\d+)\b", text)
        first = constant[1] if constant else ""
    return int(first) if first.isdigit() else 1024


def _parameters(kernel: str, declared: str) -> list[Parameter]:
    texts = [text.strip() for text in declared.split(",")]
    return [_parameter(kernel, text) for text in texts if text not in ("", "void")]


def _parameter(kernel: str, text: str) -> Parameter:
    words = re.findall(r"\w+|\*", text)
    name, pointer, const = words[-1], words.count("*"), "const" in words[: _star(words)]
    qualifiers = {"const", "volatile", "restrict", "__restrict__", "__restrict", "*"}
    c_type = " ".join(word for word in words[:-1] if word not in qualifiers)
    dtype, lanes = _C_TYPES.get(c_type, ("", 0))
    scalar_ok = lanes == 1 and dtype not in ("any", "float16", "bfloat16")
    if not dtype or pointer > 1 or (not pointer and not scalar_ok):
        raise KernelError(
            f"Kernel {kernel!r}: parameter {text!r} has a type that we cannot pass.",
            expected="a number, or a pointer to " + ", ".join(sorted(_C_TYPES)),
        )
    if not pointer:
        return Parameter(name, dtype)
    return Parameter(name, dtype, True, not const, lanes * dtype_bytes(dtype))


def _star(words: list[str]) -> int:
    return words.index("*") if "*" in words else len(words)
