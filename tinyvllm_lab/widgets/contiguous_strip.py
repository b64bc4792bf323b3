"""The contiguous strip: the token slots of a contiguous allocator, in a row, with their holes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

from tinyvllm_lab.engine.events import Kind
from tinyvllm_lab.widgets.esm import bundle
from tinyvllm_lab.widgets.moment import Moment, plural
from tinyvllm_lab.widgets.palette import COLOURS, EMPTY, PAGE, SOFT, WARN, look_of, mix
from tinyvllm_lab.widgets.panel import Panel
from tinyvllm_lab.widgets.regions import Region, Strip, strip_of
from tinyvllm_lab.widgets.still import LegendItem, StillCanvas

_SLOTS_A_LINE, _MOST_LINES = 512, 10
_LEFT, _TOP, _ROW, _BAR = 44, 40, 26, 19  # px
_TAIL = 0.6  # share of the page in the colour of reserved, empty slots
PAGED = "The KV cache of this run is paged: it has blocks, not regions. BlockMap shows them."


class _Lines(NamedTuple):
    """How the slots are wrapped."""

    number: int
    slots: int
    scale: float

    def pieces(self, start: int, length: int) -> Iterator[tuple[float, float, float]]:
        """Where some slots lie: x, y and width of their part of each line."""
        at, end = start, start + length
        while at < end:
            line, place = divmod(at, self.slots)
            part = min(end - at, self.slots - place)
            yield _LEFT + place * self.scale, _TOP + line * _ROW, part * self.scale
            at += part


def _lines(moment: Moment, width: float) -> _Lines:
    """So many whole blocks a line that there are not too many lines."""
    capacity, size = moment.capacity, moment.config.block_size
    wanted = max(1, min(_MOST_LINES, math.ceil(capacity / _SLOTS_A_LINE)))
    slots = max(1, math.ceil(capacity / wanted / size)) * size
    return _Lines(max(1, math.ceil(capacity / slots)), slots, (width - _LEFT - 2) / slots)


class ContiguousStrip(Panel):
    """Regions and holes of the contiguous allocators (chapter 09)."""

    _esm = bundle("contiguous_strip")
    module = "contiguous_strip"
    default_title = "Contiguous strip"
    default_caption = (
        "All token slots of the KV cache in the order of their addresses, wrapped over lines. A "
        "request holds one region; a new one needs a hole that takes it whole."
    )

    def still_height(self, moment: Moment) -> float:
        """Two lines of words, and the strip."""
        if moment.is_paged:
            return 24
        return _TOP + _lines(moment, 0).number * _ROW

    def draw_still(self, canvas: StillCanvas, moment: Moment) -> None:
        """The same picture as `static/contiguous_strip.js`."""
        if moment.is_paged:
            canvas.text(PAGED, 2, 12, colour=SOFT, most=canvas.width - 4)
            return
        strip = strip_of(moment.state, moment.capacity)
        lines = _lines(moment, canvas.width)
        for row, text in enumerate(summary(strip)):
            canvas.text(text, 2, 9 + 16 * row, colour=SOFT, most=canvas.width - 4)
        _draw_holes(canvas, strip, lines)
        for region in strip.regions:
            _draw_region(canvas, region, lines)
        _draw_moves(canvas, moment, strip, lines)
        for region in strip.regions:
            _draw_label(canvas, region, lines)

    def still_legend(self, moment: Moment) -> list[LegendItem]:
        """Parts of a region, and holes."""
        if moment.is_paged:
            return []
        plain = COLOURS[1]
        return [
            LegendItem(COLOURS[:3], "slots of a request that hold tokens"),
            LegendItem((mix(plain, PAGE, _TAIL),), "reserved for it, but empty"),
            LegendItem((EMPTY,), "hole"),
            LegendItem((SOFT,), "the largest hole", "dashed"),
            LegendItem((WARN,), "moved in this step: from the dot to the outline", "outline"),
        ]


def summary(strip: Strip) -> tuple[str, str]:
    """What is held and what is free, each with its waste."""
    share = f" ({strip.internal / strip.held:.1%})" if strip.held else ""
    held = (
        f"{strip.held:,} of {plural(strip.capacity, 'token slot')} held by "
        f"{plural(len(strip.regions), 'region')} · internal waste: {strip.internal:,} of them "
        f"are empty{share}"
    )
    largest = f", the largest {strip.largest.length:,}" if strip.largest else ""
    free = (
        f"{strip.free:,} free in {plural(len(strip.holes), 'hole')}{largest} · external waste: "
        f"{strip.external:,} outside the largest"
    )
    return held, free


def _draw_holes(canvas: StillCanvas, strip: Strip, lines: _Lines) -> None:
    for number in range(lines.number):
        y = _TOP + number * _ROW + _BAR / 2
        label = f"{number * lines.slots:,}"
        canvas.text(label, _LEFT - 6, y, size=10.5, colour=SOFT, align="right")
    for x, y, width in lines.pieces(0, strip.capacity):
        canvas.rect(x, y, width, _BAR, EMPTY)
    if strip.largest:
        for x, y, width in lines.pieces(*strip.largest):
            canvas.dashed(x, y, width, _BAR, SOFT)


def _draw_region(canvas: StillCanvas, region: Region, lines: _Lines) -> None:
    look = look_of(region.request)
    for x, y, width in lines.pieces(region.start, region.length):
        canvas.rect(x, y, width, _BAR, mix(look.fill, PAGE, _TAIL))
    for x, y, width in lines.pieces(region.start, region.used):
        canvas.request(region.request, x, y, width, _BAR, 0)
    for x, y, _ in lines.pieces(region.start, 1):
        canvas.rect(x, y, 1, _BAR, PAGE)  # where one ends and the next begins


def _draw_label(canvas: StillCanvas, region: Region, lines: _Lines) -> None:
    """On the widest piece."""
    pieces = lines.pieces(region.start, region.length)
    x, y, width = max(pieces, key=lambda piece: piece[2], default=(0, 0, 0))
    look = look_of(region.request)
    needs = canvas.text_width(label := f"#{region.request}", 10.5) + 8
    if width > needs + 2:
        canvas.card(x + 3, y + 3, needs, _BAR - 6, 3, look.fill)
        canvas.text(label, x + 7, y + _BAR / 2, size=10.5, bold=True, colour=look.ink)


def _draw_moves(canvas: StillCanvas, moment: Moment, strip: Strip, lines: _Lines) -> None:
    regions = {region.request: region for region in strip.regions}
    for event in moment.events:
        region = regions.get(event.a)
        if event.kind is not Kind.REGION_MOVE or region is None:
            continue
        pieces = list(lines.pieces(region.start, region.length))
        for x, y, width in pieces:
            canvas.card(x + 0.5, y + 0.5, max(width - 1, 2), _BAR - 1, 1, None, WARN, 2)
        x, y, _ = next(lines.pieces(event.b, 1))
        canvas.line(x + 4, y + _BAR, pieces[0][0], pieces[0][1] + _BAR / 2, WARN)
        canvas.card(x, y + _BAR - 4, 8, 8, 4, WARN, PAGE)
