"""What each step did, as columns: clocks, batch, seats, tokens."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tinyvllm_lab.engine.events import Kind, Phase
from tinyvllm_lab.engine.log import EventLog
from tinyvllm_lab.engine.state import EngineState

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Table:
    """The kept events as columns, and the step of each.

    Attributes:
        kind, a, b, c: the events, int64 `[events]`.
        step: index of the event's step among the kept steps, int64 `[events]`.
        num_steps: kept steps.
        first_step: number of the first one.
        before: the state before the first event.
    """

    kind: Ints
    a: Ints
    b: Ints
    c: Ints
    step: Ints
    num_steps: int
    first_step: int
    before: EngineState

    @classmethod
    def of(cls, log: EventLog) -> Table:
        """The columns of a log, as of now."""
        kept = log.kept()
        begins = kept.rows[:, 0] == Kind.STEP
        rows = kept.rows if begins.any() else kept.rows[:0]  # without a step there is no time
        kind, a, b, c = np.ascontiguousarray(rows.T)
        step = np.maximum(np.cumsum(begins[: len(rows)]) - 1, 0)
        return cls(kind, a, b, c, step, int(begins.sum()), kept.first_step, kept.oldest)

    def where(self, *kinds: Kind) -> Ints:
        """Places of the events of these kinds, in order."""
        found = self.kind == kinds[0]
        for kind in kinds[1:]:
            found |= self.kind == kind
        return np.flatnonzero(found)

    def per_step(self, events: Ints, weights: Ints | None = None) -> Ints:
        """Events (or the sum of their weights) in each step, int64 `[steps]`."""
        return count_by(self.step[events], self.num_steps, weights)


def count_by(keys: Ints, size: int, weights: Ints | None = None) -> Ints:
    """How often each key from 0 to size - 1 occurs, or the sum of its weights."""
    totals = np.zeros(size, np.int64)
    if weights is None:
        totals += np.bincount(keys, minlength=size)[:size]
    else:
        np.add.at(totals, keys, weights)
    return totals


@dataclass(frozen=True, slots=True)
class StepColumns:
    """One entry for each kept step, int64 `[steps]`.

    Attributes:
        number: of the step in the run.
        start_us, end_us: engine clock at its begin and end.
        waiting: requests in the queue when it began.
        batch_size: requests that computed tokens in it.
        seats: `max_num_seqs` at that time, or the batch size while a smaller limit is drained.
        prefill_tokens, decode_tokens, recomputed_tokens: computed tokens by phase.
        output_tokens: sampled tokens.
        preemptions: requests that lost their seat.
        schedule_us, execute_us: wall time of `schedule()` and of the executor.
    """

    number: Ints
    start_us: Ints
    end_us: Ints
    waiting: Ints
    batch_size: Ints
    seats: Ints
    prefill_tokens: Ints
    decode_tokens: Ints
    recomputed_tokens: Ints
    output_tokens: Ints
    preemptions: Ints
    schedule_us: Ints
    execute_us: Ints

    @property
    def duration_us(self) -> Ints:
        """How long each step took on the engine clock."""
        return self.end_us - self.start_us

    @property
    def computed_tokens(self) -> Ints:
        """Tokens of each step's batch, of all phases."""
        return self.prefill_tokens + self.decode_tokens + self.recomputed_tokens


def step_columns(log: EventLog, table: Table) -> StepColumns:
    """The columns of a log's steps."""
    begins = table.where(Kind.STEP)
    scheduled = table.where(Kind.SCHEDULED)
    batch_size = table.per_step(_one_per_request(table, scheduled))
    prefill, decode, recomputed = (_tokens(table, scheduled, phase) for phase in Phase)
    schedule_us, execute_us = _wall_times(table)
    return StepColumns(
        number=table.first_step + np.arange(table.num_steps),
        start_us=table.c[begins],
        end_us=_ends(table, begins),
        waiting=table.a[begins],
        batch_size=batch_size,
        seats=np.maximum(_seats(log, table), batch_size),
        prefill_tokens=prefill,
        decode_tokens=decode,
        recomputed_tokens=recomputed,
        output_tokens=table.per_step(table.where(Kind.TOKEN)),
        preemptions=table.per_step(table.where(Kind.PREEMPT)),
        schedule_us=schedule_us,
        execute_us=execute_us,
    )


def _ends(table: Table, begins: Ints) -> Ints:
    """End of each step; one that never ended ends when the next begins, or takes no time."""
    starts = table.c[begins]
    ends = np.append(starts[1:], starts[-1:])
    events = table.where(Kind.STEP_END)
    ends[table.step[events]] = table.a[events]
    return ends


def _wall_times(table: Table) -> tuple[Ints, Ints]:
    schedule_us, execute_us = np.zeros((2, table.num_steps), np.int64)
    events = table.where(Kind.STEP_END)
    schedule_us[table.step[events]] = table.b[events]
    execute_us[table.step[events]] = table.c[events]
    return schedule_us, execute_us


def _one_per_request(table: Table, scheduled: Ints) -> Ints:
    """One `SCHEDULED` for each request and step: recomputed tokens are in an event of their own,
    right before the request's other tokens.
    """
    request, step = table.a[scheduled], table.step[scheduled]
    is_first = np.ones(len(scheduled), bool)
    is_first[1:] = (request[1:] != request[:-1]) | (step[1:] != step[:-1])
    return scheduled[is_first]


def _tokens(table: Table, scheduled: Ints, phase: Phase) -> Ints:
    events = scheduled[table.c[scheduled] == phase]
    return table.per_step(events, table.b[events])


def _seats(log: EventLog, table: Table) -> Ints:
    """`max_num_seqs` in each step; without a config, the number of seats that were ever taken."""
    values = log.knob_values
    if log.config is None:
        taken = table.b[table.where(Kind.ADMIT, Kind.RESUME)]
        return np.full(table.num_steps, taken.max(initial=-1) + 1)
    seats = np.full(table.num_steps, log.config.max_num_seqs)
    changes = [(0, knob, value) for knob, value in table.before.knobs.items()]
    events = table.where(Kind.KNOB)
    changes += zip(table.step[events], table.a[events], table.c[events], strict=True)
    for step, knob, value in changes:
        if values[knob] == "max_num_seqs":
            seats[step:] = values[value]
    return seats
