"""KV memory over time: reserved, used and wasted token slots (chapter 10).

It is looked at once a step, when the plan is made and the executor computes: after `schedule()`,
before any token is appended or any request leaves. The tokens of the step count as used.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tinyvllm_lab.engine.events import Kind
from tinyvllm_lab.engine.log import EventLog
from tinyvllm_lab.engine.metrics_steps import Ints, Table

_BLOCKS = (Kind.BLOCK_ALLOC, Kind.BLOCK_SHARE, Kind.BLOCK_UNSHARE, Kind.BLOCK_FREE)
_REGIONS = (Kind.REGION_ALLOC, Kind.REGION_GROW, Kind.REGION_MOVE, Kind.REGION_FREE)
_TOKENS = (
    Kind.ADMIT, Kind.RESUME, Kind.FORK, Kind.SCHEDULED, Kind.PREEMPT, Kind.FINISH,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class KVColumns:
    """Token slots of KV memory, one entry a step, int64 `[steps]`.

    Attributes:
        capacity: slots that requests can hold in all; 0 if the log has no config.
        reserved: slots that requests hold: blocks (a shared one once) or regions.
        used: of these, slots that hold a token's keys and values (shared ones once).
        internal: `reserved - used`: held, but empty.
        external: free slots outside the largest hole, contiguous allocators only: enough of them
            may be free, and yet no large region fits.
    """

    capacity: int
    reserved: Ints
    used: Ints
    internal: Ints
    external: Ints

    @property
    def wasted(self) -> Ints:
        """`internal + external`."""
        return self.internal + self.external


def kv_columns(log: EventLog, table: Table) -> KVColumns:
    """The columns of a log. Without a KV cache they are all 0."""
    config = log.config
    block_size = config.block_size if config else 1
    capacity = config.num_usable_blocks * block_size if config and config.use_kv_cache else 0
    holds_memory = table.where(*_BLOCKS, *_REGIONS).size or table.before.ref_counts
    if not (table.num_steps and holds_memory):
        zeros = np.zeros((4, table.num_steps), np.int64)
        return KVColumns(capacity, *zeros)
    moments = _moments(table)
    blocks, again = _blocks(table)
    lengths = _region_lengths(table)
    reserved = (np.cumsum(blocks) * block_size + np.cumsum(lengths))[moments]
    # A token in a block that two tables hold was counted for both requests.
    used = (np.cumsum(_held_tokens(table)) - np.cumsum(again) * block_size)[moments]
    used = np.clip(used, 0, reserved)
    external = _external(table, moments, capacity) if lengths.any() else np.zeros_like(used)
    return KVColumns(capacity, reserved, used, reserved - used, external)


def _moments(table: Table) -> Ints:
    """The last event of each step's plan: the one before the first token, fork or end."""
    ends = np.append(table.where(Kind.STEP)[1:], len(table.kind))
    after = table.where(Kind.TOKEN, Kind.FORK, Kind.STEP_END)[::-1]
    ends[table.step[after]] = after  # the first one of each step wins
    return ends - 1


def _blocks(table: Table) -> tuple[Ints, Ints]:
    """Change of used blocks, and of references beyond a block's first, at each event."""
    events = table.where(*_BLOCKS)
    used, again = np.zeros((2, len(table.kind)), np.int64)
    kinds = table.kind[events]
    used[events[kinds == Kind.BLOCK_ALLOC]] = 1
    used[events[kinds == Kind.BLOCK_FREE]] = -1
    again[events[kinds == Kind.BLOCK_UNSHARE]] = -1
    shares, revives = _shares(table, events)
    used[shares[revives]] = 1
    again[shares[~revives]] = 1
    references = table.before.ref_counts
    used[0] += len(references)
    again[0] += sum(references.values()) - len(references)
    return used, again


def _shares(table: Table, events: Ints) -> tuple[Ints, Ints]:
    """The `BLOCK_SHARE` events, and which of them took a cached block out of the free queue."""
    order = events[np.argsort(table.a[events], kind="stable")]
    blocks, kinds = table.a[order], table.kind[order]
    new_block = np.append(True, blocks[1:] != blocks[:-1])
    after_free = np.append(False, kinds[:-1] == Kind.BLOCK_FREE)
    was_held = np.isin(blocks, list(table.before.ref_counts))
    free = np.where(new_block, ~was_held, after_free)
    is_share = kinds == Kind.BLOCK_SHARE
    return order[is_share], free[is_share]


def _region_lengths(table: Table) -> Ints:
    """Change of reserved slots at each region event."""
    change = np.zeros(len(table.kind), np.int64)
    lengths = _regions_before(table)
    change[0] = sum(length for _, length in lengths.values())
    known = {request: length for request, (_, length) in lengths.items()}
    for at in table.where(Kind.REGION_ALLOC, Kind.REGION_GROW, Kind.REGION_FREE).tolist():
        request = int(table.a[at])
        length = 0 if table.kind[at] == Kind.REGION_FREE else int(table.c[at])
        change[at] += length - known.get(request, 0)
        known[request] = length
    return change


