"""From the event log of a checked launch to an x-ray, with numpy.

The log has one record for each load, store, atomic, barrier, warp operation and basic block that
a thread came to. What a GPU does for a warp at once is found by counting: the k-th time that each
lane came to an instruction since it was last in step with the others.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tinyvllm_lab.kernels.cpu.checked import CheckedRun
from tinyvllm_lab.kernels.cpu.lines import Line
from tinyvllm_lab.kernels.cpu.reports import Context, index_of
from tinyvllm_lab.kernels.xray_data import (
    NUM_BANKS,
    SECTOR_BYTES,
    ArrayInfo,
    LineActivity,
    MemoryAccess,
    SourceLine,
    ThreadSteps,
    Totals,
    XRay,
)

# Mirrors `simt::Event` in cpu/runtime/check.h.
EVENT = np.dtype(
    [
        ("address", "u8"),
        ("pc", "u4"),
        ("block", "u4"),
        ("thread", "u2"),
        ("size", "u1"),
        ("kind", "u1"),
        ("region", "i2"),
        ("barrier_epoch", "u2"),
    ]
)
_KINDS = ("read", "write", "atomic", "barrier", "warp_op", "path")
_BARRIER, _WARP_OP, _PATH = 3, 4, 5
_WARP = 32
_BANK_BYTES = 4
_PACKED_BITS = 36  # offsets up to 64 GiB, and 2**27 requests
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class _Log:
    """Events with what they belong to: `line` (index), `request` (id of the warp's request)."""

    events: NDArray[Any]
    line: Ints
    request: Ints
    lines: list[SourceLine]


def analyse(run: CheckedRun, shared: int, sources: dict[str, list[str]]) -> XRay:
    """Work out everything an x-ray shows.

    Args:
        run: a checked launch with events.
        shared: bytes of dynamic shared memory of the launch.
        sources: file name -> lines, kept for display.
    """
    context = run.context
    log = _prepare(np.frombuffer(run.events, EVENT), context)
    regions, first = np.unique(log.events["region"], return_index=True)
    touched = [int(r) for r in regions[np.argsort(first)] if r >= 0]  # in the order of first use
    numbers = {region: i for i, region in enumerate(touched)}
    arrays = [context.arrays[r] for r in touched]
    accesses, totals = _accesses(log, context)
    return XRay(
        kernel=context.kernel,
        grid=context.launch.grid,
        block=context.launch.block,
        shared=shared,
        logged_blocks=[int(b) for b in np.unique(log.events["block"])],
        lines=log.lines,
        arrays=[ArrayInfo(a.name, a.space, a.end - a.begin) for a in arrays],
        accesses=accesses,
        activity=_activity(log, context),
        totals=totals,
        steps=_steps(log, context, numbers),
        findings=run.findings,
        events=len(log.events),
        events_dropped=run.events_dropped,
        sources=sources,
    )


# ---- lines and requests -------------------------------------------------------------------------
def _prepare(events: NDArray[Any], context: Context) -> _Log:
    constants = [i for i, a in enumerate(context.arrays) if a.space == "module"]
    events = events[~np.isin(events["region"], constants)]
    context.lines.look_up(np.unique(events["pc"]).tolist())
    in_source = [pc for pc in np.unique(events["pc"]) if context.lines.chain(int(pc))[0].number]
    events = events[np.isin(events["pc"], in_source)]
    pcs, which = np.unique(events["pc"], return_inverse=True)
    chains = [context.lines.chain(int(pc)) for pc in pcs]
    by_place = {_place_of(chain): chain for chain in chains}
    order = [by_place[place] for place in sorted(by_place)]
    number = {place: i for i, place in enumerate(sorted(by_place))}
    line_of_pc = np.array([number[_place_of(chain)] for chain in chains], np.int64)
    line = line_of_pc[which] if len(events) else np.zeros(0, np.int64)
    return _Log(events, line, _requests(events), [_source_line(chain) for chain in order])


def _place_of(chain: tuple[Line, ...]) -> tuple[str, int, int, str]:
    """Lines come in the order of the source; one that is inlined in several places, by these."""
    first = chain[0]
    return Path(first.path).name, first.number, len(chain), " ".join(map(str, chain[1:]))


def _source_line(chain: tuple[Line, ...]) -> SourceLine:
    first = chain[0]
    return SourceLine(Path(first.path).name, first.number, first.text, tuple(map(str, chain[1:])))


def _requests(events: NDArray[Any]) -> Ints:
    """Number the warps' requests: lanes of a warp that come to a pc for the k-th time in a row."""
    lane_key = events["block"].astype(np.int64) << 16 | events["thread"]
    in_step = _count_within(lane_key, events["kind"] == _WARP_OP) << 16
    in_step |= events["barrier_epoch"].astype(np.int64)
    occurrence = _occurrence(lane_key, events["pc"].astype(np.int64), in_step)
    warp = events["block"].astype(np.int64) << 8 | events["thread"] // _WARP
    keys = np.stack([events["pc"].astype(np.int64), warp, in_step, occurrence])
    return _number_columns(keys)


def _number_columns(keys: Ints) -> Ints:
    """A number for each column, equal for equal columns."""
    order = np.lexsort(keys)
    changed = np.any(keys[:, order[1:]] != keys[:, order[:-1]], axis=0)
    numbers = np.zeros(keys.shape[1], np.int64)
    numbers[order[1:]] = np.cumsum(changed)
    return numbers


def _count_within(group: Ints, counted: NDArray[np.bool_]) -> Ints:
    """For each event: how many counted events its group had before it."""
    order = np.argsort(group, kind="stable")
    hits = counted[order].astype(np.int64)
    before = np.cumsum(hits) - hits
    starts = np.ones(len(group), bool)
    starts[1:] = group[order][1:] != group[order][:-1]
    base = np.maximum.accumulate(np.where(starts, before, 0))
    result = np.empty(len(group), np.int64)
    result[order] = before - base
    return result


def _occurrence(*keys: Ints) -> Ints:
    """For each event: how often the same combination of keys came before."""
    group = _number_columns(np.stack(keys))
    return _count_within(group, np.ones(len(group), bool))


# ---- memory -------------------------------------------------------------------------------------
def _accesses(log: _Log, context: Context) -> tuple[list[MemoryAccess], Totals]:
    memory = np.flatnonzero((log.events["kind"] < _BARRIER) & (log.events["region"] >= 0))
    events, line, request = log.events[memory], log.line[memory], log.request[memory]
    begins = np.array([a.begin for a in context.arrays], np.uint64)
    offset = (events["address"] - begins[events["region"]]).astype(np.int64)
    keys = np.stack([events["kind"], events["size"], events["region"], line]).astype(np.int64)
    group = _number_columns(keys)
    rows, sums = [], np.zeros(5, np.int64)
    for g in range(group.max(initial=-1) + 1):
        pick = group == g
        one = _Group(events[pick], int(line[pick][0]), _renumber(request[pick]), offset[pick])
        row, numbers = one.measure(context)
        rows.append(row)
        sums += numbers
    rows.sort(key=lambda row: (row.line, row.array, row.operation))
    requests, asked, moved, shared_requests, conflicts = (int(n) for n in sums)
    barriers, warp_operations = _synchronisations(log)
    return rows, Totals(
        requests, asked, moved, shared_requests, conflicts, barriers, warp_operations
    )


def _renumber(ids: Ints) -> Ints:
    return np.unique(ids, return_inverse=True)[1].astype(np.int64)


@dataclass(frozen=True)
class _Group:
    """All events of one source line on one array with one operation and size."""

    events: NDArray[Any]
    line: int
    request: Ints  # 0 .. requests - 1
    offset: Ints  # bytes from the array's start

    @property
    def size(self) -> int:
        return int(self.events["size"][0])

    def measure(self, context: Context) -> tuple[MemoryAccess, Ints]:
        """The row of the table, and what it adds to the totals."""
        array = context.arrays[self.events["region"][0]]
        requests = int(self.request.max()) + 1
        common = (
            *(self.line, array.name, array.space, _KINDS[self.events["kind"][0]]),
            *(self.size, requests, len(self.events) / requests),
        )
        if array.space == "shared":
            passes = self._bank_passes(requests)
            row = MemoryAccess(
                *common, bank_conflicts=float(passes.mean()), worst_bank_conflict=int(passes.max())
            )
            return row, np.array([0, 0, 0, requests, int((passes - 1).sum())])
        sectors = self._count_sectors()
        used = self._distinct_bytes() / (sectors * SECTOR_BYTES)
        asked = len(self.events) * self.size
        row = MemoryAccess(*common, sectors=sectors / requests, bytes_used=min(1.0, used))
        return row, np.array([requests, asked, sectors * SECTOR_BYTES, 0, 0])

    def _count_sectors(self) -> int:
        """32-byte pieces under each request; the array's start counts as aligned."""
        first, last = self.offset // SECTOR_BYTES, (self.offset + self.size - 1) // SECTOR_BYTES
        sectors = [_pack(self.request, first), _pack(self.request, last)]
        return len(np.unique(np.concatenate(sectors)))

    def _distinct_bytes(self) -> int:
        return len(np.unique(_pack(self.request, self.offset))) * self.size

    def _bank_passes(self, requests: int) -> Ints:
        """Passes that each request takes: lanes that want different words of one bank queue up.

        A warp moves 128 bytes in one pass: with 8 (16) bytes a lane, half (a quarter) of it goes
        at a time, and that alone counts as no conflict.
        """
        lanes_at_once = _WARP * _BANK_BYTES // max(_BANK_BYTES, self.size)
        turn = self.request * _WARP + self.events["thread"] % _WARP // lanes_at_once
        first = self.offset // _BANK_BYTES
        words = [_pack(turn, first + i) for i in range(max(1, self.size // _BANK_BYTES))]
        wanted = np.unique(np.concatenate(words))
        bank = (wanted >> _PACKED_BITS) * NUM_BANKS + wanted % NUM_BANKS
        banks, depth = np.unique(bank, return_counts=True)
        longest = np.zeros(requests * _WARP, np.int64)
        np.maximum.at(longest, banks // NUM_BANKS, depth)
        by_request = longest.reshape(requests, _WARP)
        return by_request.sum(axis=1) - (by_request > 0).sum(axis=1) + 1


def _pack(high: Ints, low: Ints) -> Ints:
    """Two numbers in one, so that pairs sort and compare fast; `low` must be small."""
    return high << _PACKED_BITS | low


def _synchronisations(log: _Log) -> tuple[int, int]:
    kind, events = log.events["kind"], log.events
    barriers = np.stack([events["block"], events["barrier_epoch"]])[:, kind == _BARRIER]
    return np.unique(barriers, axis=1).shape[1], len(np.unique(log.request[kind == _WARP_OP]))


# ---- who ran what -------------------------------------------------------------------------------
def _activity(log: _Log, context: Context) -> list[LineActivity]:
    first_block = int(log.events["block"].min(initial=0))
    threads = context.launch.threads_per_block
    return [_line_activity(log, number, first_block, threads) for number in range(len(log.lines))]


def _line_activity(log: _Log, number: int, first_block: int, threads: int) -> LineActivity:
    here = np.flatnonzero(log.line == number)
    events, request = log.events[here], log.request[here]
    pcs, counts = np.unique(events["pc"], return_counts=True)
    busiest = events["pc"] == pcs[counts.argmax()]  # a line has several instructions
    executions = len(np.unique(request[busiest]))
    mine = events["thread"][busiest & (events["block"] == first_block)]
    return LineActivity(
        number,
        executions,
        int(busiest.sum()) / executions,
        tuple(np.bincount(mine, minlength=threads).tolist()),
        int((events["kind"] == _BARRIER).sum()),
        int((events["kind"] == _WARP_OP).sum()),
    )


def _steps(log: _Log, context: Context, numbers: dict[int, int]) -> list[ThreadSteps]:
    if not len(log.events):
        return []
    block = int(log.events["block"].min())
    wanted = (log.events["block"] == block) & (log.events["kind"] != _PATH)
    log = _Log(log.events[wanted], log.line[wanted], _renumber(log.request[wanted]), log.lines)
    place = index_of(block, context.launch.grid)
    return [
        _thread_steps(log, mine, context, numbers, place, int(thread))
        for thread in np.unique(log.events["thread"])
        for mine in [log.events["thread"] == thread]
    ]


def _thread_steps(
    log: _Log,
    mine: NDArray[np.bool_],
    context: Context,
    numbers: dict[int, int],
    block: tuple[int, int, int],
    thread: int,
) -> ThreadSteps:
    events = log.events[mine]
    regions = events["region"].tolist()
    begins = [context.arrays[r].begin if r >= 0 else 0 for r in regions]
    return ThreadSteps(
        block,
        index_of(thread, context.launch.block),
        [_KINDS[k] for k in events["kind"].tolist()],
        log.line[mine].tolist(),
        [numbers.get(r, -1) for r in regions],
        [a - b for a, b in zip(events["address"].tolist(), begins, strict=True)],
        events["size"].tolist(),
        log.request[mine].tolist(),
    )
