"""Turn the runtime's numbers into findings: names for arrays, lines for addresses, sentences."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tinyvllm_lab.errors import KernelError
from tinyvllm_lab.kernels.arguments import Geometry
from tinyvllm_lab.kernels.cpu.arrays import Array
from tinyvllm_lab.kernels.cpu.lines import LineTable
from tinyvllm_lab.kernels.cpu.structs import Report
from tinyvllm_lab.kernels.findings import Finding, Index, Place

# The order is that of `enum class Kind` in runtime/report.h.
KINDS = (
    "none",
    "deadlock",
    "divergent_barrier",
    "early_exit",
    "bad_warp_mask",
    "divergent_warp_op",
    "inactive_source",
    "trap",
    "out_of_bounds",
    "misaligned",
    "read_only_write",
    "race",
    "uninitialised",
    "time_limit",
    "crash",
    "stack_overflow",
    "bad_index",
    "division_by_zero",
)
_ACCESS = ("read", "write", "atomic update")
_NULL_PAGES = 1 << 20  # bytes from address 0 on that nothing is in
_FAR = 1 << 40  # bytes: no index of an array comes so far


@dataclass(frozen=True)
class Context:
    """What is needed to read one launch's reports."""

    kernel: str
    launch: Geometry
    lines: LineTable
    load_address: int
    arrays: Sequence[Array] = ()
    time_limit: float = 0.0


def index_of(linear: int, size: Index) -> Index:
    """The x, y, z of a linear index: x runs fastest."""
    return linear % size[0], linear // size[0] % size[1], linear // (size[0] * size[1])


def read_reports(reports: Sequence[Report], context: Context) -> list[Finding]:
    """Findings in the order they happened; the places of one deadlock are put together."""
    pcs = [pc for r in reports for pc in (r.pc, r.other_pc) if pc]
    context.lines.look_up([pc - context.load_address for pc in pcs])
    waiting = [r for r in reports if KINDS[r.kind] == "deadlock"]
    findings = [_finding(r, context) for r in reports if KINDS[r.kind] != "deadlock"]
    return findings + ([_deadlock(waiting, context)] if waiting else [])


def raise_findings(findings: Sequence[Finding]) -> None:
    """Raise a `KernelError` that tells all findings, if there are any."""
    if findings:
        raise KernelError("\n".join(finding.message for finding in findings))


def _place(context: Context, block: int, thread: int, pc: int) -> Place:
    chain = context.lines.chain(pc - context.load_address if pc else 0)
    return Place(
        index_of(block, context.launch.grid),
        index_of(thread, context.launch.block),
        Path(chain[0].path).name,
        chain[0].number,
        chain[0].text,
        tuple(map(str, chain[1:])),
    )


def _finding(report: Report, context: Context) -> Finding:
    kind = KINDS[report.kind]
    place = _place(context, report.block, report.thread, report.pc)
    other = None
    if report.other_thread >= 0:
        other = _place(context, report.other_block, report.other_thread, report.other_pc)
    if kind == "early_exit" and other:  # the line is where the other one waits
        place, other = other, place
    finding = Finding(kind, context.kernel, "", place, other, count=report.count)
    if kind == "bad_index":
        finding = replace(finding, array=_indexed_array(place.text, context))
    if report.address >= _NULL_PAGES:
        array = _nearest(context.arrays, report)
        if array:
            offset = report.address - array.begin
            finding = replace(finding, array=array.name, offset=offset)
    return replace(
        finding, message=f"{context.kernel}: {_SENTENCES[kind](finding, report, context)}"
    )


def _indexed_array(line: str, context: Context) -> str:
    """The one array of constant size that the line indexes; "" if it is not clear which."""
    indexed = set(re.findall(r"(\w+)\s*\[", line))
    pointers = {name for a in context.arrays if a.space == "global" for name in a.name.split("/")}
    names = indexed - pointers
    return names.pop() if len(names) == 1 else ""


def _nearest(arrays: Sequence[Array], report: Report) -> Array | None:
    """The array that was meant: the one this line used before, else the nearest, if one is near."""
    if report.region >= 0:
        return arrays[report.region] if report.region < len(arrays) else None

    def distance(array: Array) -> int:
        return max(array.begin - report.address, report.address - array.end, 0)

    named = [a for a in arrays if a.space != "module" and distance(a) < _FAR]
    return min(named, key=distance, default=None)


