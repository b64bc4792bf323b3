"""The inbox: what other threads ask of an engine, until the top of its next step."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

from tinyvllm_lab.engine.events import Reason
from tinyvllm_lab.engine.request import Request


@dataclass
class Inbox:
    """What waits, by kind. Deques append and pop atomically, so no lock is needed.

    The engine reads knobs first, then aborts, then arrivals: a knob set before a request is sent
    rules that request, and a request sent and aborted between two steps never takes a seat.
    """

    knobs: deque[tuple[str, Any]] = field(default_factory=deque)
    aborts: deque[tuple[str, Reason]] = field(default_factory=deque)
    arrivals: deque[Request] = field(default_factory=deque)
    refusals: deque[Request] = field(default_factory=deque)
    forks: deque[tuple[Request, Request]] = field(default_factory=deque)
    """(parent, child) pairs."""

    def __bool__(self) -> bool:
        return bool(self.knobs or self.aborts or self.arrivals or self.refusals or self.forks)


def drain(queue: deque) -> list:
    """Take out what is in the queue now; what comes meanwhile waits for the next step."""
    return [queue.popleft() for _ in range(len(queue))]
