"""The slot timeline: rows are seats, columns steps; a bar's height says what was computed."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from tinyvllm_lab.engine.events import Kind, Phase
from tinyvllm_lab.widgets.esm import bundle
from tinyvllm_lab.widgets.moment import Moment
from tinyvllm_lab.widgets.palette import (
    CARD,
    COLOURS,
    EMPTY,
    LINE,
    PAGE,
    PHASE_COLOURS,
    SOFT,
    TEXT,
    WARN,
    look_of,
    mix,
)
from tinyvllm_lab.widgets.panel import Panel
from tinyvllm_lab.widgets.still import INNER_WIDTH, LegendItem, StillCanvas

_LEFT, _TOP, _BATCH, _MOST_HEIGHT = 38.0, 5.0, 41.0, 264.0
_HEIGHTS = {Phase.PREFILL: 1.0, Phase.DECODE: 0.5, Phase.RECOMPUTE: 1.0}


@dataclass(slots=True)
class _Stretch:
    """A request in a seat (phase None), or computing the same phase, in steps start .. end - 1."""

    slot: int
    request: int
    phase: int | None
    start: int
    end: int


@dataclass(slots=True)
class _History:
    """What the window shows: stretches by start, preemptions, tokens of each step by phase."""

    stays: list[_Stretch]
    work: list[_Stretch]
    preemptions: list[tuple[int, int]]
    tokens: dict[int, list[int]]


class _Window(NamedTuple):
    first: int
    pitch: float
    rows: int
    row: float

    def x(self, step: float) -> float:
        return _LEFT + (step - self.first) * self.pitch

    @property
    def bottom(self) -> float:
        return _TOP + self.rows * self.row + _BATCH


class SlotTimeline(Panel):
    """Who sat where, when, and what was computed (chapters 08 and 09).

    Options:
        steps: most steps that are shown at a time.
    """

    _esm = bundle("slot_timeline")
    module = "slot_timeline"
    default_title = "Slot timeline"
    default_caption = (
        "Rows are seats, columns are steps of the engine. A pale stretch is a seat that is taken "
        "while nothing is computed for it."
    )
    default_options: ClassVar[dict[str, Any]] = {"steps": 160}

    def still_height(self, moment: Moment) -> float:
        """Rows, tokens of each step, and the axis."""
        return self._window(moment).bottom + 38

    def _window(self, moment: Moment) -> _Window:
        span = min(self.options["steps"], max(moment.step + 1 - moment.log.first_step, 20))
        rows = max(moment.num_seats, 1)
        row = max(3.0, min(25.0, _MOST_HEIGHT / rows))
        first = max(moment.log.first_step, moment.step + 1 - span)
        return _Window(first, (INNER_WIDTH - _LEFT - 2) / span, rows, row)

    def draw_still(self, canvas: StillCanvas, moment: Moment) -> None:
        """The past of the step, as `static/slot_timeline.js` draws it."""
        window = self._window(moment)
        history = _history(moment, window.first)
        _draw_seats(canvas, window)
        for stay in history.stays:
            _draw_stay(canvas, window, stay)
        for work in history.work:
            _draw_work(canvas, window, work)
        for stay in history.stays:
            _draw_label(canvas, window, stay)
        for step, slot in history.preemptions:
            y = _TOP + (slot + 0.5) * window.row
            radius = max(2.0, min(window.row * 0.22, 5.0))
            x = window.x(step) + 2
            canvas.card(x - radius, y - radius, 2 * radius, 2 * radius, radius, WARN)
        _draw_batch(canvas, moment, window, history)
        _draw_axis(canvas, moment, window)

    def still_legend(self, moment: Moment) -> list[LegendItem]:
        """Bars, marks and the tokens below."""
        bars = "high bar: prefill · low bar: decode (in the request's colour)"
        tokens = (PHASE_COLOURS[Phase.PREFILL], PHASE_COLOURS[Phase.DECODE])
        again = LegendItem((PHASE_COLOURS[Phase.RECOMPUTE],), "computed again", "outline")
        return [
            LegendItem(COLOURS[:3], bars),
            LegendItem((EMPTY,), "seat empty"),
            again,
            LegendItem((WARN,), "preempted", "dot"),
            LegendItem(tokens, "below: tokens of the step, prefill and decode"),
        ]


class _Reader:
    """Walks the events and keeps what the window shows."""

    def __init__(self, moment: Moment, first: int) -> None:
        self.step = moment.log.first_step - 1
        self.first = first
        self.out = _History([], [], [], {})
        self.seats: dict[int, _Stretch] = {}  # by request
        self.doing: dict[int, _Stretch] = {}
        for slot, request in moment.log.oldest_state().slots.items():
            self.sit(request, slot)

    def take(self, kind: int, a: int, b: int, c: int) -> None:
        if kind == Kind.STEP:
            self.step += 1
            self.out.tokens[self.step] = [0, 0, 0]
        elif kind in (Kind.ADMIT, Kind.RESUME):
            self.sit(a, b)
        elif kind == Kind.FORK and c >= 0:
            self.sit(b, c)
        elif kind == Kind.SCHEDULED:
            self.works(a, b, c)
        elif kind in (Kind.PREEMPT, Kind.FINISH):
            self.stand(a)
            if kind == Kind.PREEMPT:
                self.out.preemptions.append((self.step, b))

    def sit(self, request: int, slot: int) -> None:
        self.seats[request] = _Stretch(slot, request, None, self.step, -1)

    def stand(self, request: int) -> None:
        stay, work = self.seats.pop(request, None), self.doing.pop(request, None)
        for stretch, target in ((stay, self.out.stays), (work, self.out.work)):
            if stretch is not None:
                self.close(stretch, target, self.step + 1)

    def works(self, request: int, tokens: int, phase: int) -> None:
        stay, work = self.seats.get(request), self.doing.get(request)
        if self.step in self.out.tokens and 0 <= phase < 3:
            self.out.tokens[self.step][phase] += tokens
        if stay is None:
            return
        if work is not None and work.phase == phase and work.end == self.step:
            work.end = self.step + 1
            return
        if work is not None:
            self.close(work, self.out.work, work.end)
        self.doing[request] = _Stretch(stay.slot, request, phase, self.step, self.step + 1)

    def close(self, stretch: _Stretch, target: list[_Stretch], end: int) -> None:
        stretch.end = min(stretch.end, end) if stretch.end >= 0 else end
        stretch.start = max(stretch.start, self.first)
        if stretch.end > stretch.start:
            target.append(stretch)


def _history(moment: Moment, first: int) -> _History:
    reader = _Reader(moment, first)
    kinds = [Kind.STEP, Kind.ADMIT, Kind.RESUME, Kind.FORK, Kind.SCHEDULED, Kind.PREEMPT,
             Kind.FINISH]  # fmt: skip
    rows = moment.past[np.isin(moment.past[:, 0], [int(kind) for kind in kinds])]
    for row in rows.tolist():
        reader.take(*row)
    for request in list(reader.seats):
        reader.stand(request)
    history = reader.out
    history.preemptions = [mark for mark in history.preemptions if mark[0] >= first]
    return history


def _draw_seats(canvas: StillCanvas, window: _Window) -> None:
    every = math.ceil(13 / window.row)
    for slot in range(window.rows):
        y = _TOP + slot * window.row
        canvas.rect(_LEFT, y + 0.5, canvas.width - _LEFT, window.row - 1, CARD)
        if slot % every == 0:
            label = str(slot)
            canvas.text(label, _LEFT - 7, y + window.row / 2, size=11, colour=SOFT, align="right")
    canvas.text("seat", 0, _TOP + 6, size=10.5, colour=SOFT)


def _draw_stay(canvas: StillCanvas, window: _Window, stay: _Stretch) -> None:
    width = max((stay.end - stay.start) * window.pitch - 0.7, 0.7)
    y = _TOP + stay.slot * window.row + 0.5
    fill = mix(look_of(stay.request).fill, CARD, 0.72)
    canvas.card(window.x(stay.start), y, width, window.row - 1, 3, fill)


def _draw_work(canvas: StillCanvas, window: _Window, work: _Stretch) -> None:
    height = max(1.5, (window.row - 1) * _HEIGHTS[Phase(work.phase or 0)])
    y = _TOP + work.slot * window.row + (window.row - height) / 2
    x, width = window.x(work.start), max((work.end - work.start) * window.pitch - 0.7, 1.0)
    canvas.request(work.request, x, y, width, height, 0)
    if work.phase == Phase.RECOMPUTE:
        canvas.card(x, y, width, height, 1, None, PHASE_COLOURS[Phase.RECOMPUTE], 2)


def _draw_label(canvas: StillCanvas, window: _Window, stay: _Stretch) -> None:
    label = f"#{stay.request}"
    needs = len(label) * 7.2 + 4
    if window.row < 13 or (stay.end - stay.start) * window.pitch < needs + 4:
        return
    look = look_of(stay.request)
    x, y = window.x(stay.start) + 2, _TOP + (stay.slot + 0.5) * window.row
    canvas.card(x, y - 7, needs, 14, 3, look.fill)
    canvas.text(label, x + 2, y, size=10.5, bold=True, colour=look.ink, most=needs)


def _draw_batch(canvas: StillCanvas, moment: Moment, window: _Window, history: _History) -> None:
    room = _BATCH * 0.82
    budget = moment.config.max_num_batched_tokens
    canvas.rect(_LEFT, window.bottom - room, canvas.width - _LEFT, room, CARD)
    for step, tokens in history.tokens.items():
        y = window.bottom
        for phase in (Phase.DECODE, Phase.PREFILL, Phase.RECOMPUTE):
            height = room * tokens[phase] / budget
            y -= height
            if step >= window.first:
                width = max(window.pitch - 0.4, 0.6)
                canvas.rect(window.x(step), y, width, height, PHASE_COLOURS[phase])
    canvas.text("tokens", _LEFT - 5, window.bottom - _BATCH * 0.4, size=10, colour=SOFT,
                align="right")  # fmt: skip


def _draw_axis(canvas: StillCanvas, moment: Moment, window: _Window) -> None:
    y = window.bottom
    span = (canvas.width - _LEFT) / window.pitch
    each = tick_step(span / 8)
    for tick in range(math.ceil(window.first / each) * each, int(window.first + span), each):
        x = window.x(tick + 0.5)
        canvas.line(x, y, x, y + 4, LINE)
        if x < canvas.width - 18:
            canvas.text(f"{tick:,}", x, y + 13, size=10.5, colour=SOFT, align="center")
    canvas.text("step", _LEFT - 5, y + 13, size=10.5, colour=SOFT, align="right")
    x = min(window.x(moment.step + 1), canvas.width - 2)
    canvas.rect(x - 1, 0, 2, y, TEXT)
    now = max(_LEFT + 24, min(x, canvas.width - 24))
    canvas.card(now - 24, y + 21, 48, 16, 3, TEXT)
    canvas.text(f"{moment.step:,}", now, y + 29, size=10.5, bold=True, colour=PAGE, align="center")


def tick_step(wanted: float) -> int:
    """1, 2 or 5 times a power of ten, not less than `wanted`."""
    power = 10 ** math.floor(math.log10(max(wanted, 1)))
    return next(n * power for n in (1, 2, 5, 10) if n * power >= max(wanted, 1))
