"""The tensors behind the block pool and the contiguous allocators: where keys and values lie.

The pool and the allocators (this room's other files) decide with integers who owns which place;
these two classes hold the numbers. Both number the places of a layer, the *slots*, from 0 on, one
per token: attention only ever asks which slot a token has, and need not know how it was given out.
Chapters 05, 10 and 12. This is the room's only file that imports torch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from tinyvllm_lab.cache.allocator import KVHolder
from tinyvllm_lab.errors import CacheError

IntArray = npt.NDArray[np.int64]
Pairs = Sequence[tuple[int, int]]


class _Slots:
    """What both kinds of KV memory can do once a token has a slot.

    Args:
        key, value: `[num_layers, num_slots, num_kv_heads, head_dim]` each, views of the tensors.
    """

    def __init__(self, key: Tensor, value: Tensor) -> None:
        self._key, self._value = key, value

    @property
    def num_bytes(self) -> int:
        """Memory that keys and values occupy on the device, in bytes."""
        return self._key.nbytes + self._value.nbytes

    def write(self, layer: int, slots: Tensor, k: Tensor, v: Tensor) -> None:
        """Store `k` and `v`, `[num_tokens, num_kv_heads, head_dim]`, at `slots`, `[num_tokens]`."""
        self._key[layer].index_copy_(0, slots, k)
        self._value[layer].index_copy_(0, slots, v)

    def read(self, layer: int, slots: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values at `slots` (any shape): two of `[*slots.shape, num_kv_heads, head_dim]`.

        They are copies. A kernel that follows block tables by itself need not make them
        (chapter 11).
        """
        return _gather(self._key[layer], slots), _gather(self._value[layer], slots)


class ContiguousKV(_Slots):
    """Keys and values in one strip of slots; a request owns a region `(start, length)` of it.

    Attributes:
        key, value: `[num_layers, num_slots, num_kv_heads, head_dim]` each.

    Raises:
        CacheError: the tensors do not fit into the device's memory.
    """

    def __init__(
        self,
        num_layers: int,
        num_slots: int,
        num_kv_heads: int,
        head_dim: int,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> None:
        self.num_slots = num_slots
        shape = (num_layers, num_slots, num_kv_heads, head_dim)
        self.key, self.value = _zeros(shape, dtype, device), _zeros(shape, dtype, device)
        super().__init__(self.key, self.value)

    def slot_table(self, requests: Sequence[KVHolder], max_len: int) -> IntArray:
        """Slots of the first `max_len` tokens of each request: `[requests, max_len]`.

        Beyond the end of a request's region they are somebody else's: mask them.
        """
        starts = [request.region[0] if request.region else 0 for request in requests]
        slots = np.array(starts, dtype=np.int64)[:, None] + np.arange(max_len)
        return np.minimum(slots, self.num_slots - 1)  # [requests, max_len]

    def move(self, moves: Iterable[tuple[int, int, int]]) -> None:
        """Move regions, one after the other: (old start, new start, tokens).

        Old and new place may overlap, as they do when a region slides down into a small hole.
        """
        for old, new, length in moves:
            for strip in (self.key, self.value):
                source = strip[:, old : old + length]
                # A copy over itself would read slots that it has already written.
                overlaps = abs(old - new) < length
                strip[:, new : new + length] = source.clone() if overlaps else source


class PagedKV(_Slots):
    """Keys and values in blocks of `block_size` tokens; a block table lists those of a request.

    Block `b` holds slots `b * block_size .. (b + 1) * block_size - 1` of every layer. Block 0 is
    the null block: nobody writes it, and the padding of a batch reads it.

    Attributes:
        key, value: `[num_layers, num_blocks, block_size, num_kv_heads, head_dim]` each.
        host_key, host_value: the same with `num_host_blocks`, on the CPU: the swap space.

    Raises:
        CacheError: the tensors do not fit into the device's memory.
    """

    def __init__(
        self,
        num_layers: int,
        num_blocks: int,
        block_size: int,
        num_kv_heads: int,
        head_dim: int,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
        num_host_blocks: int = 0,
    ) -> None:
        self.block_size = block_size
        block = (block_size, num_kv_heads, head_dim)
        shape, host_shape = (num_layers, num_blocks, *block), (num_layers, num_host_blocks, *block)
        self.key, self.value = _zeros(shape, dtype, device), _zeros(shape, dtype, device)
        self.host_key = _zeros(host_shape, dtype, "cpu")
        self.host_value = _zeros(host_shape, dtype, "cpu")
        super().__init__(self.key.flatten(1, 2), self.value.flatten(1, 2))

    def slot_table(self, requests: Sequence[KVHolder], max_len: int) -> IntArray:
        """Slots of the first `max_len` tokens of each request: `[requests, max_len]`.

        Beyond the end of a request's block table they are the null block's.
        """
        blocks = self.block_tables(requests, max_len)  # [requests, width]
        slots = blocks[:, :, None] * self.block_size + np.arange(self.block_size)
        return slots.reshape(len(requests), -1)[:, :max_len]

    def block_tables(self, requests: Sequence[KVHolder], max_len: int) -> IntArray:
        """Blocks of the first `max_len` tokens of each request: `[requests, blocks]`.

        Beyond the end of a request's own table stands the null block.
        """
        width = -(-max_len // self.block_size)
        tables = [request.block_table for request in requests]
        padded = [table[:width] + [0] * (width - len(table)) for table in tables]
        return np.array(padded, dtype=np.int64)

    def copy_blocks(self, pairs: Pairs) -> None:
        """Copy-on-write: (source block, target block), as if done one after the other."""
        for sources, targets in independent_copies(pairs):
            for strip in (self.key, self.value):
                strip[:, targets] = strip[:, sources]

    def swap_out(self, pairs: Pairs) -> None:
        """Copy to the host: (block, host block)."""
        _copy_between(self.key, self.host_key, pairs)
        _copy_between(self.value, self.host_value, pairs)

    def swap_in(self, pairs: Pairs) -> None:
        """Copy back from the host: (host block, block)."""
        _copy_between(self.host_key, self.key, pairs)
        _copy_between(self.host_value, self.value, pairs)


KVCache = PagedKV | ContiguousKV


def _zeros(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device | str) -> Tensor:
    # Not whatever was in memory: attention multiplies masked values by 0, and NaN * 0 is NaN.
    try:
        return torch.zeros(shape, dtype=dtype, device=device)
    except RuntimeError as error:
        raise CacheError(
            f"No memory for a KV tensor of shape {list(shape)}, {dtype}, on {device}.",
            expected="num_blocks * block_size tokens to fit beside the weights",
            fix="Pass a smaller num_blocks (or num_host_blocks).",
        ) from error


def _gather(strip: Tensor, slots: Tensor) -> Tensor:
    return strip.index_select(0, slots.flatten()).view(*slots.shape, *strip.shape[1:])


def _copy_between(source: Tensor, target: Tensor, pairs: Pairs) -> None:
    if not pairs:
        return
    sources, targets = (list(ids) for ids in zip(*pairs, strict=True))
    target[:, targets] = source[:, sources].to(target.device)


def independent_copies(pairs: Pairs) -> Iterator[tuple[list[int], list[int]]]:
    """Cut a list of copies where one reads or overwrites what an earlier one wrote.

    Within a piece all sources can be read first and all targets written then.
    """
    sources: list[int] = []
    targets: list[int] = []
    for source, target in pairs:
        if source in targets or target in targets:
            yield sources, targets
            sources, targets = [], []
        sources.append(source)
        targets.append(target)
    if sources:
        yield sources, targets
