"""Contiguous KV memory, as engines gave it out before PagedAttention (chapter 10).

Every request holds one region of token slots. `contiguous-max` reserves the longest sequence that a
request could ever become, so most of it stays empty (internal fragmentation). First fit and best
fit reserve what is needed now and grow, so they leave holes (external fragmentation), and a region
that cannot grow where it lies must be copied to another hole.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tinyvllm_lab.cache.allocator import KVHolder, PendingCopies
from tinyvllm_lab.engine.events import Kind
from tinyvllm_lab.errors import CacheError

_ALLOC, _GROW = int(Kind.REGION_ALLOC), int(Kind.REGION_GROW)
_MOVE, _FREE = int(Kind.REGION_MOVE), int(Kind.REGION_FREE)


class ContiguousAllocator:
    """One region of token slots a request; the protocol is `KVAllocator`.

    Args:
        num_slots: token slots in all.
        placement: "first-fit" or "best-fit": which hole a region goes into.
        granule: slots by which a region grows, in tokens (the engine passes its block size).
        reserve_len: slots reserved for every request, whatever it needs; 0 reserves what is needed.
        compaction: move all regions together when a hole of the right size is missing although
            enough slots are free.
        events: list that receives an event for each change, or None.

    Raises:
        CacheError: on misuse; nothing is changed then.
    """

    def __init__(
        self,
        num_slots: int,
        placement: str = "first-fit",
        *,
        granule: int = 16,
        reserve_len: int = 0,
        compaction: bool = False,
        events: list[int] | None = None,
    ) -> None:
        self.num_total = num_slots
        self.placement = placement
        self.block_size = granule
        self.reserve_len = reserve_len
        self.compaction = compaction
        self.events = events
        self.pending = PendingCopies()
        self.enable_caching = self.can_share = False
        self.num_used = 0
        # Regions in the order of their addresses; there are at most max_num_seqs of them.
        self._regions: list[tuple[int, int, KVHolder]] = []

    def required(self, max_tokens: int) -> int:
        """Slots of a request with `max_tokens` KV tokens."""
        granules = -(-max_tokens // self.block_size) * self.block_size
        return max(self.reserve_len, min(granules, self.num_total) if granules else 0, max_tokens)

    def find_prefix(self, request: KVHolder) -> list[int]:
        """Nothing: regions are not shared."""
        return []

    def fits(self, request: KVHolder, hits: Sequence[int], num_tokens: int, reserve: int) -> bool:
        """True if a hole takes the region (or would after compaction) and the reserve stays."""
        length = self.required(num_tokens)
        free = self.num_total - self.num_used
        if length + reserve * self.block_size > free:
            return False
        return self.compaction or self._find_hole(length) is not None

    def admit(self, request: KVHolder, hits: Sequence[int], num_tokens: int) -> None:
        """Give the request a region for `num_tokens` tokens.

        Raises:
            CacheError: no hole is large enough.
        """
        length = self.required(num_tokens)
        start = self._make_hole(length)
        if start is None:
            raise CacheError(
                f"No hole of {length} slots: {self.describe()}.", fix="Ask fits() first."
            )
        self._insert(request, start, length)
        self._emit(_ALLOC, request.index, start, length)

    def grow(self, request: KVHolder, num_tokens: int) -> bool:
        """Extend the region in place, or move it to a larger hole; False if there is none."""
        assert request.region is not None
        length = request.region[1]
        wanted = self.required(num_tokens)
        if wanted <= length:
            return True
        if not self._make_room(request, wanted):
            return False
        self._resize(request, wanted)
        return True

    def cache_full_blocks(self, request: KVHolder, num_tokens: int) -> None:
        """Nothing: regions have no hashes."""

    def drop_unwritten(self, request: KVHolder, num_tokens: int) -> None:
        """Nothing: regions have no hashes."""

    def release(self, request: KVHolder) -> None:
        """Make the region a hole again."""
        if request.region is None:
            return
        start, length = request.region
        self._remove(request)
        self._emit(_FREE, request.index, start, length)

    def swap_out(self, request: KVHolder) -> bool:
        """False: regions are not swapped."""
        return False

    def fork(self, parent: KVHolder, child: KVHolder) -> None:
        """Refuse: a region has one owner (`can_share` is False)."""
        raise CacheError("A contiguous region cannot be shared.", fix="Check can_share first.")

    def end_step(self) -> None:
        """Nothing waits for the end of a step."""

    def configure(self, config: Any) -> None:
        """Take over the compaction switch."""
        self.compaction = config.compaction

    def holes(self) -> list[tuple[int, int]]:
        """Free stretches as (start, length), by address."""
        found, end = [], 0
        for start, length, _ in self._regions:
            if start > end:
                found.append((end, start - end))
            end = start + length
        if end < self.num_total:
            found.append((end, self.num_total - end))
        return found

    def describe(self) -> str:
        """One line about slots and holes."""
        largest = max((length for _, length in self.holes()), default=0)
        return (
            f"{self.num_used} of {self.num_total} slots used, {self.num_total - self.num_used} "
            f"free in {len(self.holes())} holes, the largest {largest}"
        )

    def check_invariants(self, requests: Iterable[Any]) -> None:
        """Raise `CacheError` if regions overlap, leave memory, or differ from the requests'."""
        expected = sorted(r.region for r in requests if r.region is not None)
        mine = [(start, length) for start, length, _ in self._regions]
        ends = [0, *(start + length for start, length in mine)]
        overlap = any(start < end for (start, _), end in zip(mine, ends, strict=False))
        if mine != expected or overlap or ends[-1] > self.num_total:
            raise CacheError(f"Regions {mine} overlap or differ from the requests' {expected}.")
        if self.num_used != sum(length for _, length in mine):
            raise CacheError(f"{self.num_used} slots are counted as used, regions hold {mine}.")

    def _find_hole(self, length: int) -> int | None:
        fitting = [(size, start) for start, size in self.holes() if size >= length]
        if not fitting:
            return None
        if self.placement == "best-fit":
            return min(fitting)[1]
        return min(start for _, start in fitting)

    def _make_hole(self, length: int) -> int | None:
        start = self._find_hole(length)
        if start is None and self.compaction and length <= self.num_total - self.num_used:
            self._compact()
            start = self._find_hole(length)
        return start

    def _make_room(self, request: KVHolder, wanted: int) -> bool:
        """See to it that the region can become `wanted` slots long where it lies then."""
        assert request.region is not None
        start, length = request.region
        if self._room_behind(start, length) >= wanted - length:
            return True
        if self._relocate(request, wanted):
            return True
        if self.compaction and wanted - length <= self.num_total - self.num_used:
            self._compact(hole_behind=request)
            return True
        return False

    def _room_behind(self, start: int, length: int) -> int:
        end = start + length
        return next((size for hole, size in self.holes() if hole == end), 0)

    def _relocate(self, request: KVHolder, wanted: int) -> bool:
        """Move the region to a hole of `wanted` slots, its own slots counted as free."""
        assert request.region is not None
        old_start, length = request.region
        self._remove(request)
        start = self._find_hole(wanted)
        self._insert(request, old_start if start is None else start, length)
        if start is not None and start != old_start:
            self._record_move(request, old_start, start)
        return start is not None

    def _compact(self, hole_behind: KVHolder | None = None) -> None:
        """Join all holes into one: at the end, or right behind one request's region.

        Regions up to that one slide down, the lowest first; the others slide up to the end, the
        highest first. So no copy overwrites a region that has not moved yet.
        """
        regions = list(self._regions)
        stay = next((i for i, r in enumerate(regions, 1) if r[2] is hole_behind), len(regions))
        end = 0
        for start, length, request in regions[:stay]:
            self._slide(request, start, end)
            end += length
        end = self.num_total
        for start, length, request in reversed(regions[stay:]):
            end -= length
            self._slide(request, start, end)

    def _slide(self, request: KVHolder, start: int, new_start: int) -> None:
        if start == new_start:
            return
        assert request.region is not None
        length = request.region[1]
        self._remove(request)
        self._insert(request, new_start, length)
        self._record_move(request, start, new_start)

    def _record_move(self, request: KVHolder, old_start: int, new_start: int) -> None:
        self.pending.moves.append((old_start, new_start, request.num_computed_tokens))
        self._emit(_MOVE, request.index, old_start, new_start)

    def _resize(self, request: KVHolder, length: int) -> None:
        assert request.region is not None
        start = request.region[0]
        self._remove(request)
        self._insert(request, start, length)
        self._emit(_GROW, request.index, start, length)

    def _insert(self, request: KVHolder, start: int, length: int) -> None:
        self._regions.append((start, length, request))
        self._regions.sort(key=lambda region: region[0])
        self.num_used += length
        request.region = (start, length)
        request.kv_capacity = length

    def _remove(self, request: KVHolder) -> None:
        self._regions = [region for region in self._regions if region[2] is not request]
        assert request.region is not None
        self.num_used -= request.region[1]
        request.region = None
        request.kv_capacity = 0

    def _emit(self, kind: int, a: int, b: int, c: int) -> None:
        if self.events is not None:
            self.events += (kind, a, b, c)
