"""Check a call against the kernel's signature, before anything is launched."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tinyvllm_lab.errors import KernelError
from tinyvllm_lab.kernels.signatures import Parameter, Signature, dtype_bytes

MAX_THREADS_PER_BLOCK = 1024
MAX_SHARED_BYTES = 227 * 1024  # what one block can have at most on sm_90 and later
_MAX_BLOCK = (1024, 1024, 64)
_MAX_GRID = (2**31 - 1, 65535, 65535)


@dataclass(frozen=True)
class Argument:
    """One checked argument.

    Attributes:
        parameter: what the kernel declares.
        value: the number, or the address.
        nbytes: bytes from the address on that belong to the array.
        owner: the tensor or array, kept alive while the kernel may use it.
    """

    parameter: Parameter
    value: int | float
    nbytes: int = 0
    owner: Any = None


@dataclass(frozen=True)
class Geometry:
    """How many threads run: blocks, threads in each, and bytes of dynamic shared memory."""

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared: int = 0

    @property
    def num_blocks(self) -> int:
        """Product of the grid's three sizes."""
        return math.prod(self.grid)

    @property
    def threads_per_block(self) -> int:
        """Product of the block's three sizes."""
        return math.prod(self.block)


def geometry(
    grid: int | Sequence[int],
    block: int | Sequence[int],
    shared: int,
    max_threads: int = MAX_THREADS_PER_BLOCK,
) -> Geometry:
    """Fill up to three dimensions and check CUDA's limits, and those of the kernel's launch bounds.

    Raises:
        KernelError: a size is not a whole number, zero, or too large.
    """
    launch = Geometry(_triple("grid", grid), _triple("block", block), int(shared))
    _check_limits("grid", launch.grid, _MAX_GRID)
    _check_limits("block", launch.block, _MAX_BLOCK)
    if launch.threads_per_block > MAX_THREADS_PER_BLOCK:
        raise KernelError(
            f"block={launch.block} has {launch.threads_per_block} threads.",
            expected=f"at most {MAX_THREADS_PER_BLOCK} threads in a block",
        )
    if launch.threads_per_block > max_threads:
        raise KernelError(
            f"block={launch.block} has {launch.threads_per_block} threads.",
            expected=f"at most {max_threads}, as the kernel's __launch_bounds__ say",
        )
    if not 0 <= launch.shared <= MAX_SHARED_BYTES:
        raise KernelError(
            f"shared={shared} bytes of dynamic shared memory cannot be had.",
            expected=f"0 to {MAX_SHARED_BYTES} bytes",
        )
    return launch


def _triple(what: str, size: int | Sequence[int]) -> tuple[int, int, int]:
    sizes = (size,) if not isinstance(size, Sequence) else tuple(size)
    if not 1 <= len(sizes) <= 3 or not all(_is_integer(n) for n in sizes):
        raise KernelError(f"{what}={size!r} is no size.", expected="one to three whole numbers")
    x, y, z = (*(int(n) for n in sizes), 1, 1)[:3]
    return x, y, z


def _check_limits(what: str, size: tuple[int, ...], limit: tuple[int, ...]) -> None:
    if any(not 1 <= n <= most for n, most in zip(size, limit, strict=True)):
        raise KernelError(
            f"{what}={size} is out of range.",
            expected=f"each size from 1 up to {limit}",
            fix="Skip the launch when there is nothing to do." if 0 in size else "",
        )


def _is_integer(value: Any) -> bool:
    return hasattr(value, "__index__") and not hasattr(value, "data_ptr")


def bind(
    signature: Signature, args: Sequence[Any], check_device: Callable[[str, Any], None]
) -> list[Argument]:
    """Match arguments with parameters.

    Args:
        signature: the kernel's.
        args: tensors, arrays, `None` (a null pointer) and numbers.
        check_device: called with the parameter's name and a tensor; raises if the back end cannot
            reach its memory.

    Raises:
        KernelError: wrong count, dtype, device, layout or range; it names kernel and parameter.
    """
    if len(args) != len(signature.parameters):
        raise KernelError(
            f"{signature.name} got {len(args)} arguments.",
            expected=f"{len(signature.parameters)}: {signature}",
        )
    return [
        _bind_one(signature.name, parameter, arg, check_device)
        for parameter, arg in zip(signature.parameters, args, strict=True)
    ]


