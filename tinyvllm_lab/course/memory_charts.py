"""Pictures of KV memory for chapters 10 and 12: who holds which block or region, and when.

    memory_strip({"first fit": regions_of(state)}, capacity, "Holes", "simulated")
    memory_history(log, "Forty steps", "simulated")

Both read the engine's state, which the event log gives back at any step, and show a request in
the same colour everywhere. Solid is a token's keys and values; pale is memory that holds none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import plotly.graph_objects as go

from tinyvllm_lab.course.charts import GREY, chart
from tinyvllm_lab.engine.config import EngineConfig
from tinyvllm_lab.engine.history import History
from tinyvllm_lab.engine.log import EventLog
from tinyvllm_lab.engine.state import EngineState
from tinyvllm_lab.widgets.palette import COLOURS

Label = Callable[[int], str]

PALE = 0.30
NOTHING = "rgba(0, 0, 0, 0)"
_PATTERNS = ("", "/", ".", "-")
"""Plotly's names of the panels' patterns: they tell the seventh request from the first."""


class Region(NamedTuple):
    """A stretch of token slots in a strip; `used` of its `length` slots hold tokens."""

    request: int
    start: int
    length: int
    used: int


def request_colour(request: int) -> str:
    """The colour of a request in every chart, as in the panels; six, then again."""
    return COLOURS[request % len(COLOURS)]


def _pattern(request: int) -> str:
    return _PATTERNS[request // len(COLOURS) % len(_PATTERNS)]


def _overlay(shape: str) -> dict[str, object]:
    return {"shape": shape, "fillmode": "overlay", "fgcolor": "black", "fgopacity": 0.35, "size": 7}


def regions_of(state: EngineState) -> list[Region]:
    """The contiguous regions of a state, by address."""
    held = [
        Region(index, *record.region, min(record.num_computed, record.region[1]))
        for index, record in state.requests.items()
        if record.region is not None
    ]
    return sorted(held, key=lambda region: region.start)


def _with_key(source: str, key: str) -> str:
    return source + (" · " if ":" in source else ": ") + key


def _faded(colour: str, opacity: float) -> str:
    if colour == NOTHING or opacity == 1.0:
        return colour
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red}, {green}, {blue}, {opacity})"


# One moment, regions


def memory_strip(
    rows: Mapping[str, Sequence[Region]],
    capacity: int,
    title: str,
    source: str,
    *,
    label: Label = str,
) -> go.Figure:
    """Strips of `capacity` token slots, one a row: regions, what is empty in them, and holes.

    Args:
        rows: regions by the name of the row, the first on top.
        capacity: slots of a strip.
        title, source: as `chart` takes them.
        label: name of a request.
    """
    source = _with_key(source, "solid: tokens, pale: reserved and empty, hollow: a hole")
    fig = chart(title, source, x="token slot", height=120 + 52 * len(rows))
    for row, regions in rows.items():
        for region in regions:
            colour, end = request_colour(region.request), region.start + region.used
            text, pattern = label(region.request), _pattern(region.request)
            _piece(fig, row, region.start, region.used, colour, 1.0, text, pattern)
            _piece(fig, row, end, region.length - region.used, colour, PALE, "")
        for start, length in holes(regions, capacity):
            _piece(fig, row, start, length, NOTHING, 1.0, str(length))
    fig.update_yaxes(autorange="reversed", showgrid=False, ticks="")
    fig.update_xaxes(range=[0, capacity], showgrid=False)
    return fig.update_layout(barmode="overlay", showlegend=False, bargap=0.3)


def holes(regions: Sequence[Region], capacity: int) -> list[tuple[int, int]]:
    """Free stretches between regions, as (start, length)."""
    found, end = [], 0
    for region in [*sorted(regions, key=lambda r: r.start), Region(0, capacity, 0, 0)]:
        if region.start > end:
            found.append((end, region.start - end))
        end = max(end, region.start + region.length)
    return found


def _piece(
    fig: go.Figure, row: str, start: int, length: int, colour: str, opacity: float, text: str,
    pattern: str = "",
) -> None:  # fmt: skip
    if length <= 0:
        return
    hollow = colour == NOTHING
    fig.add_bar(
        orientation="h", y=[row], x=[length], base=[start], text=[text], textposition="inside",
        insidetextanchor="middle", textangle=0, constraintext="none",
        marker={
            "color": _faded(colour, opacity), "line": {"color": GREY, "width": int(hollow)},
            "pattern": _overlay(pattern),
        },
        textfont={"color": GREY if hollow else "black"}, hovertext=f"{start} + {length}",
        hoverinfo="text",
    )  # fmt: skip


# Many moments


def memory_history(
    log: EventLog,
    title: str,
    source: str,
    *,
    steps: range | None = None,
    label: Label = str,
) -> go.Figure:
    """Memory from bottom to top, steps from left to right; at the end of each step.

    With pages a row is a block, and pale means cached; with regions a row is `block_size` token
    slots, and pale means reserved and empty.

    Args:
        log: of an engine with a config.
        title, source: as `chart` takes them.
        steps: None: all that the log holds.
        label: name of a request.
    """
    config = log.config
    assert config is not None
    steps = steps or range(log.first_step, log.num_steps)
    history, paged, size = History(log), config.allocator == "paged", config.block_size
    cells = _block_cells if paged else _region_cells
    columns = np.array([cells(history.at(step), config) for step in steps]).T  # [rows, steps]
    key = "pale: cached, grey: shared" if paged else "pale: reserved and empty"
    fig = chart(title, _with_key(source, key), x="step", y="block" if paged else "token slot")
    codes = np.unique(columns).tolist()
    fig.add_heatmap(
        x=list(steps), z=np.searchsorted(codes, columns).astype(np.uint8),
        y=np.arange(1, len(columns) + 1) if paged else (np.arange(len(columns)) + 0.5) * size,
        colorscale=_steps_of([_colour(code) for code in codes]), zmin=-0.5, zmax=len(codes) - 0.5,
        showscale=False, hoverinfo="skip",
    )  # fmt: skip
    for request in sorted({abs(code) - 1 for code in codes if code not in (0, _MANY)}):
        marker = {"color": request_colour(request), "symbol": "square", "size": 10}
        fig.add_scatter(
            x=[None], y=[None], mode="markers", marker=marker, name=f"#{label(request)}"
        )
    return fig.update_yaxes(showgrid=False).update_xaxes(showgrid=False)


_MANY = 1 << 30
"""Code of a cell that several hold. Else it is request + 1, negative if pale, or 0 if free."""


def _block_cells(state: EngineState, config: EngineConfig) -> list[int]:
    column = [0] * config.num_usable_blocks
    for block, owner in state.cached.items():
        column[block - 1] = -(owner + 1)
    for request, record in state.requests.items():
        for block in record.table:
            shared = state.ref_counts.get(block, 0) > 1
            column[block - 1] = _MANY if shared else request + 1
    return column


def _region_cells(state: EngineState, config: EngineConfig) -> list[int]:
    size = config.block_size
    column = [0] * config.num_usable_blocks
    for request, start, length, used in regions_of(state):
        for slot in range(start, start + length, size):
            column[slot // size] = (request + 1) * (1 if slot < start + used else -1)
    return column


def _colour(code: int) -> str:
    if code in (0, _MANY):
        return GREY if code else NOTHING
    return _faded(request_colour(abs(code) - 1), 1.0 if code > 0 else PALE)


def _steps_of(colours: Sequence[str]) -> list[tuple[float, str]]:
    """A colour scale of equal steps, one a colour."""
    count = len(colours)
    return [(edge / count, c) for i, c in enumerate(colours) for edge in (i, i + 1)]
