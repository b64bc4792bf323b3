"""An x-ray as the browser gets it: plain values, and all steps of a block as compressed columns."""

from __future__ import annotations

import re
import zlib
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from tinyvllm_lab.kernels.findings import Finding
from tinyvllm_lab.kernels.xray_data import SECTOR_BYTES, MemoryAccess, XRay
from tinyvllm_lab.kernels.xray_timeline import Timeline, WarpStep, linear, timeline

KINDS = ("read", "write", "atomic", "barrier", "warp_op")
"""The numbers of `static/xray_run.js`: their places here."""
_ABOVE, _BELOW = 12, 8  # most lines shown around those that something happened on
_GAP = 4  # fewer lines in between are shown
_HEAD = re.compile(r"^(extern|__global__|__device__|template|static|\w+ \w+\()")


@dataclass(frozen=True)
class Excerpt:
    """Lines `first`, `first + 1`, ... of a file."""

    file: str
    first: int
    lines: list[str]


class XRayRun:
    """One x-ray with its block in steps.

    Args:
        label: what it is called beside others.
        xray: from `kernels.xray`, or a recorded one.
    """

    def __init__(self, label: str, xray: XRay) -> None:
        self.label, self.xray = label, xray
        self.timeline: Timeline = timeline(xray)
        self.source = excerpts(xray)

    @property
    def start(self) -> int:
        """The step to look at first: of a finding, else the one that wastes most."""
        here = [f for f in self.xray.findings if self.is_here(f)]
        if here:
            return self.timeline.tick_of(self.xray, here[0])
        worst = max(self.timeline.steps, key=self._waste, default=None)
        return worst.tick if worst else 0

    def is_here(self, finding: Finding) -> bool:
        """Whether the finding's thread is in the block whose steps are known."""
        steps = self.xray.steps
        return bool(steps) and finding.place.block == steps[0].block

    def _waste(self, step: WarpStep) -> tuple[int, int, int]:
        """Transfers beyond those that are needed; of equals, the first one that moves most."""
        if step.array < 0:
            return 0, 0, -step.tick
        if self.is_shared(step):
            return step.passes() - 1, 0, -step.tick
        sectors = step.sectors()
        asked = sum(sectors.values())
        return len(sectors) - -(-asked // SECTOR_BYTES), asked, -step.tick

    def is_shared(self, step: WarpStep) -> bool:
        """Whether the step goes to shared memory."""
        return step.array >= 0 and self.xray.arrays[step.array].space == "shared"

    def to_page(self) -> dict[str, Any]:
        """What `static/xray_run.js` unpacks."""
        xray, line = self.xray, self.timeline
        return {
            "label": self.label,
            "kernel": xray.kernel,
            "grid": list(xray.grid),
            "block": list(xray.block),
            "shared": xray.shared,
            "logged": xray.logged_blocks,
            "shown": linear(xray.steps[0].block, xray.grid) if xray.steps else 0,
            "lines": [asdict(one) for one in xray.lines],
            "arrays": [asdict(one) for one in xray.arrays],
            "accesses": [asdict(one) for one in xray.accesses],
            "activity": [[one.warp_executions, one.active_lanes] for one in xray.activity],
            "totals": asdict(xray.totals),
            "findings": [self._finding(one) for one in xray.findings],
            "source": [asdict(one) for one in self.source],
            "ticks": line.ticks,
            "opens": line.opens,
            "ends": line.ends,
            "stuck": line.stuck,
            "left_out": line.left_out,
            "dropped": xray.events_dropped,
            "start": self.start,
            "steps": len(line.steps),
            "data": pack(line.steps),
        }

    def _finding(self, finding: Finding) -> dict[str, Any]:
        here = self.is_here(finding)
        places = [finding.place, *([finding.other] if finding.other else [])]
        return {
            "kind": finding.kind.replace("_", " "),
            "message": finding.message,
            "file": finding.place.file,
            "line": finding.line,
            "other_line": finding.other.line if finding.other else 0,
            "tick": self.timeline.tick_of(self.xray, finding) if here else 0,
            "here": here,
            "threads": [
                linear(place.thread, self.xray.block)
                for place in places
                if here and place.block == finding.place.block
            ],
        }


def pack(steps: list[WarpStep]) -> bytes:
    """Columns of 32-bit numbers: tick, warp, kind, line, array, size, lanes as bits, then offsets.

    Offsets follow each other lane by lane and step by step, each as the difference to the last.
    """
    rows = [
        (s.tick, s.warp, KINDS.index(s.kind), s.line, s.array, s.size, sum(1 << n for n in s.lanes))
        for s in steps
    ]
    columns = np.array(rows, np.int64).reshape(len(rows), 7).T.astype(np.uint32)
    offsets = np.array([o for s in steps for o in s.offsets], np.int64)
    differences = np.diff(offsets, prepend=0).astype(np.int32)
    return zlib.compress(columns.astype("<u4").tobytes() + differences.astype("<i4").tobytes(), 9)


def excerpts(xray: XRay) -> list[Excerpt]:
    """The parts of the source that something happened in, with the functions around them."""
    found = []
    for file, lines in xray.sources.items():
        touched = {number for name, number in _told(xray) if name == file and number}
        shown = sorted({n for number in touched for n in _around(lines, number)})
        found += [Excerpt(file, run[0], [lines[n - 1] for n in run]) for run in _runs(shown)]
    return sorted(found, key=lambda one: (one.file != _main_file(xray), one.file, one.first))


def _told(xray: XRay) -> set[tuple[str, int]]:
    """File and number of the lines with a cost, a barrier, a warp operation or a finding."""
    costs = {access.line for access in xray.accesses}
    costs |= {one.line for one in xray.activity if one.barriers or one.warp_operations}
    lines = [xray.lines[n] for n in costs] or xray.lines
    places = [place for f in xray.findings for place in (f.place, f.other) if place]
    return {(one.file, one.number) for one in lines} | {(p.file, p.line) for p in places}


def _main_file(xray: XRay) -> str:
    return next(iter(xray.sources), "")


def _around(lines: list[str], number: int) -> range:
    """From the head of the function that a line is in to its end."""
    first = last = number
    while first > 1 and number - first < _ABOVE and not _HEAD.match(lines[first - 1]):
        first -= 1
    while last < len(lines) and last - number < _BELOW and not lines[last - 1].startswith("}"):
        last += 1
    return range(first, last + 1)


def _runs(numbers: list[int]) -> list[list[int]]:
    """Numbers in runs without a hole; a small hole is filled."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number - runs[-1][-1] <= _GAP:
            runs[-1] += range(runs[-1][-1] + 1, number + 1)
        else:
            runs.append([number])
    return runs


def access_text(access: MemoryAccess) -> str:
    """The cost of one access in a few words."""
    if access.space == "shared":
        return f"{_number(access.bank_conflicts)} pass{'es' * (access.bank_conflicts != 1)}"
    return f"{_number(access.sectors)} sect · {access.bytes_used:.0%}"


def worth(access: MemoryAccess) -> float:
    """1: no byte and no pass more than needed; towards 0: waste."""
    if access.space == "shared":
        return 1 / access.bank_conflicts
    return max(1.0, access.bytes_used * access.sectors) / access.sectors


def _number(value: float) -> str:
    return f"{value:.0f}" if value == round(value) else f"{value:.1f}"
