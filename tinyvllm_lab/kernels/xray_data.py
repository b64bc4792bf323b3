"""What an x-ray of a kernel shows: plain data, ready for a panel, a table or JSON."""

from dataclasses import asdict, dataclass, field
from typing import Any

from tinyvllm_lab.kernels.findings import Finding, Index

SECTOR_BYTES = 32  # what a GPU moves at least between memory and its caches
NUM_BANKS = 32  # of shared memory, each 4 bytes wide


@dataclass(frozen=True)
class SourceLine:
    """A line of source code that events belong to; `called_from` names inlined calls."""

    file: str
    number: int
    text: str
    called_from: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.file}:{self.number}"


@dataclass(frozen=True)
class MemoryAccess:
    """One load, store or atomic in the source, and what it costs.

    A *request* is what the lanes of one warp do together at one time: the k-th time that each of
    them comes to the instruction since the last barrier or warp operation.

    Attributes:
        line: index into `XRay.lines`.
        array: name of the array.
        space: "global" or "shared".
        operation: "read", "write" or "atomic".
        access_bytes: bytes that one lane moves (4 for a float, 16 for a float4).
        requests: number of warp requests seen.
        lanes: active lanes in a request, on average.
        sectors: 32-byte sectors in a request, on average (global memory; 4 is ideal for floats).
        bytes_used: share of the sectors' bytes that some lane asked for, 0 to 1 (global memory).
        bank_conflicts: passes in a request, on average: 1 is free of conflicts (shared memory).
        worst_bank_conflict: the most passes of any request (shared memory).
    """

    line: int
    array: str
    space: str
    operation: str
    access_bytes: int
    requests: int
    lanes: float
    sectors: float = 0.0
    bytes_used: float = 1.0
    bank_conflicts: float = 0.0
    worst_bank_conflict: int = 0


@dataclass(frozen=True)
class LineActivity:
    """Who ran a line, and what waited there.

    Attributes:
        line: index into `XRay.lines`.
        warp_executions: how often a warp came by, with any of its lanes.
        active_lanes: lanes that took part, on average: 32 means no divergence.
        runs_by_thread: how often each thread of the first logged block ran it.
        barriers: how often a thread waited at a barrier there.
        warp_operations: how often a thread took part in a shuffle, vote, ... there.
    """

    line: int
    warp_executions: int
    active_lanes: float
    runs_by_thread: tuple[int, ...]
    barriers: int
    warp_operations: int


@dataclass(frozen=True)
class ThreadSteps:
    """What one thread did, in order, as columns of equal length.

    Attributes:
        block: index of the block.
        thread: index of the thread in it.
        kinds: "read", "write", "atomic", "barrier" or "warp_op".
        lines: indices into `XRay.lines`.
        arrays: indices into `XRay.arrays`; -1 for barriers and warp operations.
        offsets: bytes from the array's start.
        sizes: bytes.
        requests: numbers of the warp's requests; lanes that share one did it together.
    """

    block: Index
    thread: Index
    kinds: list[str]
    lines: list[int]
    arrays: list[int]
    offsets: list[int]
    sizes: list[int]
    requests: list[int]


@dataclass(frozen=True)
class ArrayInfo:
    """An array of the kernel: name, "global" or "shared", and length in bytes."""

    name: str
    space: str
    nbytes: int


@dataclass(frozen=True)
class Totals:
    """Sums over the logged blocks.

    Attributes:
        global_requests: warp requests to global memory.
        global_bytes_asked: bytes that lanes asked for.
        global_bytes_moved: bytes of all sectors touched, without caches.
        shared_requests: warp requests to shared memory.
        bank_conflict_passes: passes beyond the first that they cost.
        barriers: barriers passed, counted once a block.
        warp_operations: shuffles, votes, ..., counted once a warp.
    """

    global_requests: int
    global_bytes_asked: int
    global_bytes_moved: int
    shared_requests: int
    bank_conflict_passes: int
    barriers: int
    warp_operations: int


@dataclass(frozen=True)
class XRay:
    """One launch of a kernel, seen from inside.

    Attributes:
        kernel: name.
        grid: number of blocks (x, y, z).
        block: number of threads in a block (x, y, z).
        shared: bytes of dynamic shared memory.
        logged_blocks: linear indices of the blocks that were looked at.
        lines: the source lines that anything happened on.
        arrays: the arrays that were touched.
        accesses: cost of each memory instruction, in the order of the source.
        activity: who ran each line.
        totals: sums.
        steps: what each thread of the first logged block did.
        findings: bugs the checker saw on the way.
        events: how many events were logged.
        events_dropped: how many more there were; if not 0, the numbers are of a part.
        sources: file name -> its lines, for display.
    """

    kernel: str
    grid: Index
    block: Index
    shared: int
    logged_blocks: list[int]
    lines: list[SourceLine]
    arrays: list[ArrayInfo]
    accesses: list[MemoryAccess]
    activity: list[LineActivity]
    totals: Totals
    steps: list[ThreadSteps]
    findings: list[Finding] = field(default_factory=list)
    events: int = 0
    events_dropped: int = 0
    sources: dict[str, list[str]] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """A dict of plain values, as recorded x-rays hold it."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "XRay":
        """A recorded x-ray: the inverse of `to_json`, after JSON turned tuples into lists."""
        parts: dict[str, Any] = {
            **{"lines": SourceLine, "arrays": ArrayInfo, "accesses": MemoryAccess},
            **{"activity": LineActivity, "steps": ThreadSteps},
        }
        rebuilt: dict[str, Any] = {
            name: [_rebuild(kind, d) for d in data[name]] for name, kind in parts.items()
        }
        rebuilt["totals"] = Totals(**data["totals"])
        rebuilt["findings"] = [Finding.from_json(d) for d in data["findings"]]
        sizes = {name: tuple(data[name]) for name in ("grid", "block")}
        return cls(**{**data, **sizes, **rebuilt})

    def __str__(self) -> str:
        """A table: one row for each memory instruction."""
        head = f"{self.kernel}  grid {self.grid}  block {self.block}"
        rows = [_row(self.lines[access.line], access) for access in self.accesses]
        full = [f"the log was full: {self.events_dropped:,} events are not counted"]
        return "\n".join([head, *rows, *full[: self.events_dropped], *map(str, self.findings)])


def _row(line: SourceLine, access: MemoryAccess) -> str:
    start = f"{line!s:>20}  {access.operation:6} {access.array:16} {access.lanes:4.1f} lanes  "
    if access.space == "shared":
        return f"{start}{access.bank_conflicts:5.2f} passes (worst {access.worst_bank_conflict})"
    return f"{start}{access.sectors:5.2f} sectors, {access.bytes_used:4.0%} of their bytes used"


# The fields that are tuples in the data classes and lists in JSON.
_TUPLES = {"called_from", "runs_by_thread", "block", "thread"}


def _rebuild(kind: Any, data: dict[str, Any]) -> Any:
    return kind(**{k: tuple(v) if k in _TUPLES else v for k, v in data.items()})
