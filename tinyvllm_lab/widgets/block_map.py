"""The block map: every block of the KV pool, coloured by the request that holds it."""

from __future__ import annotations

import math
from typing import NamedTuple

from PIL import Image

from tinyvllm_lab.engine.events import Kind
from tinyvllm_lab.widgets.esm import bundle
from tinyvllm_lab.widgets.holdings import Holdings, holdings_of
from tinyvllm_lab.widgets.moment import Moment, plural
from tinyvllm_lab.widgets.palette import COLOURS, EMPTY, LINE, PAGE, SOFT, TEXT, WARN, look_of, mix
from tinyvllm_lab.widgets.panel import Panel
from tinyvllm_lab.widgets.still import INNER_WIDTH, LegendItem, StillCanvas

_TOP, _MOST_HEIGHT, _LARGEST, _SMALLEST_DRAWN = 24, 324, 34.0, 4
_TAIL, _CACHED = 0.6, 0.72  # share of the page in the colours of empty tails and of cached blocks


class _Grid(NamedTuple):
    columns: int
    rows: int
    cell: float


def _grid(total: int, width: float = INNER_WIDTH) -> _Grid:
    cell = _LARGEST
    while cell > 1 and math.ceil(total / int(width / cell)) * cell > _MOST_HEIGHT:
        cell -= 0.5
    if cell < _SMALLEST_DRAWN:
        cell = width / math.ceil(math.sqrt(total * width / _MOST_HEIGHT))
    columns = max(1, int(width / cell + 1e-6))
    return _Grid(columns, math.ceil(total / columns), cell)


class BlockMap(Panel):
    """The pool of KV blocks: held, shared, cached, evicted, free (chapters 10 and 12)."""

    _esm = bundle("block_map")
    module = "block_map"
    default_title = "Block map"
    default_caption = (
        "One square is one KV block, in the order of the pool; its colour is the request that "
        "holds it. Block 0 is the null block, which is never given out."
    )

    def still_height(self, moment: Moment) -> float:
        """A line of numbers and the grid."""
        grid = _grid(moment.config.num_blocks)
        return _TOP + grid.rows * grid.cell + 1

    def draw_still(self, canvas: StillCanvas, moment: Moment) -> None:
        """The same picture as `static/block_map.js`."""
        holdings = holdings_of(moment)
        canvas.text(summary(moment, holdings), 2, 10, colour=SOFT, most=canvas.width - 4)
        grid = _grid(moment.config.num_blocks)
        if grid.cell < _SMALLEST_DRAWN:
            _draw_pixels(canvas, moment, grid, holdings)
            return
        evicted = {e.a for e in moment.events if e.kind is Kind.BLOCK_EVICT}
        for block in range(moment.config.num_blocks):
            _draw_block(canvas, moment, grid, holdings, block, block in evicted)

    def still_legend(self, moment: Moment) -> list[LegendItem]:
        """States of a block."""
        plain = COLOURS[1]
        return [
            LegendItem(COLOURS[:3], "held by a request"),
            LegendItem((plain, mix(plain, PAGE, _TAIL)), "tail of a block: held, but empty"),
            LegendItem((TEXT,), "shared by several", "outline"),
            LegendItem((mix(plain, PAGE, _CACHED),), "free, but cached: an equal prefix finds it"),
            LegendItem((EMPTY,), "free"),
            LegendItem((WARN,), "evicted from the cache in this step", "dashed"),
        ]


def summary(moment: Moment, holdings: Holdings) -> str:
    """Blocks by state, and what is empty in held ones."""
    state = moment.state
    share = f" ({holdings.wasted / holdings.held:.1%} of what is held)" if holdings.held else ""
    if not moment.is_paged:
        of = f"{holdings.held:,} of {plural(moment.capacity, 'token slot')} held by regions"
        return f"{of} · {holdings.wasted:,} empty in them{share}"
    used, cached = len(state.ref_counts), moment.num_cached
    shared = sum(1 for references in state.ref_counts.values() if references > 1)
    free = max(0, moment.config.num_usable_blocks - used - cached)
    text = (
        f"{used:,} used · {shared:,} of them shared · {cached:,} cached · {free:,} free · "
        f"{plural(holdings.wasted, 'token slot')} empty in held blocks"
    )
    return text + share


def _draw_pixels(canvas: StillCanvas, moment: Moment, grid: _Grid, holdings: Holdings) -> None:
    """One pixel a block, scaled up."""
    total = moment.config.num_blocks
    image = Image.new("RGB", (grid.columns, grid.rows), PAGE)
    colours = [EMPTY] * total
    for block, request in moment.state.cached.items():
        colours[block] = mix(look_of(request).fill, PAGE, _CACHED)
    for block, request in holdings.owner.items():
        colours[block] = look_of(request).fill
    for block, colour in enumerate(colours):
        image.paste(colour, (block % grid.columns, block // grid.columns, *_next(block, grid)))
    canvas.picture(image, 0, _TOP, grid.columns * grid.cell, grid.rows * grid.cell)


def _next(block: int, grid: _Grid) -> tuple[int, int]:
    return block % grid.columns + 1, block // grid.columns + 1


def _draw_block(
    canvas: StillCanvas, moment: Moment, grid: _Grid, holdings: Holdings, block: int, evicted: bool
) -> None:
    x = block % grid.columns * grid.cell
    y = _TOP + block // grid.columns * grid.cell
    side = grid.cell - (2 if grid.cell > 12 else 1)
    radius = 4 if grid.cell > 14 else 1
    request, cached_by = holdings.owner.get(block), moment.state.cached.get(block)
    references = moment.state.ref_counts.get(block, 0)
    if block == 0:
        canvas.card(x, y, side, side, radius, None, LINE)
        canvas.line(x + 2, y + side - 2, x + side - 2, y + 2, LINE)
    elif request is not None:
        _draw_held(canvas, holdings, block, (x, y, side, radius))
    elif cached_by is not None:
        canvas.card(x, y, side, side, radius, mix(look_of(cached_by).fill, PAGE, _CACHED))
    else:
        canvas.card(x, y, side, side, radius, EMPTY)
    if references > 1:
        canvas.card(x + 1, y + 1, side - 2, side - 2, radius, None, TEXT, 2 if side > 12 else 1)
    if request is not None and grid.cell >= 24:
        is_filled = 2 * holdings.filled[block] > holdings.block_size  # up to the label
        _draw_label(canvas, request, references, (x, y, side), is_filled)
    if evicted:
        canvas.dashed(x, y, side, side, WARN)


def _draw_held(
    canvas: StillCanvas, holdings: Holdings, block: int, place: tuple[float, float, float, float]
) -> None:
    x, y, side, radius = place
    request = holdings.owner[block]
    share = holdings.filled[block] / holdings.block_size
    canvas.card(x, y, side, side, radius, mix(look_of(request).fill, PAGE, _TAIL))
    canvas.request(request, x, y, side * share, side, radius if share == 1 else 0)


def _draw_label(
    canvas: StillCanvas,
    request: int,
    references: int,
    place: tuple[float, float, float],
    is_filled: bool,
) -> None:
    x, y, side = place
    look = look_of(request)
    label = f"×{references}" if references > 1 else str(request)
    if look.pattern != "plain" and is_filled:
        width = min(side - 4, len(label) * 7 + 4)
        canvas.card(x + (side - width) / 2, y + side / 2 - 7, width, 14, 3, look.fill)
    ink = look.ink if is_filled else TEXT
    canvas.text(
        label, x + side / 2, y + side / 2, size=10.5, bold=True, colour=ink, align="center",
        most=side - 3,
    )  # fmt: skip
