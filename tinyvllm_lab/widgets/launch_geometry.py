"""`LaunchGeometry`: which thread computes what, who idles, how full the GPU gets (chapter 06).

A calculator: it shows no run and starts no kernel. It works in the browser alone
(`static/launch_geometry.js`); the arithmetic here (`launch_figures`) is the same, for the still and
for code that asks.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from functools import cache
from typing import Any

import traitlets

from tinyvllm_lab.errors import ConfigError
from tinyvllm_lab.kernels.resources import (
    ARCHITECTURES,
    PARTS,
    REGISTER_UNIT,
    REGISTERS,
    SM_LIMITS,
    WARP,
)
from tinyvllm_lab.paths import assets_dir
from tinyvllm_lab.widgets.calculator import Calculator
from tinyvllm_lab.widgets.esm import STATIC, bundle
from tinyvllm_lab.widgets.launch_figures import (
    MOST_THREADS,
    Axis,
    Figures,
    Launch,
    Thread,
    figures,
)
from tinyvllm_lab.widgets.launch_still import draw_launch, launch_height, launch_legend
from tinyvllm_lab.widgets.still import frame_still, to_png

OWN = "your own"
"""The kernel whose registers and shared memory the sliders say."""

CARDS = {
    75: ("T4", 40), 80: ("A100", 108), 86: ("RTX 3090", 82), 89: ("RTX 4090", 128),
    90: ("H100", 132), 100: ("B200", 148), 120: ("RTX 5090", 170),
}  # fmt: skip
"""Architecture -> a card that has it, and its SMs (of H100s the SXM). The counts come from memory
and public copies, B200's from a third party's table; none was checked against NVIDIA's papers."""

LIMITS = {
    "columns": (1, 2**20), "rows": (1, 4096), "block_x": (1, 1024), "block_y": (1, 64),
    "grid_x": (1, 2**20), "grid_y": (1, 4096), "registers": (16, 255), "shared": (0, 227 * 1024),
    "block": (0, 2**32),
}  # fmt: skip
"""Least and greatest value of each number."""

CAPTION = (
    "Computed, not measured. Limits of an SM: CUDA C++ programming guide, compute capabilities; "
    "registers and shared memory of the course's kernels: ptxas of CUDA 13.0; SMs of a card: "
    "public figures, not checked against NVIDIA's papers. Waves are counted as if all blocks took "
    "equally long and started together."
)

Size = int | tuple[int, int]


