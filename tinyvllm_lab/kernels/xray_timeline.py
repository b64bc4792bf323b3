"""A block of an x-ray, step by step: what its warps do together, and who waits for whom.

Each thread's steps are as they were logged. In which order the warps of a block come is up to a
GPU, so here they take turns: each that does not wait does its next request in every step. Lanes of
a warp that part are brought together again as soon as they can be.
"""

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from heapq import heappop, heappush

from tinyvllm_lab.kernels.findings import Finding, Index
from tinyvllm_lab.kernels.xray_data import NUM_BANKS, SECTOR_BYTES, ThreadSteps, XRay

WARP = 32
MAX_LANE_STEPS = 150_000
"""So many reads, writes, barriers, ... of one block are put in order; later ones are left out."""

_STUCK = {"deadlock", "divergent_barrier", "early_exit", "divergent_warp_op", "time_limit"}
_BANK_BYTES = 4
_Request = tuple[int, int]  # the request's number, and the array


@dataclass(frozen=True)
class WarpStep:
    """What lanes of one warp do at the same time.

    Attributes:
        tick: in which step of the block, from 0.
        warp: number of the warp in the block.
        kind: "read", "write", "atomic", "barrier" or "warp_op".
        line: index into `XRay.lines`.
        array: index into `XRay.arrays`; -1 for barriers and warp operations.
        size: bytes that a lane moves.
        lanes: those that take part, 0 to 31, in rising order.
        offsets: of each of them, bytes from the array's start.
    """

    tick: int
    warp: int
    kind: str
    line: int
    array: int
    size: int
    lanes: tuple[int, ...]
    offsets: tuple[int, ...]

    def sectors(self) -> dict[int, int]:
        """Numbers of the 32-byte sectors touched in global memory -> bytes of them asked for."""
        asked = {byte for offset in self.offsets for byte in range(offset, offset + self.size)}
        return dict(sorted(Counter(byte // SECTOR_BYTES for byte in asked).items()))

    def passes(self) -> int:
        """How often the banks of shared memory must be asked; 1 is free of conflicts.

        A warp moves 128 bytes in one pass: 8 or 16 bytes a lane go in halves or quarters of it,
        which alone counts as no conflict.
        """
        at_once = WARP * _BANK_BYTES // max(_BANK_BYTES, self.size)
        words: dict[tuple[int, int], set[int]] = defaultdict(set)
        for lane, offset in zip(self.lanes, self.offsets, strict=True):
            for word in range(offset // _BANK_BYTES, -(-(offset + self.size) // _BANK_BYTES)):
                words[lane // at_once, word % NUM_BANKS].add(word)
        turns = {turn for turn, _ in words}
        depth = [max(len(w) for (t, _), w in words.items() if t == turn) for turn in turns]
        return sum(depth) - len(depth) + 1


@dataclass(frozen=True)
class Timeline:
    """The first logged block of an x-ray in steps.

    Attributes:
        steps: in order of tick, then warp.
        ticks: number of steps of the block.
        opens: ticks at whose beginning a barrier lets its threads go on.
        ends: for each thread of the block the tick of its last step; -1 if it has none.
        stuck: whether the kernel ended while threads waited.
        left_out: reads, writes, barriers, ... beyond `MAX_LANE_STEPS`.
    """

    steps: list[WarpStep]
    ticks: int
    opens: list[int]
    ends: list[int]
    stuck: bool
    left_out: int

    def tick_of(self, xray: XRay, finding: Finding) -> int:
        """When the finding's thread did what was found, or else what it did last."""
        thread = linear(finding.place.thread, xray.block)
        mine = [s for s in self.steps if s.warp == thread // WARP and thread % WARP in s.lanes]
        for step in reversed(mine):
            line = xray.lines[step.line]
            name = xray.arrays[step.array].name if step.array >= 0 else ""
            offset = step.offsets[step.lanes.index(thread % WARP)]
            here = (line.number, name, offset) == (finding.line, finding.array, finding.offset)
            if here and line.file == finding.place.file:
                return step.tick
        return max(self.ends[thread], 0)


def linear(index: Index, size: Index) -> int:
    """The linear number of an x, y, z index: x runs fastest."""
    return index[0] + size[0] * (index[1] + size[1] * index[2])


def timeline(xray: XRay, most: int = MAX_LANE_STEPS) -> Timeline:
    """Put the steps of the x-ray's first logged block in order.

    Args:
        xray: any; one without steps gives an empty timeline.
        most: leave out what comes after so many steps of threads.
    """
    order = _line_order(xray)
    x, y, z = xray.block
    warps = [_Warp(number, order) for number in range(-(-x * y * z // WARP))]
    for thread in xray.steps:
        number = linear(thread.thread, xray.block)
        warps[number // WARP].add(number % WARP, thread)
    block = _Block(warps)
    block.run(most)
    ends = [warp.ends.get(lane, -1) for warp in warps for lane in range(WARP)][: x * y * z]
    stuck = any(f.kind in _STUCK and f.place.block == _shown(xray) for f in xray.findings)
    if not stuck and block.waits():
        block.opens.append(block.tick)
    total = sum(len(thread.kinds) for thread in xray.steps)
    return Timeline(block.steps, block.tick, block.opens, ends, stuck, total - block.done)


def _shown(xray: XRay) -> Index | None:
    return xray.steps[0].block if xray.steps else None


def _line_order(xray: XRay) -> list[int]:
    """Each line's place in the program: inlined code comes where it was called."""

    def path(number: int) -> list[tuple[str, int]]:
        line = xray.lines[number]
        calls = [call.rpartition(":") for call in reversed(line.called_from)]
        return [*((file, int(at)) for file, _, at in calls), (line.file, line.number)]

    places = sorted(range(len(xray.lines)), key=path)
    return sorted(range(len(places)), key=places.__getitem__)


@dataclass
class _Warp:
    """The lanes of one warp, each at its next request."""

    number: int
    order: list[int]
    threads: dict[int, ThreadSteps] = field(default_factory=dict)
    at: dict[int, int] = field(default_factory=dict)
    ends: dict[int, int] = field(default_factory=dict)
    expected: Counter[_Request] = field(default_factory=Counter)
    here: dict[_Request, list[int]] = field(default_factory=lambda: defaultdict(list))
    ready: list[tuple[int, _Request]] = field(default_factory=list)
    blocked: list[int] = field(default_factory=list)

    def add(self, lane: int, thread: ThreadSteps) -> None:
        self.threads[lane], self.at[lane] = thread, 0
        self.expected.update(zip(thread.requests, thread.arrays, strict=True))

    def begin(self) -> None:
        """All lanes come to their first request."""
        for lane in sorted(self.threads):
            self.arrive(lane)

    def arrive(self, lane: int) -> None:
        """The lane comes to its next request, and may be the last one that was missing."""
        thread, at = self.threads[lane], self.at[lane]
        if at == len(thread.kinds):
            return
        request = thread.requests[at], thread.arrays[at]
        self.here[request].append(lane)
        if len(self.here[request]) == self.expected[request]:
            heappush(self.ready, (self.order[thread.lines[at]], request))

    def step(self, tick: int) -> WarpStep | None:
        """Do the next request: one that all its lanes have come to, if there is one."""
        if not self.here:
            return None
        request = heappop(self.ready)[1] if self.ready else self._incomplete()
        lanes = sorted(self.here.pop(request))
        self.expected[request] -= len(lanes)
        step = self._describe(tick, lanes)
        for lane in lanes:
            self.at[lane] += 1
            self.ends[lane] = tick
            if step.kind != "barrier":
                self.arrive(lane)
        if step.kind == "barrier":
            self.blocked += lanes
        return step

    def _describe(self, tick: int, lanes: list[int]) -> WarpStep:
        """What lanes are about to do."""
        first, at = self.threads[lanes[0]], self.at[lanes[0]]
        what = first.kinds[at], first.lines[at], first.arrays[at], first.sizes[at]
        offsets = (self.threads[lane].offsets[self.at[lane]] for lane in lanes)
        return WarpStep(tick, self.number, *what, tuple(lanes), tuple(offsets))

    def _incomplete(self) -> _Request:
        def place(request: _Request) -> tuple[int, _Request]:
            lane = self.here[request][0]
            return self.order[self.threads[lane].lines[self.at[lane]]], request

        return min(self.here, key=place)

    def has_more(self) -> bool:
        """Whether some lane has steps left."""
        return any(at < len(self.threads[lane].kinds) for lane, at in self.at.items())

    def release(self) -> None:
        """A barrier is open."""
        lanes, self.blocked = self.blocked, []
        for lane in lanes:
            self.arrive(lane)


@dataclass
class _Block:
    """All warps in step, and the barriers between them."""

    warps: list[_Warp]
    steps: list[WarpStep] = field(default_factory=list)
    opens: list[int] = field(default_factory=list)
    tick: int = 0
    done: int = 0

    def run(self, most: int) -> None:
        """Go on until nothing is left to do, or `most` has been done."""
        for warp in self.warps:
            warp.begin()
        while self.done < most:
            found = [step for warp in self.warps if (step := warp.step(self.tick))]
            if not found:
                return
            self.steps += found
            self.done += sum(len(step.lanes) for step in found)
            self.tick += 1
            if self.all_wait() and any(warp.has_more() for warp in self.warps):
                self.open_barrier()

    def all_wait(self) -> bool:
        """Whether nobody can go on before a barrier opens."""
        return self.waits() and not any(warp.here for warp in self.warps)

    def waits(self) -> bool:
        """Whether somebody is at a barrier."""
        return any(warp.blocked for warp in self.warps)

    def open_barrier(self) -> None:
        """All who wait go on."""
        self.opens.append(self.tick)
        for warp in self.warps:
            warp.release()
