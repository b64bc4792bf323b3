"""Check the tensors of a call against the shapes that an operation names."""

from collections.abc import Mapping

import torch
from torch import Tensor

from tinyvllm_lab.errors import KernelError

FLOATS = (torch.float32, torch.bfloat16)


def match_shapes(op: str, tensors: Mapping[str, tuple[Tensor, str]]) -> dict[str, int]:
    """Bind the names of dimensions to sizes.

    Args:
        op: what the error message calls the operation.
        tensors: argument name -> (tensor, dimensions by name): `{"x": (x, "rows width")}`. The same
            name must have the same size everywhere; a plain number stands for itself, and `...` in
            front for any further dimensions.

    Returns:
        Dimension name -> size.

    Raises:
        KernelError: an argument is no tensor, has another number of dimensions, or sizes disagree.
    """
    sizes: dict[str, int] = {}
    for name, (tensor, dims) in tensors.items():
        expected = f"{name}: a tensor [{', '.join(dims.split())}]"
        names = dims.removeprefix("...").split()
        if not isinstance(tensor, Tensor):
            raise KernelError(f"{op}: {name} is a {type(tensor).__name__}.", expected)
        shape = tuple(tensor.shape)
        if len(shape) != len(names) and not (dims.startswith("...") and len(shape) > len(names)):
            raise KernelError(f"{op}: {name} has shape {shape}.", expected)
        for dim, size in zip(names, shape[len(shape) - len(names) :], strict=True):
            wanted = int(dim) if dim.isdigit() else sizes.setdefault(dim, size)
            if size != wanted:
                message = f"{op}: {name} has shape {shape}, but {dim} is {wanted}."
                raise KernelError(message, expected)
    return sizes


def match_dtypes(op: str, tensors: Mapping[str, Tensor], *allowed: torch.dtype) -> torch.dtype:
    """All tensors have the same type, and it is one of `allowed`.

    Raises:
        KernelError: they have not, or it is not.
    """
    dtypes = {name: tensor.dtype for name, tensor in tensors.items()}
    first = next(iter(dtypes.values()))
    if first not in allowed or any(dtype != first for dtype in dtypes.values()):
        raise KernelError(
            f"{op}: " + ", ".join(f"{name} is {dtype}" for name, dtype in dtypes.items()) + ".",
            expected="one of " + ", ".join(map(str, allowed)) + ", the same for all",
        )
    return first


def same_shape(op: str, tensors: Mapping[str, Tensor]) -> None:
    """All tensors have one shape.

    Raises:
        KernelError: they have not.
    """
    shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    if len(set(shapes.values())) > 1:
        given = ", ".join(f"{name} has shape {shape}" for name, shape in shapes.items())
        raise KernelError(f"{op}: {given}.", expected="the same shape")