class LaunchGeometry(Calculator):
    """Sliders for the problem, the block, the grid, and what a kernel takes of a GPU.

    Args:
        n: elements; or rows and columns of a matrix that is stored row by row.
        block: threads of a block, in x; or in (x, y), as CUDA writes them.
        grid: blocks, in x; or in (x, y); None: as many as cover all elements.
        grid_stride: each thread goes on, a whole grid further, until the elements end.
        guard: threads beyond the elements do nothing; False shows what they would touch.
        kernel: one of the course's, for its registers and shared memory ("rmsnorm_vec_f32").
        registers: of a thread, if no kernel is named.
        shared: bytes of shared memory of a block, if no kernel is named.
        architecture: compute capability, as 10 * major + minor: 75, 80, 86, 89, 90, 100 or 120.
        look_at: number of the block whose threads are shown; None: the one with idle threads.
        size: "normal", or "presenter" for a projector.

    Raises:
        ConfigError: a name is unknown, or a number is out of range.
    """

    _esm = bundle("launch_geometry")
    _css = Calculator._css + (STATIC / "launch_geometry.css").read_text()
    default_caption = CAPTION
    own = traitlets.Unicode(OWN).tag(sync=True)

    def __init__(
        self,
        n: Size = 1000,
        block: Size = 256,
        grid: Size | None = None,
        *,
        grid_stride: bool = False,
        guard: bool = True,
        kernel: str = OWN,
        registers: int = 32,
        shared: int = 0,
        architecture: int = 90,
        look_at: int | None = None,
        size: str = "normal",
    ) -> None:
        rows, columns = reversed(_pair("n", n)) if isinstance(n, int) else _pair("n", n)
        block_x, block_y = _pair("block", block)
        grid_x, grid_y = _pair("grid", 1 if grid is None else grid)
        choice = {
            "columns": columns, "rows": rows, "block_x": block_x, "block_y": block_y,
            "cover": grid is None, "grid_x": grid_x, "grid_y": grid_y, "stride": grid_stride,
            "guard": guard, "kernel": kernel, "registers": registers, "shared": shared,
            "gpu": gpu_name(architecture), "block": look_at or 0,
        }  # fmt: skip
        super().__init__(_tables(), choice, size)
        if look_at is None:
            self.choice = {**self.choice, "block": self._ragged_block()}

    def _check(self, choice: Mapping[str, Any], tables: Mapping[str, Any]) -> None:
        known = [OWN, *(row["name"] for row in tables["kernels"])]
        if choice["kernel"] not in known:
            raise ConfigError(
                f"LaunchGeometry: the kernel is {choice['kernel']!r}.", "one of " + ", ".join(known)
            )
        for name, (low, high) in LIMITS.items():
            if type(choice[name]) is not int or not low <= choice[name] <= high:
                raise ConfigError(
                    f"LaunchGeometry: {name} is {choice[name]!r}.", f"{low:,} to {high:,}"
                )

    @property
    def launch(self) -> Launch:
        """The grid over the elements, as the sliders say now."""
        return Launch(self._axis("columns", "x"), self._axis("rows", "y"), self.choice["stride"],
                      self.choice["guard"])  # fmt: skip

    def _axis(self, elements: str, name: str) -> Axis:
        size, block = self.choice[elements], self.choice[f"block_{name}"]
        covering = -(-size // block)
        return Axis(size, block, covering if self.choice["cover"] else self.choice[f"grid_{name}"])

    @property
    def resources(self) -> tuple[int, int]:
        """Registers of a thread, and bytes of shared memory of a block."""
        c, row = self.choice, self._kernel
        if row is None:
            return c["registers"], c["shared"]
        dynamic = row["dynamic_shared_per_thread"] * c["block_x"] * c["block_y"]
        return row["registers"][str(self.gpu["architecture"])], row["static_shared"] + dynamic

    @property
    def gpu(self) -> dict[str, Any]:
        """The row of the chosen GPU: architecture, SMs, and the limits of one."""
        return next(row for row in self.tables["gpus"] if row["name"] == self.choice["gpu"])

    @property
    def figures(self) -> Figures:
        """All counts of what the sliders say now."""
        gpu, row = self.gpu, self._kernel
        most = row["max_threads"] if row else MOST_THREADS
        return figures(self.launch, gpu["architecture"], gpu["sms"], *self.resources, most)

    @property
    def _kernel(self) -> dict[str, Any] | None:
        """The row of the chosen kernel of the course."""
        rows = (row for row in self.tables["kernels"] if row["name"] == self.choice["kernel"])
        return next(rows, None)

    def thread(self, block: int, thread: int) -> Thread:
        """What becomes of one thread, by the running numbers of its block and of itself."""
        return self.launch.thread(block, thread)

    def _ragged_block(self) -> int:
        """The first block with threads beyond the elements; or block 0."""
        x, y = self.launch.x, self.launch.y
        at_x, at_y = (a.size // a.block if a.size < a.reach else 0 for a in (x, y))
        return at_y * x.grid + at_x

    def still(self) -> bytes:
        """The picture, as PNG."""
        found, gpu = self.figures, self.gpu
        block = min(self.choice["block"], found.blocks - 1)
        x, y = self.launch.x, self.launch.y
        sizes = f"{x.grid:,} x {x.block}" if y.reach == 1 else (
            f"({x.grid:,}, {y.grid:,}) x ({x.block}, {y.block})"
        )  # fmt: skip
        share = found.idle / found.threads
        now = f"{share:.1%} idle, {found.occupancy:.0%} occupancy on {gpu['name']}"
        return to_png(
            frame_still(
                f"Launch geometry: {sizes}", "computed", now, launch_legend(found, block), CAPTION,
                launch_height(self.launch),
                lambda canvas: draw_launch(canvas, self.launch, found, gpu, self.resources, block),
            )
        )  # fmt: skip

    def __repr__(self) -> str:
        found = self.figures
        return (
            f"LaunchGeometry({found.threads:,} threads for "
            f"{self.choice['rows'] * self.choice['columns']:,} elements: {found.idle:,} idle, "
            f"{found.missing:,} elements missing, {found.occupancy:.0%} occupancy)"
        )


def _pair(name: str, size: Size) -> tuple[int, int]:
    """One number stands for (number, 1)."""
    sizes = (size, 1) if isinstance(size, int) else size
    if not isinstance(sizes, tuple) or [type(value) for value in sizes] != [int, int]:
        raise ConfigError(f"LaunchGeometry: {name} is {size!r}.", "a whole number, or a pair")
    return sizes


def gpu_name(architecture: int) -> str:
    """What the choice of GPUs calls an architecture.

    Raises:
        ConfigError: it is none of those that the course is built for.
    """
    if architecture not in CARDS:
        raise ConfigError(
            f"LaunchGeometry: the architecture is {architecture!r}.",
            "one of " + ", ".join(map(str, CARDS)),
        )
    card, sms = CARDS[architecture]
    return f"sm_{architecture}: {card}, {sms} SMs"


@cache
def kernel_table() -> dict[str, Any]:
    """What each kernel of the course takes of a GPU: `assets/resources/kernels.json`."""
    path = assets_dir() / "resources" / "kernels.json"
    return dict(json.loads(path.read_text(encoding="utf-8")))


def _tables() -> dict[str, Any]:
    """What the browser needs."""
    gpus = [
        {
            "name": gpu_name(number), "architecture": number, "sms": CARDS[number][1],
            **asdict(SM_LIMITS[number]),
        }
        for number in ARCHITECTURES
    ]  # fmt: skip
    kernels = [{"name": name, **row} for name, row in kernel_table()["kernels"].items()]
    return {
        "gpus": gpus, "kernels": kernels, "warp": WARP, "most_threads": MOST_THREADS,
        "registers": REGISTERS, "parts": PARTS, "register_unit": REGISTER_UNIT,
    }  # fmt: skip