def _deadlock(waiting: Sequence[Report], context: Context) -> Finding:
    places = [_place(context, r.block, r.thread, r.pc) for r in waiting]
    told = "; ".join(
        f"{r.value} thread{'s' * (r.value > 1)} at {r.text.decode()} ({place})"
        for r, place in zip(waiting, places, strict=True)
    )
    message = f"{context.kernel}: deadlock, all threads wait and none can go on: {told}."
    other = places[1] if len(places) > 1 else None
    return Finding("deadlock", context.kernel, message, places[0], other)


# ---- one sentence for each kind -----------------------------------------------------------------
Sentence = Callable[[Finding, Report, Context], str]


def _where(finding: Finding) -> str:
    if finding.offset is None:
        return "unknown memory"
    return f"{finding.array!r} at byte {finding.offset}"


def _who(place: Place | None) -> str:
    return f"thread {place.thread} of block {place.block}" if place else "another thread"


def _out_of_bounds(f: Finding, r: Report, context: Context) -> str:
    array = next((a for a in context.arrays if a.name == f.array), None)
    where = f"address {r.address:#x}, near no array"
    if r.address < _NULL_PAGES:
        where = f"a null pointer, at byte {r.address}"
    if array and f.offset is not None:
        size = array.end - array.begin
        past = (
            f"{f.offset + r.size - size} bytes past the end"
            if f.offset >= 0
            else f"{-f.offset} bytes before the start"
        )
        where = f"{f.array!r} at byte {f.offset}, {past} of its {size} bytes"
        if f.offset >= 0 and size == 0:
            where = f"{f.array!r}, which has no bytes"
    return f"out-of-bounds {_ACCESS[r.access]} of {r.size} bytes: {where}, by {f.place}."


def _bad_index(f: Finding, r: Report, context: Context) -> str:
    c_type = r.text.decode().strip("'")
    named = f"{f.array!r}, a {c_type}" if f.array else f"an array of type {c_type}"
    return f"out-of-bounds index {r.value} of {named}, by {f.place}."


def _race(f: Finding, r: Report, context: Context) -> str:
    missing = "no barrier between them"
    if r.block != r.other_block:
        missing = "nothing that orders the two blocks"
    elif r.thread // 32 == r.other_thread // 32:
        missing = "neither a barrier nor a __syncwarp between them"
    return (
        f"race on {_where(f)}: {_ACCESS[r.access]} by {f.place}, and before it "
        f"{_ACCESS[r.other_access]} by {f.other}, with {missing}."
    )


_SENTENCES: dict[str, Sentence] = {
    "divergent_barrier": lambda f, r, c: (
        f"divergent barrier: {f.place} came to one __syncthreads, but {f.other} waits at another."
    ),
    "early_exit": lambda f, r, c: (
        f"early exit: {f.place} waits for its whole group, but {_who(f.other)} has returned."
    ),
    "bad_warp_mask": lambda f, r, c: (
        f"bad warp mask {r.value & 0xFFFFFFFF:#010x}: it lacks the bit of the caller, {f.place}."
    ),
    "divergent_warp_op": lambda f, r, c: (
        f"divergent warp operation: {f.place} is in another operation than {f.other}, "
        "under the same mask."
    ),
    "inactive_source": lambda f, r, c: (
        f"shuffle from lane {r.value}, which takes no part in it, by {f.place}."
    ),
    "trap": lambda f, r, c: f"{r.text.decode()} failed in {f.place}.",
    "out_of_bounds": _out_of_bounds,
    "misaligned": lambda f, r, c: (
        f"misaligned {_ACCESS[r.access]} of {r.size} bytes: {_where(f)}, by {f.place}."
    ),
    "read_only_write": lambda f, r, c: f"write to read-only {_where(f)}, by {f.place}.",
    "race": _race,
    "uninitialised": lambda f, r, c: (
        f"read of uninitialised shared memory: nobody in this block wrote {_where(f)} before "
        f"{f.place} read it."
    ),
    "time_limit": lambda f, r, c: (
        f"still running after {c.time_limit:g} s, an endless loop or a spin-wait: {f.place}."
    ),
    "crash": lambda f, r, c: f"crashed ({r.text.decode()}) in or after {f.place}.",
    "stack_overflow": lambda f, r, c: (
        f"stack overflow, the local arrays are too large or the recursion too deep: {f.place}."
    ),
    "bad_index": _bad_index,
    "division_by_zero": lambda f, r, c: f"integer division by zero in {f.place}.",
}
