"""`Launch` and `Work`: what a call of an operation comes to, before anything runs."""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tinyvllm_lab.errors import KernelError

WARP = 32
PACK_BYTES = 16
PER_THREAD = 8  # elements of a row for each thread, where a block reduces a row: fewer barriers
SUFFIXES = {torch.float32: "f32", torch.bfloat16: "bf16"}


@dataclass(frozen=True)
class Launch:
    """One launch of one kernel.

    Attributes:
        file: the kernel's file without `.cu`.
        kernel: its name in the file.
        args: tensors and numbers, in the order of its parameters.
        grid, block: sizes in blocks and in threads.
        shared: bytes of dynamic shared memory for each block.
    """

    file: str
    kernel: str
    args: tuple[Any, ...]
    grid: tuple[int, ...]
    block: tuple[int, ...]
    shared: int = 0


@dataclass(frozen=True)
class Work:
    """What a call comes to: launches in order (none where there is nothing to do), and a result."""

    launches: tuple[Launch, ...]
    result: Any


def new(shape: tuple[int, ...], like: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """Memory for a result, beside `like`. What it holds at first is nobody's business."""
    return torch.empty(shape, dtype=dtype or like.dtype, device=like.device)


def threads(items: int, most: int = 1024) -> int:
    """Whole warps, enough for `items`, but at most `most`."""
    return max(WARP, min(most, math.ceil(items / WARP) * WARP))


def pack_size(dtype: torch.dtype) -> int:
    """Elements in 16 bytes: 4 floats, 8 bfloat16."""
    return PACK_BYTES // dtype.itemsize


def are_aligned(*tensors: Tensor) -> bool:
    """Whether every tensor starts at a multiple of 16 bytes."""
    return all(t.data_ptr() % PACK_BYTES == 0 for t in tensors)


def pick(op: str, version: str | None, best: str, *others: str) -> str:
    """The version that was asked for, or the best one.

    Raises:
        KernelError: there is no such version.
    """
    if version not in (None, best, *others):
        raise KernelError(
            f"{op} has no version {version!r}.", expected=", ".join((*others, best)) + " (the last)"
        )
    return version or best
