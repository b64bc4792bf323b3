"""A run as a trace for Perfetto (https://ui.perfetto.dev) or chrome://tracing.

Source of the format: "Trace Event Format" of the Chromium project; times are microseconds. The
process `seats` has a thread per `seq_slot`: a slice is a request's stay, named after the request
(the viewer colours slices by name, so a request keeps its colour), and inside it lie its prefill,
decode and recompute phases. The process `engine` has a thread with a slice per step, instants for
preemptions and refusals, and counters for waiting and running requests and used KV memory.
"""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tinyvllm_lab.engine.events import Kind, Phase, Reason
from tinyvllm_lab.engine.log import EventLog
from tinyvllm_lab.engine.metrics_kv import kv_columns
from tinyvllm_lab.engine.metrics_steps import StepColumns, Table, step_columns

SEATS, ENGINE = 1, 2
"""Process ids in the trace."""

Event = dict[str, Any]

_SHOWN = (
    Kind.ADMIT, Kind.RESUME, Kind.FORK, Kind.SCHEDULED, Kind.PREEMPT, Kind.FINISH, Kind.REJECT,
)  # fmt: skip
_PHASES = {int(phase): phase.name.lower() for phase in Phase}
_REASONS = {int(reason): reason.name.lower() for reason in Reason}
_SCHEDULED = int(Kind.SCHEDULED)


def save_trace(log: EventLog, path: str | os.PathLike[str]) -> Path:
    """Write a log as a trace; a name that ends in `.gz` is compressed.

    Raises:
        OSError: the file cannot be written.
    """
    path = Path(path)
    data = json.dumps(trace(log), separators=(",", ":")).encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def trace(log: EventLog) -> dict[str, Any]:
    """The trace as an object for JSON: `traceEvents` and `displayTimeUnit`."""
    table = Table.of(log)
    steps = step_columns(log, table)
    seats = _Seats(log, steps)
    shown = table.where(*_SHOWN)
    columns = (table.kind, table.a, table.b, table.c, table.step)
    for kind, a, b, c, step in zip(*(column[shown].tolist() for column in columns), strict=True):
        seats.read(kind, a, b, c, step)
    events = [*seats.close(), *_steps(steps), *_counters(log, table, steps)]
    names = [*_process(SEATS, "seats"), *_process(ENGINE, "engine"), *seats.names()]
    return {"traceEvents": names + events, "displayTimeUnit": "ms", "otherData": dict(log.info)}


def _process(pid: int, name: str) -> Iterator[Event]:
    yield {"ph": "M", "pid": pid, "name": "process_name", "args": {"name": name}}
    yield {"ph": "M", "pid": pid, "name": "process_sort_index", "args": {"sort_index": pid}}


def _slice(pid: int, tid: int, name: str, start: int, end: int, **args: Any) -> Event:
    return {
        "ph": "X", "pid": pid, "tid": tid, "name": name, "ts": start, "dur": end - start,
        "args": args,
    }  # fmt: skip


