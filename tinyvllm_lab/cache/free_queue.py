"""The free queue: block ids in the order in which they will be taken (chapter 12)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator


class FreeQueue:
    """A doubly linked list over block ids, so that any block can leave in O(1).

    A prefix hit takes a block out of the middle; everything else happens at the two ends. Slot 0 of
    the two link lists is the sentinel: block 0 is the null block and is never free.

    Source: vLLM's `FreeKVCacheBlockQueue`; the order of the blocks is the eviction order (LRU).
    """

    __slots__ = ("_next", "_prev", "size")

    def __init__(self, num_blocks: int) -> None:
        self.size = num_blocks - 1
        self._next = [*range(1, num_blocks), 0]
        self._prev = [num_blocks - 1, *range(num_blocks - 1)]

    def __len__(self) -> int:
        return self.size

    def __iter__(self) -> Iterator[int]:
        block = self._next[0]
        while block:
            yield block
            block = self._next[block]

    def __contains__(self, block: int) -> bool:
        return self._next[block] >= 0

    def pop_many(self, count: int) -> list[int]:
        """Take `count` blocks from the head. The caller has checked that so many are there."""
        following = self._next
        blocks = []
        block = following[0]
        for _ in range(count):
            blocks.append(block)
            after = following[block]
            following[block] = -1
            block = after
        following[0] = block
        self._prev[block] = 0
        self.size -= count
        return blocks

    def remove(self, block: int) -> None:
        """Take one block out, wherever it stands."""
        following, previous = self._next, self._prev
        after, before = following[block], previous[block]
        following[before], previous[after] = after, before
        following[block] = -1
        self.size -= 1

    def append_many(self, blocks: Iterable[int]) -> None:
        """Put blocks at the tail, in order: they are taken last."""
        following, previous = self._next, self._prev
        last = previous[0]
        for block in blocks:
            following[last], previous[block] = block, last
            last = block
            self.size += 1
        following[last], previous[0] = 0, last

    def prepend_many(self, blocks: list[int]) -> None:
        """Put blocks in front of the head, keeping their order: they are taken next."""
        following, previous = self._next, self._prev
        first = following[0]
        for block in reversed(blocks):
            following[block], previous[first] = first, block
            first = block
            self.size += 1
        following[0], previous[first] = first, 0
