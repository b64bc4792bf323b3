"""`HostBlocks`: swap space for preempted requests (chapter 12)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tinyvllm_lab.errors import CacheError


class HostBlocks:
    """Ids of the KV blocks that host memory can hold. Each has one owner and is never shared.

    A block freed in a step may be taken again in the same step: `StepPlan` copies swap-outs before
    swap-ins, so a freed block must have been read first. Freed blocks are therefore handed out
    again only from the next step on (`end_step`).
    """

    def __init__(self, num_blocks: int) -> None:
        self.num_blocks = num_blocks
        self._free = list(range(num_blocks - 1, -1, -1))
        self._freed_now: list[int] = []

    @property
    def num_free(self) -> int:
        """Blocks that can be taken in this step."""
        return len(self._free)

    def allocate(self, count: int) -> list[int]:
        """Take `count` blocks.

        Raises:
            CacheError: fewer are free; nothing is changed.
        """
        if count > len(self._free):
            raise CacheError(f"{count} host blocks were asked for, {len(self._free)} are free.")
        return [self._free.pop() for _ in range(count)]

    def release(self, blocks: Sequence[int]) -> None:
        """Give blocks back.

        Raises:
            CacheError: a block is free already or not of this space; nothing is changed.
        """
        known = {*self._free, *self._freed_now} if blocks else set()
        for block in blocks:
            if block in known or not 0 <= block < self.num_blocks:
                raise CacheError(f"Host block {block} is freed but not held.")
        self._freed_now += blocks

    def end_step(self) -> None:
        """Make the blocks freed in this step available."""
        self._free += self._freed_now
        self._freed_now.clear()

    def check_invariants(self, tables: Iterable[Sequence[int]]) -> None:
        """Raise `CacheError` unless every block is free or held by one request."""
        held = [block for table in tables for block in table]
        if sorted([*held, *self._free, *self._freed_now]) != list(range(self.num_blocks)):
            raise CacheError(
                f"Host blocks are lost or held twice: held {sorted(held)}, "
                f"free {sorted(self._free)} of {self.num_blocks}."
            )
