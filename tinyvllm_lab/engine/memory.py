"""From a config to KV memory: the allocator that a scheduler uses, and "no cache at all"."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tinyvllm_lab.cache import (
    BlockPool,
    ContiguousAllocator,
    HostBlocks,
    KVAllocator,
    PagedAllocator,
    PendingCopies,
)
from tinyvllm_lab.cache.allocator import KVHolder
from tinyvllm_lab.engine.config import EngineConfig


class NoCache:
    """`use_kv_cache=False`: nothing is kept, so nothing is ever full (chapter 01)."""

    def __init__(self) -> None:
        self.num_total = self.num_used = 0
        self.block_size = 1
        self.enable_caching = self.can_share = False
        self.pending = PendingCopies()

    def required(self, max_tokens: int) -> int:
        """No memory."""
        return 0

    def find_prefix(self, request: KVHolder) -> list[int]:
        """Nothing is kept."""
        return []

    def fits(self, request: KVHolder, hits: Sequence[int], num_tokens: int, reserve: int) -> bool:
        """Always."""
        return True

    def admit(self, request: KVHolder, hits: Sequence[int], num_tokens: int) -> None:
        """Nothing to give."""

    def grow(self, request: KVHolder, num_tokens: int) -> bool:
        """Always."""
        request.kv_capacity = num_tokens
        return True

    def cache_full_blocks(self, request: KVHolder, num_tokens: int) -> None:
        """Nothing to hash."""

    def drop_unwritten(self, request: KVHolder, num_tokens: int) -> None:
        """Nothing was hashed."""

    def release(self, request: KVHolder) -> None:
        """Nothing to take back."""
        request.kv_capacity = 0

    def swap_out(self, request: KVHolder) -> bool:
        """Nothing to copy."""
        return False

    def fork(self, parent: KVHolder, child: KVHolder) -> None:
        """Nothing to share (`can_share` is False)."""

    def end_step(self) -> None:
        """Nothing waits for the end of a step."""

    def configure(self, config: Any) -> None:
        """No knob applies."""

    def describe(self) -> str:
        """One line for error messages."""
        return "no KV cache"

    def check_invariants(self, requests: Iterable[Any]) -> None:
        """Nothing can be wrong."""


def make_allocator(
    config: EngineConfig, events: list[int] | None = None, block_pool: BlockPool | None = None
) -> KVAllocator:
    """KV memory as the config asks for it.

    Args:
        config: `allocator`, `num_blocks`, `block_size` and the switches.
        events: list that receives the memory's events, or None.
        block_pool: a pool of the caller's own, instead of a new `BlockPool`.
    """
    if not config.use_kv_cache:
        return NoCache()
    if config.allocator == "paged":
        return PagedAllocator(
            block_pool or BlockPool(config.num_blocks, events),
            config.block_size,
            enable_caching=config.enable_prefix_caching,
            host=HostBlocks(config.num_host_blocks if config.preemption == "swap" else 0),
        )
    return ContiguousAllocator(
        config.num_usable_blocks * config.block_size,
        "best-fit" if config.allocator == "contiguous-best-fit" else "first-fit",
        granule=config.block_size,
        reserve_len=config.max_model_len if config.allocator == "contiguous-max" else 0,
        compaction=config.compaction,
        events=events,
    )
