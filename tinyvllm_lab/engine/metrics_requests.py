"""What each request went through, as columns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tinyvllm_lab.engine.events import Kind, Phase, Reason
from tinyvllm_lab.engine.log import EventLog
from tinyvllm_lab.engine.metrics_steps import Ints, StepColumns, Table, count_by

NEVER = -1
"""Stands for a time that did not come."""


@dataclass(frozen=True, slots=True)
class RequestColumns:
    """One entry for each request whose arrival is in the log, int64 `[requests]`.

    Times are on the engine clock in microseconds, `NEVER` if it did not happen.

    Attributes:
        number: of the request in the run, ascending.
        prompt_tokens, max_tokens: as it was submitted.
        arrival_us: the arrival that the log's side table tells, or else the begin of the step in
            which it joined the queue.
        admitted_us: begin of the step in which it got a seat for the first time.
        first_token_us, last_token_us: end of the steps that brought these tokens.
        finish_us: end of the step in which it ended; begin of the step if it was aborted or timed
            out, because that is read at the top of a step.
        reason: an `events.Reason`, or -1.
        output_tokens, preemptions, recomputed_tokens: counts.
        hit_tokens, resumed_hit_tokens: tokens found in the prefix cache when it was admitted, and
            when it came back after preemptions.
        preempted_us: time that it waited to come back after preemptions.
        tokens_from: where its tokens begin in `token_us`.
        token_us: end of the step of every output token, by request, int64 `[output tokens]`.
    """

    number: Ints
    prompt_tokens: Ints
    max_tokens: Ints
    arrival_us: Ints
    admitted_us: Ints
    first_token_us: Ints
    last_token_us: Ints
    finish_us: Ints
    reason: Ints
    output_tokens: Ints
    preemptions: Ints
    recomputed_tokens: Ints
    hit_tokens: Ints
    resumed_hit_tokens: Ints
    preempted_us: Ints
    tokens_from: Ints
    token_us: Ints

    def gaps_us(self) -> Ints:
        """All gaps between neighbouring tokens of one request, int64 `[gaps]`."""
        gaps = np.diff(self.token_us)
        starts = self.tokens_from[(self.output_tokens > 0) & (self.tokens_from > 0)]
        return np.delete(gaps, starts - 1)


class _Reader:
    """Finds events by request. Events of requests whose arrival was dropped are left out."""

    def __init__(self, table: Table, steps: StepColumns) -> None:
        self.table, self.steps = table, steps
        submits = table.where(Kind.SUBMIT)
        self.number, first = np.unique(table.a[submits], return_index=True)
        self.submits = submits[first]
        self.size = len(self.number)

    def find(self, events: Ints, requests: Ints) -> tuple[Ints, Ints]:
        """The events of known requests, and the place of each one's request."""
        if not self.size:
            return events[:0], events[:0]
        places = np.minimum(np.searchsorted(self.number, requests), self.size - 1)
        known = self.number[places] == requests
        return events[known], places[known]

    def by_kind(self, *kinds: Kind) -> tuple[Ints, Ints]:
        """The events of these kinds, whose first integer is the request."""
        events = self.table.where(*kinds)
        return self.find(events, self.table.a[events])

    def start_us(self, events: Ints) -> Ints:
        """Begin of the steps of some events."""
        return self.steps.start_us[self.table.step[events]]

    def end_us(self, events: Ints) -> Ints:
        """End of the steps of some events."""
        return self.steps.end_us[self.table.step[events]]

    def first(self, places: Ints, values: Ints) -> Ints:
        """The first value of each request, int64 `[requests]`."""
        return self.last(places[::-1], values[::-1])

    def last(self, places: Ints, values: Ints) -> Ints:
        """The last value of each request, int64 `[requests]`."""
        column = np.full(self.size, NEVER)
        column[places] = values
        return column


def request_columns(log: EventLog, table: Table, steps: StepColumns) -> RequestColumns:
    """The columns of a log's requests."""
    reader = _Reader(table, steps)
    tokens, places = reader.by_kind(Kind.TOKEN)
    order = np.argsort(places, kind="stable")
    token_us, places = reader.end_us(tokens[order]), places[order]
    output_tokens = count_by(places, reader.size)
    preempts = reader.by_kind(Kind.PREEMPT)[1]
    return RequestColumns(
        reader.number,
        table.b[reader.submits],
        table.c[reader.submits],
        _arrivals(log, reader),
        _admitted(reader),
        reader.first(places, token_us),
        reader.last(places, token_us),
        *_finished(reader),
        output_tokens,
        count_by(preempts, reader.size),
        _recomputed(reader),
        _hits(reader, Kind.ADMIT),
        _hits(reader, Kind.RESUME),
        _preempted_us(reader),
        np.cumsum(output_tokens) - output_tokens,
        token_us,
    )


def _arrivals(log: EventLog, reader: _Reader) -> Ints:
    arrivals = reader.start_us(reader.submits)
    side_table = dict(log.requests)
    for place, number in enumerate(reader.number.tolist()):
        known = side_table.get(number, {}).get("arrival_us")
        if known is not None:
            arrivals[place] = known
    return arrivals


def _admitted(reader: _Reader) -> Ints:
    """First seat: by admission, or as a fork, which gets it at the end of its parent's step."""
    admits, places = reader.by_kind(Kind.ADMIT)
    admitted = reader.first(places, reader.start_us(admits))
    table = reader.table
    forks = table.where(Kind.FORK)
    forks = forks[table.c[forks] >= 0]
    forks, places = reader.find(forks, table.b[forks])
    admitted[places] = reader.end_us(forks)
    return admitted


def _finished(reader: _Reader) -> tuple[Ints, Ints]:
    """Time and reason of the end."""
    events, places = reader.by_kind(Kind.FINISH)
    reasons = reader.table.b[events]
    at_top = (reasons == Reason.ABORT) | (reasons == Reason.TIMEOUT)
    times = np.where(at_top, reader.start_us(events), reader.end_us(events))
    return reader.last(places, times), reader.last(places, reasons)


def _recomputed(reader: _Reader) -> Ints:
    events, places = reader.by_kind(Kind.SCHEDULED)
    again = reader.table.c[events] == Phase.RECOMPUTE
    return count_by(places[again], reader.size, reader.table.b[events[again]])


def _hits(reader: _Reader, kind: Kind) -> Ints:
    events, places = reader.by_kind(kind)
    return count_by(places, reader.size, reader.table.c[events])


def _preempted_us(reader: _Reader) -> Ints:
    """From each preemption to the step that resumes, or the end."""
    kinds = (Kind.PREEMPT, Kind.RESUME, Kind.FINISH)
    events, places = reader.by_kind(*kinds)
    order = np.argsort(places, kind="stable")
    events, places = events[order], places[order]
    lost = reader.table.kind[events] == Kind.PREEMPT
    same = np.append(places[1:] == places[:-1], False)
    began = np.flatnonzero(lost & same)  # the next event of the same request ends the wait
    waits = reader.start_us(events[began + 1]) - reader.start_us(events[began])
    return count_by(places[began], reader.size, waits)
