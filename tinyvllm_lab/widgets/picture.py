"""The picture form: what goes to the browser.

A whole run travels as the stored form (`engine.storage`, about a byte an event): all of it, or the
newest events with the state before them. While an engine runs, a message carries the events since
the last one: each event is four zigzag LEB128 numbers (kind, a, b, c), about 7 bytes, so a clock of
64 bits needs no special case. With its JSON a message stays below 64 bytes plus 16 an event.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tinyvllm_lab.engine import varint
from tinyvllm_lab.engine.events import Kind
from tinyvllm_lab.engine.history import History
from tinyvllm_lab.engine.log import EventLog, Kept
from tinyvllm_lab.engine.storage import to_bytes

MAX_EVENTS = 400_000
"""Most events that a page gets at once; the state stands for what was before."""

_TOKEN = int(Kind.TOKEN)
_ARRIVALS = (int(Kind.SUBMIT), int(Kind.REJECT))
_INFO = ("id", "kind", "prompt", "priority", "arrival_us")


def encode_run(log: EventLog, max_events: int = MAX_EVENTS, level: int = 6) -> tuple[bytes, int]:
    """A run as a page gets it first.

    Args:
        log: the log; it may still grow.
        max_events: of a longer run, whole steps at the end that hold so many events at most, but
            one step at least.
        level: of compression, 1 to 9: 1 where a page waits for it.

    Returns:
        The bytes of a `.tvt`, and the number of the first event that is not in them.
    """
    kept = log.kept()
    if len(kept.rows) > max_events:
        kept = _newest(log, kept, max_events)
    part = EventLog.of(kept, log.config)
    part.info.update(log.info)
    part.knob_values += log.knob_values
    part.texts.update(_copy(log.texts))
    requests = {int(r) for r in kept.oldest.requests} | _numbers(kept.rows, _ARRIVALS)
    part.requests.update((i, r) for i, r in _copy(log.requests).items() if i in requests)
    return to_bytes(part, level), kept.first_event + len(kept.rows)


def _copy(table: dict[int, Any]) -> dict[int, Any]:
    """A copy of a dict to which the engine's thread adds meanwhile."""
    while True:
        try:
            return dict(table)
        except RuntimeError:  # it grew while it was copied
            continue


def _newest(log: EventLog, kept: Kept, max_events: int) -> Kept:
    """The last whole steps of what is kept."""
    stop = kept.first_event + len(kept.rows)
    step = min(log.step_of(stop - max_events) + 1, log.step_of(stop - 1))
    start = log.step_range(step).start
    oldest = History(EventLog.of(kept)).seek(start).copy()
    return Kept(start, step, kept.rows[start - kept.first_event :], oldest)


def _numbers(rows: np.ndarray, kinds: Sequence[int]) -> set[int]:
    """The first integers of the events of some kinds."""
    return set(rows[np.isin(rows[:, 0], kinds), 1].tolist())


class PictureStream:
    """Turns what is new in a log into messages.

    Args:
        log: the log.
        next_event: number of the first event that the page does not have.

    Attributes:
        next_event: number of the first event that was not taken yet.
        number: of the last message; 0: none yet. A page that misses one asks for the whole run.
    """

    def __init__(self, log: EventLog, next_event: int = 0) -> None:
        self.log = log
        self.next_event = next_event
        self.number = 0
        self._texts_sent = set(_copy(log.texts)) if next_event else set()
        self._knobs_sent = len(log.knob_values) if next_event else 0

    def take(self) -> tuple[dict[str, Any], bytes] | None:
        """The next message: its JSON and its bytes; None if nothing is new.

        Raises:
            IndexError: the log has dropped events that were not taken.
        """
        stop = self.log.num_events
        if stop == self.next_event:
            return None
        rows = self.log.rows(self.next_event, stop)  # int64 [events, 4]
        self.next_event = stop
        self.number += 1
        message: dict[str, Any] = {"k": "e", "n": self.number, "c": len(rows)}
        message |= self._new_side_entries(rows)
        return message, varint.encode(rows.ravel())

    def _new_side_entries(self, rows: np.ndarray) -> dict[str, Any]:
        """Names of new requests (q), texts of new token ids (t), new values of knobs (v)."""
        entries: dict[str, Any] = {}
        requests = self.log.requests
        if new := {i: _short(requests[i]) for i in _numbers(rows, _ARRIVALS) if i in requests}:
            entries["q"] = new
        ids = set(rows[rows[:, 0] == _TOKEN, 2].tolist()) - self._texts_sent
        texts = {i: self.log.texts[i] for i in ids if i in self.log.texts}
        if texts:
            self._texts_sent |= texts.keys()
            entries["t"] = texts
        if self._knobs_sent < len(self.log.knob_values):
            entries["v"] = self.log.knob_values[self._knobs_sent :]
            self._knobs_sent += len(entries["v"])
        return entries


def _short(request: dict[str, Any]) -> dict[str, Any]:
    """What panels show of a request; the events say the rest."""
    return {name: request[name] for name in _INFO if request.get(name) not in (None, 0)}