def _bind_one(
    kernel: str, parameter: Parameter, arg: Any, check_device: Callable[[str, Any], None]
) -> Argument:
    where = f"{kernel}, argument {parameter.name!r}"
    if not parameter.pointer:
        return Argument(parameter, _number(where, parameter, arg))
    if arg is None:
        return Argument(parameter, 0)
    interfaces = ("data_ptr", "__array_interface__", "__cuda_array_interface__")
    if not any(hasattr(arg, name) for name in interfaces):
        raise KernelError(
            f"{where}: got {type(arg).__name__}.",
            expected=f"a tensor or array of {parameter.dtype}, or None",
        )
    check_device(where, arg)
    return _array(where, parameter, arg)


def _number(where: str, parameter: Parameter, arg: Any) -> int | float:
    wants_float = parameter.dtype.startswith("float")
    if wants_float and (_is_integer(arg) or (hasattr(arg, "__float__") and not _is_array(arg))):
        return float(arg)
    if not _is_integer(arg) or _is_array(arg):
        raise KernelError(
            f"{where}: got {arg!r} ({type(arg).__name__}).",
            expected="a number" if wants_float else "a whole number",
        )
    value, bits = int(arg), 8 * dtype_bytes(parameter.dtype)
    low, high = (
        (0, 2**bits - 1) if parameter.dtype[0] == "u" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    )
    if parameter.dtype == "bool":
        low, high = 0, 1
    if not low <= value <= high:
        raise KernelError(f"{where}: {value} does not fit.", f"{parameter.dtype}, {low} to {high}")
    return value


def _is_array(arg: Any) -> bool:
    return hasattr(arg, "data_ptr") or getattr(arg, "ndim", 0) > 0


def _array(where: str, parameter: Parameter, arg: Any) -> Argument:
    dtype = str(arg.dtype).removeprefix("torch.")
    if not _same_kind(dtype, parameter.dtype):
        raise KernelError(f"{where}: dtype is {dtype}.", expected=parameter.dtype)
    if not _is_contiguous(arg):
        raise KernelError(
            f"{where}: the array is not contiguous (shape {tuple(arg.shape)}).",
            expected="elements that follow each other in memory, in row-major order",
            fix="Pass x.contiguous() (torch) or np.ascontiguousarray(x).",
        )
    address, nbytes = _memory(arg)
    if parameter.writable and not _is_writable(arg):
        raise KernelError(f"{where}: the array is read-only.", expected="an array to write into")
    if nbytes and address % parameter.alignment:
        raise KernelError(
            f"{where}: the address {address:#x} is not aligned.",
            expected=f"a multiple of {parameter.alignment} bytes",
            fix="Start the slice at a multiple of the vector's length, or copy it.",
        )
    return Argument(parameter, address, nbytes, arg)


def _same_kind(given: str, wanted: str) -> bool:
    # Torch has hardly any unsigned integers, so signedness is not checked; bool is a byte.
    def plain(dtype: str) -> str:
        return "int8" if dtype == "bool" else dtype.removeprefix("u")

    return wanted == "any" or plain(given) == plain(wanted)


def _is_contiguous(arg: Any) -> bool:
    return bool(arg.is_contiguous()) if hasattr(arg, "data_ptr") else bool(arg.flags.c_contiguous)


def _is_writable(arg: Any) -> bool:
    return bool(getattr(getattr(arg, "flags", None), "writeable", True))


def _memory(arg: Any) -> tuple[int, int]:
    if hasattr(arg, "data_ptr"):
        return arg.data_ptr(), arg.nelement() * arg.element_size()
    if hasattr(arg, "__cuda_array_interface__"):
        return arg.__cuda_array_interface__["data"][0], arg.nbytes
    return arg.ctypes.data, arg.nbytes
