"""Seats of the batch: `seq_slot` numbers, the rows of every picture."""

from __future__ import annotations

import heapq
from collections.abc import Iterable

from tinyvllm_lab.errors import EngineError


class SeatPool:
    """Hands out the lowest free seat number; a request keeps its seat while it runs."""

    def __init__(self) -> None:
        self._free: list[int] = []
        self._count = 0

    def take(self) -> int:
        """The lowest free seat."""
        if self._free:
            return heapq.heappop(self._free)
        self._count += 1
        return self._count - 1

    def give_back(self, seat: int) -> None:
        """The seat is free again; -1 (no seat) is ignored."""
        if seat >= 0:
            heapq.heappush(self._free, seat)

    def check(self, taken: Iterable[int]) -> None:
        """Raise `EngineError` unless every seat is free or taken once."""
        taken = list(taken)
        if sorted([*taken, *self._free]) != list(range(self._count)):
            raise EngineError(
                f"Seats are lost or taken twice: taken {sorted(taken)}, free {sorted(self._free)}, "
                f"{self._count} in all."
            )
