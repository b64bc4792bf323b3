"""What the kernels' headers say was counted is what the x-ray counts.

Of the short ones: to count the products, attention, softmax and SwiGLU as well takes a minute more,
and how often sampling walks over its logits depends on them.
"""

import math
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from ops_harness import kernel, randn

from tinyvllm_lab.kernels import xray
from tinyvllm_lab.kernels.ops import OPS
from tinyvllm_lab.kernels.sources import find_source
from tinyvllm_lab.kernels.xray_data import Totals

pytestmark = pytest.mark.needs("cxx")

ROW = re.compile(r"^//   x-ray: (.*?)  +(.*)$", re.M)


def f32(*shape: int) -> torch.Tensor:
    return randn(*shape)


# file -> operation, its arguments, and its versions in the order of the header's columns
CASES: dict[str, tuple[str, Any, list[str]]] = {
    "argmax": ("argmax", lambda: (f32(4, 32768),), ["naive", "tree", "warp", "split"]),
    "copy_blocks": (
        "copy_blocks",
        lambda: (f32(9, 16, 8, 64), f32(9, 16, 8, 64), torch.tensor([[3, 0], [8, 1]])),
        ["naive", "vec"],
    ),
    "embedding": (
        "embedding",
        lambda: (torch.arange(32) * 3, f32(100, 2048)),
        ["naive", "row", "vec"],
    ),
    "reshape_and_cache": (
        "reshape_and_cache",
        lambda: (
            f32(32, 8, 64), f32(32, 8, 64), f32(9, 16, 8, 64), f32(9, 16, 8, 64), torch.arange(32),
        ),
        ["naive", "row", "vec"],
    ),
    "rmsnorm": (
        "rms_norm",
        lambda: (f32(32, 2048), f32(2048), 1e-5),
        ["naive", "tree", "warp", "vec"],
    ),
    "rope": (
        "rope",
        lambda: (f32(32, 32, 64), f32(32, 8, 64), f32(64, 32), f32(64, 32), torch.arange(32)),
        ["naive", "fused", "vec"],
    ),
}  # fmt: skip


COUNTED: dict[str, Callable[[Totals, int], float]] = {
    "bytes moved": lambda t, blocks: t.global_bytes_moved,
    "requests to memory": lambda t, blocks: t.global_requests,
    "barriers in a block": lambda t, blocks: t.barriers / blocks,
}
"""What a line of a header counts -> that of one launch."""


def table(file: str) -> dict[str, list[str]]:
    """Line of the header -> its cells, one for each version."""
    rows = {}
    for name, cells in ROW.findall(find_source(file).read_text()):
        rows[name] = re.split(r" {2,}", cells)[: len(CASES[file][2])]
    return {name: cells for name, cells in rows.items() if name in COUNTED}


def counted(file: str, version: str) -> list[tuple[Totals, int]]:
    """Of each launch: totals over all blocks, and how many blocks."""
    op, make, _ = CASES[file]
    found = []
    for launch in OPS[op].work(*make(), version=version).launches:
        function, blocks = kernel(launch.file, launch.kernel), math.prod(launch.grid)
        shown = xray(
            function, *launch.args, grid=launch.grid, block=launch.block, shared=launch.shared,
            blocks=blocks, max_events=10_000_000, time_limit=100.0,
        )  # fmt: skip
        assert not shown.findings
        found.append((shown.totals, blocks))
    return found


def written(cell: str) -> tuple[float, float]:
    """The number of a cell, and half of its last digit: "1.05 MB" -> 1,050,000 and 5,000."""
    number, _, unit = cell.partition(" ")
    scale = 1e6 if unit == "MB" else 1.0
    decimals = len(number.partition(".")[2])
    return float(number.replace(",", "")) * scale, scale * 0.5 * 10**-decimals


@pytest.mark.parametrize("file", CASES)
def test_the_header_says_what_the_x_ray_counts(file):
    rows = table(file)
    assert rows
    for place, version in enumerate(CASES[file][2]):
        launches = counted(file, version)
        for name, cells in rows.items():
            number, half = written(cells[place])
            # Barriers are those of the first launch; a second one only gathers its results.
            seen = [COUNTED[name](*launch) for launch in launches]
            total = seen[0] if name == "barriers in a block" else sum(seen)
            assert abs(total - number) <= half * 1.001, f"{version}, {name}: {total}"
