"""Clocks of an engine: wall time, or a virtual one (`simulate.executor.VirtualClock`)."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Time as an engine sees it."""

    def now(self) -> float:
        """Seconds since the clock started."""

    def advance_us(self, microseconds: int) -> None:
        """A simulated step took so long."""

    def advance_to(self, seconds: float) -> None:
        """Nothing happens until then: wait, or jump."""


class WallClock:
    """Real time, from the moment the clock is made."""

    def __init__(self) -> None:
        self._start = time.perf_counter()

    def now(self) -> float:
        """Seconds since the clock was made."""
        return time.perf_counter() - self._start

    def advance_us(self, microseconds: int) -> None:
        """Nothing: the time of a real step has passed already."""

    def advance_to(self, seconds: float) -> None:
        """Sleep until then."""
        time.sleep(max(0.0, seconds - self.now()))
