"""Contiguous KV memory: regions, holes and what is wasted; `static/regions.js` computes the same.

Two kinds of waste have names of their own since the first allocators (Randell, 1969): internal, a
region's slots that hold no token, and external, free slots outside the largest hole.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tinyvllm_lab.engine.state import EngineState


class Region(NamedTuple):
    """Token slots `start .. start + length - 1` of a request; the first `used` hold tokens."""

    request: int
    start: int
    length: int
    used: int


class Hole(NamedTuple):
    """Free token slots `start .. start + length - 1`."""

    start: int
    length: int


class Strip(NamedTuple):
    """All token slots at one moment, by place.

    Attributes:
        regions, holes: each in the order of the slots.
        capacity: token slots in all.
    """

    regions: Sequence[Region]
    holes: Sequence[Hole]
    capacity: int

    @property
    def held(self) -> int:
        """Slots of all regions."""
        return sum(region.length for region in self.regions)

    @property
    def internal(self) -> int:
        """Slots that are held, but empty."""
        return self.held - sum(region.used for region in self.regions)

    @property
    def free(self) -> int:
        """Slots of all holes."""
        return sum(hole.length for hole in self.holes)

    @property
    def largest(self) -> Hole | None:
        """The largest hole, the first of several; None: all is held."""
        return max(self.holes, key=lambda hole: hole.length, default=None)

    @property
    def external(self) -> int:
        """Free slots outside the largest hole."""
        return self.free - (self.largest.length if self.largest else 0)


def strip_of(state: EngineState, capacity: int) -> Strip:
    """The regions of all requests, and the holes between them."""
    regions = []
    for request, record in state.requests.items():
        if record.region is not None:
            start, length = record.region
            regions.append(Region(request, start, length, min(length, record.num_computed)))
    regions.sort(key=lambda region: region.start)
    holes, end = [], 0
    for start, length in [*((r.start, r.length) for r in regions), (capacity, 0)]:
        if start > end:
            holes.append(Hole(end, start - end))
        end = max(end, start + length)
    return Strip(regions, holes, capacity)
