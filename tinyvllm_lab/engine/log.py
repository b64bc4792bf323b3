"""`EventLog`: everything that happens in the engine, as columns of integers.

The engine appends to a plain list and flushes it once a step, so an event costs about a tenth of a
microsecond and no object:

    buffer = log.buffer
    buffer += (Kind.TOKEN, request, token_id, num_output)  # any number of times in a step
    log.flush()  # once, when the step is over

Whoever reads (widgets, metrics, exports, checks) reads what was flushed, from any thread.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from struct import error as StructError
from struct import pack_into
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tinyvllm_lab.engine.config import EngineConfig
from tinyvllm_lab.engine.events import Kind
from tinyvllm_lab.engine.log_event import KIND_OF_VALUE, Event
from tinyvllm_lab.engine.state import EngineState
from tinyvllm_lab.errors import ConfigError, EngineError

WIDTH = 4
"""Integers of one event: kind, a, b, c."""

_STEP, _FINISH, _REJECT = int(Kind.STEP), int(Kind.FINISH), int(Kind.REJECT)
_INITIAL_EVENTS = 4096


class Kept(NamedTuple):
    """What a log holds at one moment, to store it or to make another log of it."""

    first_event: int
    first_step: int
    rows: NDArray[np.int64]
    """int64 `[events, 4]`"""
    oldest: EngineState
    """The state before the first event."""


class EventLog:
    """An append-only log of events with its side tables.

    Steps and events are numbered from the start of the run, also when old ones were dropped: the
    log holds steps `first_step .. num_steps - 1` and events `first_event .. num_events - 1`. An
    event belongs to the step whose `STEP` was the last before it; events before the first `STEP`
    count to step 0.

    Args:
        config: the engine's settings at the start of the run.
        capacity: most events to keep (at 64 bytes of memory each); None keeps all. When a flush
            goes beyond it, the oldest whole steps are dropped, requests that ended in them are
            forgotten, and `oldest_state` takes their place, at about 1 us for each dropped event.
            The newest step is always kept.

    Attributes:
        buffer: events not flushed yet, four integers each. The list object never changes.
        requests: what is known of each request besides its events, by its running number; see
            `add_request`.
        knob_values: names and values that `KNOB` events point to; see `intern_knob`.
        info: anything about the run that JSON can hold: model, hardware, `kv_bytes_per_token`.
        texts: text of the token ids that occur, for panels that show text: token id -> text.

    Raises:
        ConfigError: the capacity is not a positive number.
    """

    def __init__(self, config: EngineConfig | None = None, capacity: int | None = None) -> None:
        if capacity is not None and capacity < 1:
            raise ConfigError(f"The log's capacity is {capacity}.", expected="1 event or more")
        self.config = config
        self.capacity = capacity
        self.buffer: list[int] = []
        self.requests: dict[int, dict[str, Any]] = {}
        self.knob_values: list[str | int | float | bool] = []
        self.info: dict[str, Any] = {}
        self.texts: dict[int, str] = {}
        self._knob_index: dict[tuple[type, Any], int] = {}
        # Rows are written once and never changed, and growing allocates a new array: a view that
        # another thread took earlier stays valid.
        self._rows = np.empty((_INITIAL_EVENTS, WIDTH), np.int64)  # [allocated, 4]
        self._origin = 0  # number of the event in row 0
        self._first = 0
        self._count = 0
        self._step_starts: list[int] = []  # of the kept steps, and of the first dropped ones
        self._first_start = 0  # the kept steps begin here in the list
        self._dropped_starts = 0  # steps no longer in the list
        self._oldest = EngineState()
        self._lock = Lock()

    # Writing

    def flush(self) -> None:
        """Move the buffer into the columns, and empty it in place.

        Raises:
            EngineError: the buffer holds a broken event; it is left as it is.
        """
        buffer = self.buffer
        if not buffer:
            return
        with self._lock:
            start, count = self._count, len(buffer) // WIDTH
            if start + count - self._origin > len(self._rows):
                self._make_room(count)
            self._write(start - self._origin, buffer)
            self._step_starts += _step_starts(buffer, start)
            self._count = start + count
            if self.capacity is not None and self._count - self._first > self.capacity:
                self._drop_steps(self.capacity)
        buffer.clear()

    def add_request(
        self,
        index: int,
        request_id: str,
        *,
        prompt_tokens: int,
        max_tokens: int,
        priority: int = 0,
        parent: int | None = None,
        arrival_us: int | None = None,
        **more: Any,
    ) -> None:
        """Note what the events do not say of a request.

        Args:
            index: the request's running number in the events.
            request_id: the caller's name for it.
            prompt_tokens: length of its prompt.
            max_tokens: most output tokens it asked for.
            priority: its priority; a smaller number goes first.
            parent: the request it was forked from.
            arrival_us: engine clock when it arrived. None: when the step that admitted it to the
                queue began.
            more: anything else that JSON can hold.
        """
        self.requests[index] = {
            "id": request_id,
            "prompt_tokens": prompt_tokens,
            "max_tokens": max_tokens,
            "priority": priority,
            "parent": parent,
            "arrival_us": arrival_us,
            **more,
        }

    def intern_knob(self, value: str | int | float | bool) -> int:
        """The place of a knob's name or value in `knob_values`, added if it is new."""
        key = (type(value), value)  # 1, 1.0 and True are equal, but not the same setting
        index = self._knob_index.get(key)
        if index is None:
            index = self._knob_index[key] = len(self.knob_values)
            self.knob_values.append(value)
        return index

    # Reading

    @property
    def first_event(self) -> int:
        """Number of the oldest event that is kept."""
        return self._first

    @property
    def first_step(self) -> int:
        """Number of the oldest step that is kept."""
        return self._dropped_starts + self._first_start

    @property
    def num_events(self) -> int:
        """Events flushed since the start of the run."""
        return self._count

    @property
    def num_steps(self) -> int:
        """Steps flushed since the start of the run."""
        return self._dropped_starts + len(self._step_starts)

    def as_array(self) -> NDArray[np.int64]:
        """All kept events as a read-only view, int64 `[num_events - first_event, 4]`."""
        with self._lock:
            return self._view(self._first, self._count)

    def rows(self, start: int, stop: int) -> NDArray[np.int64]:
        """The events `start .. stop - 1`, by number, as a read-only view, int64 `[events, 4]`.

        Raises:
            IndexError: the log does not hold them all.
        """
        with self._lock:
            if not self._first <= start <= stop <= self._count:
                kept = f"{self._first} to {self._count - 1}"
                raise IndexError(f"events {start} to {stop - 1} are not in the log ({kept})")
            return self._view(start, stop)

    def step_of(self, event: int) -> int:
        """The step that an event belongs to, by its number."""
        with self._lock:
            place = bisect_right(self._step_starts, event, lo=self._first_start)
            return self._dropped_starts + max(place - 1, self._first_start)

    def step_range(self, step: int) -> range:
        """The numbers of the events of a step.

        Raises:
            IndexError: the log does not hold the step.
        """
        with self._lock:
            if not self.first_step <= step < self.num_steps:
                kept = f"{self.first_step} to {self.num_steps - 1}"
                raise IndexError(f"step {step} is not in the log ({kept})")
            place = step - self._dropped_starts
            starts = self._step_starts
            stop = starts[place + 1] if place + 1 < len(starts) else self._count
            return range(starts[place] if step > self.first_step else self._first, stop)

    def events(self, step: int) -> Iterator[Event]:
        """The events of a step, for people."""
        numbers = self.step_range(step)
        rows = self.rows(numbers.start, numbers.stop).tolist()
        for number, (kind, a, b, c) in zip(numbers, rows, strict=True):
            yield Event(number, step, KIND_OF_VALUE.get(kind, kind), a, b, c)

    def oldest_state(self) -> EngineState:
        """A copy of the state before the oldest kept event."""
        with self._lock:
            return self._oldest.copy()

    def kept(self) -> Kept:
        """Everything that is kept, as of one moment; `EventLog.of` is the way back."""
        with self._lock:
            rows = self._view(self._first, self._count)
            return Kept(self._first, self.first_step, rows, self._oldest.copy())

    @classmethod
    def of(cls, kept: Kept, config: EngineConfig | None = None) -> EventLog:
        """A log that holds these events; its side tables are empty."""
        log = cls(config)
        first, rows = kept.first_event, np.array(kept.rows, np.int64)
        log._rows, log._origin, log._first, log._count = rows, first, first, first + len(rows)
        log._step_starts = (np.flatnonzero(rows[:, 0] == _STEP) + first).tolist()
        log._dropped_starts, log._oldest = kept.first_step, kept.oldest
        return log

    # Columns

    def _view(self, start: int, stop: int) -> NDArray[np.int64]:
        view = self._rows[start - self._origin : stop - self._origin]
        view.flags.writeable = False
        return view

    def _write(self, row: int, buffer: list[int]) -> None:
        # Packing straight into the array's memory is 3 times as fast as numpy's conversion of a
        # list: 25 ns an event.
        try:
            if len(buffer) % WIDTH:
                raise ValueError(f"{len(buffer)} values")
            pack_into(f"{len(buffer)}q", self._rows.data.cast("B"), row * WIDTH * 8, *buffer)
        except (StructError, ValueError) as error:
            raise EngineError(
                f"The event buffer is broken: {error}.",
                expected="four integers of 64 bits per event: buffer += (kind, a, b, c)",
            ) from error

    def _make_room(self, count: int) -> None:
        kept = self._view(self._first, self._count)
        grown = np.empty((max(2 * (len(kept) + count), _INITIAL_EVENTS), WIDTH), np.int64)
        grown[: len(kept)] = kept
        self._rows, self._origin = grown, self._first

    # The ring

    def _drop_steps(self, capacity: int) -> None:
        """Drop the oldest steps until `capacity` events are left, or only the newest step."""
        starts = self._step_starts
        while self._count - self._first > capacity and self._first_start + 1 < len(starts):
            self._first_start += 1
            self._drop_events(starts[self._first_start])
        if 2 * self._first_start > len(starts):  # so that each entry moves once at most
            del starts[: self._first_start]
            self._dropped_starts += self._first_start
            self._first_start = 0

    def _drop_events(self, stop: int) -> None:
        rows = self._view(self._first, stop)
        self._oldest.apply_all(rows.tolist())
        for request in rows[rows[:, 0] == _FINISH, 1].tolist():
            self._oldest.forget_finished(request)
            self.requests.pop(request, None)
        for request in rows[rows[:, 0] == _REJECT, 1].tolist():
            self.requests.pop(request, None)
        self._first = stop


def _step_starts(buffer: list[int], first: int) -> list[int]:
    """Numbers of the `STEP` events in the buffer, whose first event has the number `first`."""
    kinds = buffer[::WIDTH]
    starts, position = [], -1
    for _ in range(kinds.count(_STEP)):
        position = kinds.index(_STEP, position + 1)
        starts.append(first + position)
    return starts
