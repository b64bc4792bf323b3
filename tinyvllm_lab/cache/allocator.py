"""What a scheduler asks of KV memory, and the plain data that passes between the two."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from tinyvllm_lab.cache.hashing import BlockHash


class KVHolder(Protocol):
    """The part of a `Request` that KV memory reads and writes."""

    index: int
    token_ids: list[int]
    num_computed_tokens: int
    block_table: list[int]
    block_hashes: list[BlockHash]
    num_cached_blocks: int
    swapped_blocks: list[int]
    region: tuple[int, int] | None
    kv_capacity: int
    forked: bool
    cache_salt: str | None


@dataclass(slots=True)
class PendingCopies:
    """Copies that the executor must do before it computes the step. See `StepPlan`."""

    swap_out: list[tuple[int, int]] = field(default_factory=list)
    swap_in: list[tuple[int, int]] = field(default_factory=list)
    copies: list[tuple[int, int]] = field(default_factory=list)
    moves: list[tuple[int, int, int]] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.swap_out or self.swap_in or self.copies or self.moves)


class KVAllocator(Protocol):
    """KV memory as a scheduler sees it: pages, or contiguous regions.

    `grow` and `admit` either do everything or change nothing. `kv_capacity` of a request says how
    many tokens its memory can hold, so the scheduler asks only when that is not enough.
    """

    num_total: int
    """Blocks or token slots that requests can hold in all."""
    block_size: int
    """Tokens a block."""
    pending: PendingCopies
    enable_caching: bool
    """True if full blocks are hashed, so that equal prefixes find them."""
    can_share: bool
    """True if two requests can hold the same memory (prefix hits, forks)."""

    @property
    def num_used(self) -> int:
        """Blocks (paged) or token slots (contiguous) that requests hold."""

    def required(self, max_tokens: int) -> int:
        """Blocks or slots that a request of `max_tokens` KV tokens needs when it is alone."""

    def find_prefix(self, request: KVHolder) -> list[int]:
        """Cached blocks that hold the beginning of the request, in order."""

    def fits(self, request: KVHolder, hits: Sequence[int], num_tokens: int, reserve: int) -> bool:
        """True if the request could hold `num_tokens` tokens and `reserve` blocks stayed free."""

    def admit(self, request: KVHolder, hits: Sequence[int], num_tokens: int) -> None:
        """Give a request without memory room for `num_tokens` tokens; `hits` are shared."""

    def grow(self, request: KVHolder, num_tokens: int) -> bool:
        """Extend a request's memory to `num_tokens` tokens; False if there is no room."""

    def cache_full_blocks(self, request: KVHolder, num_tokens: int) -> None:
        """Hash the blocks that are full when `num_tokens` tokens are computed."""

    def drop_unwritten(self, request: KVHolder, num_tokens: int) -> None:
        """Take back the hashes of blocks beyond the first `num_tokens` tokens."""

    def release(self, request: KVHolder) -> None:
        """Take all memory of the request back."""

    def swap_out(self, request: KVHolder) -> bool:
        """Move a victim's computed tokens to the host; False if the host has no room."""

    def fork(self, parent: KVHolder, child: KVHolder) -> None:
        """Let the child share the parent's memory (only if `can_share`)."""

    def end_step(self) -> None:
        """The step is planned, its copies are taken over."""

    def configure(self, config: Any) -> None:
        """Take over knobs that may change while the engine runs."""

    def describe(self) -> str:
        """One line for error messages: what is used, free and held."""

    def check_invariants(self, requests: Iterable[Any]) -> None:
        """Compare the books with the requests; raise `CacheError` if they differ."""