def _regions_before(table: Table) -> dict[int, tuple[int, int]]:
    records = table.before.requests.items()
    return {index: record.region for index, record in records if record.region is not None}


def _held_tokens(table: Table) -> Ints:
    """Change, at each event, of the computed tokens of all requests that have a seat."""
    change = np.zeros(len(table.kind), np.int64)
    records = table.before.requests
    held = {index: record.num_computed for index, record in records.items()}
    change[0] = sum(held[index] for index in table.before.slots.values())
    events = table.where(*_TOKENS)
    scheduled = events[table.kind[events] == Kind.SCHEDULED]
    change[scheduled] = table.b[scheduled]
    _leave_and_return(table, events, held, change)
    return change


def _leave_and_return(table: Table, events: Ints, held: dict[int, int], change: Ints) -> None:
    """Put into `change` what appears and disappears when requests take and lose their seats."""
    sums = _Running(table, held)
    prompts = table.where(Kind.SUBMIT)
    prompt_of = dict(zip(table.a[prompts].tolist(), table.b[prompts].tolist(), strict=True))
    places = events[table.kind[events] != Kind.SCHEDULED]
    rows = np.stack([table.kind, table.a, table.b, table.c], axis=1)[places]
    for at, (kind, a, b, c) in zip(places.tolist(), rows.tolist(), strict=True):
        if kind in (Kind.ADMIT, Kind.RESUME):
            change[at] += sums.add(a, at, c)
        elif kind == Kind.FORK and c >= 0:
            change[at] += sums.add(b, at, prompt_of.get(b, 1) - 1)
        elif kind == Kind.PREEMPT:
            change[at] -= sums.take(a, at, keep=bool(c))
        elif kind == Kind.FINISH and c >= 0:
            change[at] -= sums.take(a, at, keep=False)


class _Running:
    """Computed tokens of each request at any event: scheduled ones by prefix sums, and a base."""

    def __init__(self, table: Table, held: dict[int, int]) -> None:
        scheduled = table.where(Kind.SCHEDULED)
        order = scheduled[np.argsort(table.a[scheduled], kind="stable")]
        requests, starts = np.unique(table.a[order], return_index=True)
        stops = np.append(starts[1:], len(order))
        self._events = order
        self._sums = np.append(0, np.cumsum(table.b[order]))
        self._range = dict(
            zip(requests.tolist(), zip(starts.tolist(), stops.tolist(), strict=True), strict=True)
        )
        self._base = dict(held)

    def _scheduled(self, request: int, at: int) -> int:
        start, stop = self._range.get(request, (0, 0))
        end = start + int(np.searchsorted(self._events[start:stop], at))
        return int(self._sums[end] - self._sums[start])

    def add(self, request: int, at: int, tokens: int) -> int:
        """The request takes a seat with so many more tokens; returns all that it has."""
        self._base[request] = self._base.get(request, 0) + tokens
        return self._base[request] + self._scheduled(request, at)

    def take(self, request: int, at: int, keep: bool) -> int:
        """The request loses its seat; returns its tokens, which are gone unless kept (swap)."""
        scheduled = self._scheduled(request, at)
        total = self._base.get(request, 0) + scheduled
        if not keep:
            self._base[request] = -scheduled
        return total


def _external(table: Table, moments: Ints, capacity: int) -> Ints:
    """Free slots outside the largest hole, at each moment."""
    regions = _regions_before(table)
    events = table.where(*_REGIONS).tolist()
    external = np.zeros(len(moments), np.int64)
    at, waste = 0, _outside_largest_hole(regions, capacity)
    for step, moment in enumerate(moments.tolist()):
        before = at
        while at < len(events) and events[at] <= moment:
            _move_region(table, events[at], regions)
            at += 1
        if at > before:
            waste = _outside_largest_hole(regions, capacity)
        external[step] = waste
    return external


def _move_region(table: Table, at: int, regions: dict[int, tuple[int, int]]) -> None:
    request, b, c = int(table.a[at]), int(table.b[at]), int(table.c[at])
    if table.kind[at] == Kind.REGION_FREE:
        regions.pop(request, None)
    elif table.kind[at] == Kind.REGION_MOVE:
        regions[request] = (c, regions.get(request, (0, 0))[1])
    else:
        regions[request] = (b, c)


def _outside_largest_hole(regions: dict[int, tuple[int, int]], capacity: int) -> int:
    ordered = [*sorted(regions.values()), (capacity, 0)]
    holes, end = [], 0
    for start, length in ordered:
        holes.append(max(start - end, 0))
        end = max(end, start + length)
    return sum(holes) - max(holes)