class _Seats:
    """Turns events into slices of seats. Open slices are kept until their request leaves."""

    def __init__(self, log: EventLog, steps: StepColumns) -> None:
        self._log = log
        self._start, self._end = steps.start_us.tolist(), steps.end_us.tolist()
        self._stays: dict[int, tuple[int, int, Event]] = {}  # request -> seat, begin, details
        self._phases: dict[int, Event] = {}  # request -> its open phase
        self._events: list[Event] = []
        self._seats: set[int] = set()
        for slot, request in log.oldest_state().slots.items():
            self._sit(request, slot, self._start[0] if self._start else 0)

    def read(self, kind: int, a: int, b: int, c: int, step: int) -> None:
        """One event of the log, in order."""
        start = self._start[step]
        if kind == _SCHEDULED:
            self._compute(a, b, c, step)
        elif kind in (Kind.ADMIT, Kind.RESUME):
            self._sit(a, b, start, hit_tokens=c, resumed=kind == Kind.RESUME)
        elif kind == Kind.FORK and c >= 0:
            self._sit(b, c, self._end[step], parent=self._name(a))
        elif kind == Kind.PREEMPT:
            self._rise(a, start, left="preempted", swapped=bool(c))
            self._instant(f"preempt {self._name(a)}", start)
        elif kind == Kind.FINISH:
            at_top = b in (Reason.ABORT, Reason.TIMEOUT)
            self._rise(a, start if at_top else self._end[step], left=_REASONS.get(b, str(b)))
        elif kind == Kind.REJECT:
            self._instant(f"refuse {self._name(a)}", start)

    def close(self) -> list[Event]:
        """All slices; whoever still sits stays until the end of the last step."""
        for request in list(self._stays):
            self._rise(request, self._end[-1], left="still running")
        return self._events

    def names(self) -> Iterator[Event]:
        """Names of the threads."""
        for slot in sorted(self._seats):
            thread = {"ph": "M", "pid": SEATS, "tid": slot}
            yield {**thread, "name": "thread_name", "args": {"name": f"seat {slot}"}}
            yield {**thread, "name": "thread_sort_index", "args": {"sort_index": slot}}

    def _name(self, request: int) -> str:
        return self._log.requests.get(request, {}).get("id") or f"request-{request}"

    def _sit(self, request: int, slot: int, now: int, **details: Any) -> None:
        self._seats.add(slot)
        self._stays[request] = (slot, now, details)

    def _rise(self, request: int, now: int, **details: Any) -> None:
        self._end_phase(request)
        stay = self._stays.pop(request, None)
        if stay is not None:
            slot, begin, args = stay
            stay_slice = _slice(SEATS, slot, self._name(request), begin, now, **args, **details)
            self._events.append(stay_slice)

    def _compute(self, request: int, tokens: int, phase: int, step: int) -> None:
        """Prolong the request's open phase, or end it and begin another."""
        name = _PHASES.get(phase, f"phase {phase}")
        start, end = self._start[step], self._end[step]
        open_phase = self._phases.get(request)
        same_step = open_phase is not None and open_phase["ts"] + open_phase["dur"] == end
        if open_phase is not None and same_step:  # recomputed tokens, then the rest
            open_phase["args"]["tokens"] += tokens
            return
        if open_phase is None or open_phase["name"] != name:
            self._end_phase(request)
            slot = self._stays[request][0] if request in self._stays else 0
            open_phase = _slice(SEATS, slot, name, start, start, tokens=0, steps=0)
            self._phases[request] = open_phase
        open_phase["dur"] = end - open_phase["ts"]
        open_phase["args"]["tokens"] += tokens
        open_phase["args"]["steps"] += 1

    def _end_phase(self, request: int) -> None:
        if request in self._phases:
            self._events.append(self._phases.pop(request))

    def _instant(self, name: str, now: int) -> None:
        self._events.append({"ph": "i", "pid": ENGINE, "tid": 0, "s": "p", "name": name, "ts": now})


def _steps(steps: StepColumns) -> Iterator[Event]:
    yield {"ph": "M", "pid": ENGINE, "tid": 0, "name": "thread_name", "args": {"name": "steps"}}
    columns = (
        steps.number, steps.start_us, steps.end_us, steps.batch_size, steps.computed_tokens,
        steps.schedule_us, steps.execute_us,
    )  # fmt: skip
    for row in zip(*(column.tolist() for column in columns), strict=True):
        number, start, end, batch_size, tokens, schedule_us, execute_us = row
        yield _slice(
            ENGINE, 0, "step", start, end, step=number, requests=batch_size, tokens=tokens,
            schedule_us=schedule_us, execute_us=execute_us,
        )  # fmt: skip


def _counters(log: EventLog, table: Table, steps: StepColumns) -> Iterator[Event]:
    kv = kv_columns(log, table)
    tracks = (
        ("waiting requests", {"waiting": steps.waiting}),
        ("running requests", {"running": steps.batch_size}),
        ("KV memory in token slots", {"used": kv.used, "wasted": kv.internal}),
    )
    for name, columns in tracks:
        values = zip(*(column.tolist() for column in columns.values()), strict=True)
        for start, row in zip(steps.start_us.tolist(), values, strict=True):
            args = dict(zip(columns, row, strict=True))
            yield {"ph": "C", "pid": ENGINE, "name": name, "ts": start, "args": args}
