"""The block tables: for each running request, which physical block holds which part of it."""

from __future__ import annotations

from typing import Any, ClassVar

from tinyvllm_lab.widgets.esm import bundle
from tinyvllm_lab.widgets.holdings import holders
from tinyvllm_lab.widgets.moment import Moment, plural
from tinyvllm_lab.widgets.palette import COLOURS, PAGE, SOFT, TEXT, look_of, mix
from tinyvllm_lab.widgets.panel import Panel
from tinyvllm_lab.widgets.still import LegendItem, StillCanvas

_LEFT, _TOP, _CHIP_W, _CHIP_H, _PITCH = 65.0, 25.0, 36.0, 23.0, 48.0
_HEAD = 2  # first entries of a long table that are shown before its tail
_EMPTY = 0.72  # share of the page in the colour of the part of a block without tokens


class BlockTable(Panel):
    """Block tables: logical to physical blocks (chapters 10 and 12).

    Options:
        rows: most tables that are shown; the selected one always is.
    """

    _esm = bundle("block_table")
    module = "block_table"
    default_title = "Block tables"
    default_caption = (
        "A request's tokens look contiguous to it (above: entry of its table), but lie anywhere "
        "in the pool (below: number of the block)."
    )
    default_options: ClassVar[dict[str, Any]] = {"rows": 6}

    def still_height(self, moment: Moment) -> float:
        """A line of text and one row for each table."""
        return _TOP + min(moment.num_seats, self.options["rows"]) * _PITCH + 5

    def draw_still(self, canvas: StillCanvas, moment: Moment) -> None:
        """The same picture as `static/block_table.js`."""
        everybody = [r for r in holders(moment.state) if moment.state.requests[r].table]
        shown = everybody[: self.options["rows"]]
        hidden = len(everybody) - len(shown)
        more = f" · {plural(hidden, 'more table')}" if hidden else ""
        head = f"logical block (entry of the table) → physical block (place in the pool){more}"
        canvas.text(head, 2, 10, colour=SOFT, most=canvas.width - 4)
        if not shown:
            canvas.text("No request holds a block at this step.", _LEFT, _TOP + 17, colour=SOFT)
        for place, request in enumerate(shown):
            _draw_row(canvas, moment, request, _TOP + place * _PITCH + 14)

    def still_legend(self, moment: Moment) -> list[LegendItem]:
        """Marks of a block."""
        fill = COLOURS[1]
        return [
            LegendItem((fill,), "physical block, full"),
            LegendItem((fill, mix(fill, PAGE, _EMPTY)), "partly filled"),
            LegendItem((TEXT,), "shared: other tables point to it too", "outline"),
            LegendItem((TEXT,), "has a hash: an equal prefix finds it", "line"),
        ]


def _draw_row(canvas: StillCanvas, moment: Moment, request: int, y: float) -> None:
    look = look_of(request)
    table = moment.state.requests[request].table
    canvas.request(request, 0, y, 55, _CHIP_H)
    canvas.card(3, y + 2, 38, _CHIP_H - 4, 3, look.fill)
    canvas.text(f"#{request}", 7, y + _CHIP_H / 2, bold=True, colour=look.ink)
    columns = int((canvas.width - _LEFT) / (_CHIP_W + 3))
    entries = _entries(len(table), columns)
    for place, entry in enumerate(entries):
        x = _LEFT + place * (_CHIP_W + 3)
        if entry is not None:
            _draw_entry(canvas, moment, request, entry, x, y)
        else:
            hidden = f"+{len(table) - len(entries) + 1:,}"
            canvas.text(hidden, x + _CHIP_W / 2, y + _CHIP_H / 2, colour=SOFT, align="center")


def _entries(length: int, columns: int) -> list[int | None]:
    """All entries of a table, or its head and its tail; None stands for those between."""
    if length <= columns:
        return [*range(length)]
    return [*range(_HEAD), None, *range(length - columns + _HEAD + 1, length)]


def _draw_entry(
    canvas: StillCanvas, moment: Moment, request: int, entry: int, x: float, y: float
) -> None:
    look, record = look_of(request), moment.state.requests[request]
    block, size = record.table[entry], moment.config.block_size
    share = max(0.0, min(1.0, (record.num_computed - entry * size) / size))
    canvas.text(str(entry), x + _CHIP_W / 2, y - 7, size=10, colour=SOFT, align="center")
    canvas.card(x, y, _CHIP_W, _CHIP_H, 4, mix(look.fill, PAGE, _EMPTY))
    canvas.card(x, y, _CHIP_W * share, _CHIP_H, 4 if share == 1 else 1, look.fill)
    ink = look.ink if share > 0.5 else TEXT
    middle = x + _CHIP_W / 2
    canvas.text(str(block), middle, y + _CHIP_H / 2, bold=True, colour=ink, align="center")
    references = moment.state.ref_counts.get(block, 0)
    if references > 1:
        canvas.card(x + 1, y + 1, _CHIP_W - 2, _CHIP_H - 2, 3, None, TEXT, 2)
        canvas.text(f"×{references}", x + _CHIP_W - 3, y + _CHIP_H + 5, size=9, align="right")
    if block in moment.state.cached:
        canvas.rect(middle - 3, y + _CHIP_H - 4.5, 6, 2.5, ink)
