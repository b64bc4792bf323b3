"""The arithmetic of a launch: who computes what, who idles, and how its blocks fill a GPU.

The same as `static/launch_figures.js`; a test compares them. Nothing is measured: the limits of an
SM are those of `tinyvllm_lab.kernels.resources` (CUDA C++ programming guide, "compute
capabilities"), and a wave is as many blocks as all SMs hold at a time, as if all took equally long.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from tinyvllm_lab.errors import KernelError
from tinyvllm_lab.kernels.resources import WARP, blocks_that_fit, occupancy

MOST_THREADS = 1024
"""Of a block, on every GPU (CUDA C++ programming guide)."""


class Axis(NamedTuple):
    """One direction of a launch: elements to compute, threads of a block, blocks."""

    size: int
    block: int
    grid: int

    @property
    def reach(self) -> int:
        """Threads in this direction."""
        return self.block * self.grid

    def covered(self, stride: bool) -> int:
        """Elements in this direction that some thread comes to."""
        return self.size if stride else min(self.size, self.reach)

    def passes(self, stride: bool) -> int:
        """Elements of the busiest thread in this direction."""
        return -(-self.size // self.reach) if stride else 1

    def blocks(self) -> list[tuple[int, int]]:
        """(threads with an element, blocks that have so many): whole, ragged and empty ones."""
        whole = min(self.size // self.block, self.grid)
        ragged = int(whole < self.grid and self.size % self.block > 0)
        kinds = [(self.block, whole), (self.size % self.block, ragged)]
        return [kind for kind in (*kinds, (0, self.grid - whole - ragged)) if kind[1]]


class Thread(NamedTuple):
    """One thread: its place, and what becomes of it.

    Attributes:
        row, column: of the element that its indices come to.
        state: "computes", "idle" (a guard stops it), or without a guard "outside" (of the array)
            and "elsewhere" (another row's element).
        elements: how many it computes.
    """

    row: int
    column: int
    state: str
    elements: int


@dataclass(frozen=True)
class Launch:
    """A grid over `rows` x `columns` elements, stored row by row; one row: a vector.

    Attributes:
        x, y: columns and rows with the blocks over them.
        stride: threads go on, a whole grid further, until the elements end.
        guard: threads beyond the elements do nothing. A grid-stride loop's condition is one.
    """

    x: Axis
    y: Axis
    stride: bool
    guard: bool

    @property
    def is_guarded(self) -> bool:
        """Threads beyond the elements do nothing."""
        return self.guard or self.stride

    def thread(self, block: int, thread: int) -> Thread:
        """A thread by the running numbers of its block and of itself, x first."""
        block_y, block_x = divmod(block, self.x.grid)
        thread_y, thread_x = divmod(thread, self.x.block)
        row = block_y * self.y.block + thread_y
        column = block_x * self.x.block + thread_x
        if row < self.y.size and column < self.x.size:
            return Thread(row, column, "computes", self._elements(row, column))
        if self.is_guarded:
            return Thread(row, column, "idle", 0)
        inside = row * self.x.size + column < self.y.size * self.x.size
        return Thread(row, column, "elsewhere" if inside else "outside", 0)

    def _elements(self, row: int, column: int) -> int:
        if not self.stride:
            return 1
        places = ((self.y, row), (self.x, column))
        rows, columns = (-(-(axis.size - at) // axis.reach) for axis, at in places)
        return rows * columns

    def share(self, block: int) -> float:
        """Of a block's threads, those that compute."""
        block_y, block_x = divmod(block, self.x.grid)
        places = ((self.x, block_x), (self.y, block_y))
        wide, high = (min(max(a.size - at * a.block, 0), a.block) / a.block for a, at in places)
        return wide * high

    def warps(self) -> tuple[int, int, int]:
        """All warps, those of which only a part of the 32 lanes compute, those without any."""
        of_a_block = -(-self.x.block * self.y.block // WARP)
        partly = empty = 0
        for wide, in_x in self.x.blocks():
            for high, in_y in self.y.blocks():
                lanes = self._lanes(wide, high)
                partly += in_x * in_y * sum(0 < count < WARP for count in lanes)
                empty += in_x * in_y * lanes.count(0)
        return of_a_block * self.x.grid * self.y.grid, partly, empty

    def _lanes(self, wide: int, high: int) -> list[int]:
        """Computing lanes of each warp of a block in which `wide` x `high` threads compute."""
        lanes = [0] * -(-self.x.block * self.y.block // WARP)
        for row in range(high):
            first = row * self.x.block
            for warp in range(first // WARP, -(-(first + wide) // WARP)):
                begin, end = max(first, warp * WARP), min(first + wide, (warp + 1) * WARP)
                lanes[warp] += max(0, end - begin)
        return lanes

    def elsewhere(self) -> int:
        """Threads that without a guard compute another row's element once more."""
        columns, rows = self.x.size, min(self.y.size, self.y.reach)
        ends = (min(self.x.reach, (self.y.size - row) * columns) for row in range(rows))
        return 0 if self.is_guarded else sum(max(0, end - columns) for end in ends)


@dataclass(frozen=True)
class Figures:
    """What a launch comes to.

    Attributes:
        blocks, threads: of the grid.
        computing: threads that have an element.
        idle: threads that a guard stops.
        outside, elsewhere: threads that without a guard leave the array, or touch another row.
        missing: elements that no thread computes.
        most: elements of the busiest thread.
        warps, partly, empty: all; with some computing lanes; with none.
        resident: blocks that an SM holds at a time; 0: the launch fails.
        occupancy: warps of an SM that are taken, 0 to 1.
        limiter: what stops one more block; or, if none fits, why.
        waves: full ones; a rest of `tail` blocks follows.
        tail: blocks of the last, partly filled wave.
        slots: blocks that all SMs hold at a time.
    """

    blocks: int
    threads: int
    computing: int
    idle: int
    outside: int
    elsewhere: int
    missing: int
    most: int
    warps: int
    partly: int
    empty: int
    resident: int
    occupancy: float
    limiter: str
    waves: int
    tail: int
    slots: int


def figures(
    launch: Launch,
    architecture: int,
    sms: int,
    registers: int,
    shared: int,
    max_threads: int = MOST_THREADS,
) -> Figures:
    """Count everything.

    Args:
        launch: the grid and its elements.
        architecture: compute capability as 10 * major + minor.
        sms: multiprocessors of the GPU.
        registers: of each thread.
        shared: bytes of a block.
        max_threads: of a block: the kernel's launch bounds.
    """
    x, y, stride = launch.x, launch.y, launch.stride
    blocks, threads = x.grid * y.grid, x.reach * y.reach
    computing = min(x.size, x.reach) * min(y.size, y.reach)
    beyond, elsewhere = threads - computing, launch.elsewhere()
    of_a_block = x.block * y.block
    resident, share, limiter = _residents(architecture, of_a_block, registers, shared, max_threads)
    slots = resident * sms
    waves, tail = divmod(blocks, slots) if slots else (0, 0)
    return Figures(
        blocks, threads, computing,
        beyond if launch.is_guarded else 0, 0 if launch.is_guarded else beyond - elsewhere,
        elsewhere, x.size * y.size - x.covered(stride) * y.covered(stride),
        x.passes(stride) * y.passes(stride), *launch.warps(), resident, share, limiter, waves,
        tail, slots,
    )  # fmt: skip


def _residents(
    architecture: int, threads: int, registers: int, shared: int, max_threads: int
) -> tuple[int, float, str]:
    """Blocks on an SM, share of its warps, and what stops one more."""
    if threads > MOST_THREADS:
        return 0, 0.0, "threads of a block"
    if threads > max_threads:
        return 0, 0.0, "launch bounds"
    try:
        found = occupancy(architecture, threads, registers, shared)
    except KernelError:
        fits = blocks_that_fit(architecture, threads, registers, shared)
        return 0, 0.0, "shared memory" if fits["registers"] else "registers"
    return found.blocks, found.share, found.limiter
