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
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tinyvllm_lab.engine.config import EngineConfig
from tinyvllm_lab.engine.events import VOCABULARY, Kind, Phase, Reason
from tinyvllm_lab.errors import EngineError

WIDTH = 4
"""Integers of one event: kind, a, b, c."""

_KIND_OF_VALUE: dict[int, Kind] = {int(kind): kind for kind in Kind}
_STEP = int(Kind.STEP)
_INITIAL_EVENTS = 4096


class Event(NamedTuple):
    """One event, for people: the log itself holds only integers."""

    number: int
    step: int
    kind: Kind | int
    """A plain int if this version does not know the kind."""
    a: int
    b: int
    c: int

    @property
    def values(self) -> dict[str, int]:
        """The integers by the names that the vocabulary gives them."""
        spec = VOCABULARY.get(self.kind) if isinstance(self.kind, Kind) else None
        return dict(zip(spec.fields if spec else "abc", (self.a, self.b, self.c), strict=True))

    def __str__(self) -> str:
        name = self.kind.name if isinstance(self.kind, Kind) else f"kind {self.kind}"
        return " ".join([name, *(f"{key}={_word(key, v)}" for key, v in self.values.items())])


def _word(field: str, value: int) -> str:
    table = {"phase": Phase, "reason": Reason}.get(field)
    return table(value).name.lower() if table and value in list(table) else str(value)


class EventLog:
    """An append-only log of events with its side tables.

    Steps and events are numbered from the start of the run, also when old ones were dropped: the
    log holds steps `first_step .. num_steps - 1` and events `first_event .. num_events - 1`. An
    event belongs to the step whose `STEP` was the last before it; events before the first `STEP`
    count to step 0.

    Args:
        config: the engine's settings at the start of the run.
        capacity: most events to keep; None keeps all. See `drop_steps`.

    Attributes:
        buffer: events not flushed yet, four integers each. The list object never changes.
        requests: what is known of each request besides its events, by its running number; see
            `add_request`.
        knob_values: names and values that `KNOB` events point to; see `intern_knob`.
        texts: text of the token ids that occur, for panels that show text: token id -> text.
    """

    def __init__(self, config: EngineConfig | None = None, capacity: int | None = None) -> None:
        self.config = config
        self.capacity = capacity
        self.buffer: list[int] = []
        self.requests: dict[int, dict[str, Any]] = {}
        self.knob_values: list[str | int | float | bool] = []
        self.texts: dict[int, str] = {}
        self._knob_index: dict[tuple[type, Any], int] = {}
        # Rows are written once and never changed, and growing allocates a new array: a view that
        # another thread took earlier stays valid.
        self._rows = np.empty((_INITIAL_EVENTS, WIDTH), np.int64)  # [allocated, 4]
        self._count = 0
        self._step_starts: list[int] = []

    # Writing

    def flush(self) -> None:
        """Move the buffer into the columns, and empty it in place.

        Raises:
            EngineError: the buffer holds a broken event; it is left as it is.
        """
        buffer = self.buffer
        if not buffer:
            return
        start = self._count
        stop = start + len(buffer) // WIDTH
        if stop > len(self._rows):
            self._grow(stop)
        self._write(start, buffer)
        self._step_starts += _step_starts(buffer, start)
        self._count = stop
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
        return 0

    @property
    def first_step(self) -> int:
        """Number of the oldest step that is kept."""
        return 0

    @property
    def num_events(self) -> int:
        """Events flushed since the start of the run."""
        return self._count

    @property
    def num_steps(self) -> int:
        """Steps flushed since the start of the run."""
        return len(self._step_starts)

    def __len__(self) -> int:
        return self.num_events - self.first_event

    def as_array(self) -> NDArray[np.int64]:
        """All kept events as a read-only view, int64 `[num_events - first_event, 4]`."""
        view = self._rows[: self._count]
        view.flags.writeable = False
        return view

    def step_of(self, event: int) -> int:
        """The step that an event belongs to, by its number."""
        return max(bisect_right(self._step_starts, event) - 1, 0)

    def step_range(self, step: int) -> range:
        """The numbers of the events of a step."""
        starts = self._step_starts
        if not 0 <= step < len(starts):
            raise IndexError(f"step {step} is not in the log (0 to {len(starts) - 1})")
        stop = starts[step + 1] if step + 1 < len(starts) else self._count
        return range(starts[step] if step else 0, stop)

    def step_rows(self, step: int) -> NDArray[np.int64]:
        """The events of a step as a view, int64 `[events, 4]`."""
        numbers = self.step_range(step)
        return self.as_array()[numbers.start : numbers.stop]

    def events(self, step: int) -> Iterator[Event]:
        """The events of a step, for people."""
        numbers = self.step_range(step)
        for number, row in zip(numbers, self.step_rows(step).tolist(), strict=True):
            yield Event(number, step, _KIND_OF_VALUE.get(row[0], row[0]), *row[1:])

    # Columns

    def _write(self, start: int, buffer: list[int]) -> None:
        # Packing straight into the array's memory is 3 times as fast as numpy's conversion of a
        # list: 25 ns an event.
        try:
            if len(buffer) % WIDTH:
                raise ValueError(f"{len(buffer)} values")
            pack_into(f"{len(buffer)}q", self._rows.data.cast("B"), start * WIDTH * 8, *buffer)
        except (StructError, ValueError) as error:
            raise EngineError(
                f"The event buffer is broken: {error}.",
                expected="four integers of 64 bits per event: buffer += (kind, a, b, c)",
            ) from error

    def _grow(self, needed: int) -> None:
        grown = np.empty((max(needed, 2 * len(self._rows)), WIDTH), np.int64)
        grown[: self._count] = self._rows[: self._count]
        self._rows = grown


def _step_starts(buffer: list[int], first: int) -> list[int]:
    """Numbers of the `STEP` events in the buffer, whose first event has the number `first`."""
    kinds = buffer[::WIDTH]
    starts, position = [], -1
    for _ in range(kinds.count(_STEP)):
        position = kinds.index(_STEP, position + 1)
        starts.append(first + position)
    return starts
