"""The airport: requests wait in a queue, sit in seats while they are computed, and leave."""

from __future__ import annotations

import math
from typing import NamedTuple

from tinyvllm_lab.engine.events import Phase
from tinyvllm_lab.engine.request import Status
from tinyvllm_lab.engine.state_rules import RequestState
from tinyvllm_lab.widgets.esm import bundle
from tinyvllm_lab.widgets.moment import Moment, phase_word, plural, reason_word
from tinyvllm_lab.widgets.palette import (
    CARD,
    COLOURS,
    EMPTY,
    PHASE_COLOURS,
    SOFT,
    TEXT,
    look_of,
    mix,
)
from tinyvllm_lab.widgets.panel import Panel
from tinyvllm_lab.widgets.still import LegendItem, StillCanvas

_TOP, _CHIP_W, _CHIP_H, _MOST_ROWS = 24, 42, 21, 12


class _Box(NamedTuple):
    x: float
    y: float
    w: float
    h: float


class _Plan(NamedTuple):
    """Where the three halls are, and how the seats stand."""

    queue: _Box
    seats: _Box
    done: _Box
    columns: int
    rows: int
    pitch: float


def _plan(width: float, seats: int) -> _Plan:
    columns = math.ceil(seats / (16 if seats > 96 else _MOST_ROWS))
    rows = math.ceil(seats / columns)
    pitch = 18 if seats > 96 else 27.6
    hall = max(rows * pitch, 168)
    side = width * 0.21
    return _Plan(
        _Box(0, _TOP, side, hall),
        _Box(side + 12, _TOP, width - 2 * side - 24, hall),
        _Box(width - side, _TOP, side, hall),
        columns,
        rows,
        min(hall / rows, pitch * 1.4),
    )


class Airport(Panel):
    """Queue, seats and exits of the engine (chapters 00 and 09)."""

    _esm = bundle("airport")
    module = "airport"
    default_title = "Airport"
    default_caption = (
        "Each request waits in the queue, takes a seat, computes its prompt (prefill), then one "
        "token a step (decode), and leaves. In a seat the bar is its progress, the notch the end "
        "of its prompt."
    )

    def still_height(self, moment: Moment) -> float:
        """Halls and the two gauges below."""
        return _TOP + _plan(1, moment.num_seats).queue.h + 52

    def draw_still(self, canvas: StillCanvas, moment: Moment) -> None:
        """The same picture as `static/airport.js`."""
        plan = _plan(canvas.width, moment.num_seats)
        _draw_heads(canvas, moment, plan)
        _draw_queue(canvas, moment, plan.queue)
        for slot in range(moment.num_seats):
            _draw_seat(canvas, moment, slot, _seat_box(plan, slot))
        _draw_done(canvas, moment, plan.done)
        _draw_gauges(canvas, moment, _TOP + plan.queue.h + 12)

    def still_legend(self, moment: Moment) -> list[LegendItem]:
        """Requests and phases."""
        phases = [
            LegendItem((PHASE_COLOURS[phase],), f"{phase_word(phase)} tokens") for phase in Phase
        ]
        request = "a request (colour, pattern and # are its own everywhere)"
        memory = [LegendItem((TEXT,), "KV in use"), LegendItem((SOFT,), "KV free, but cached")]
        preempted = LegendItem((TEXT,), "preempted", "dashed")
        return [LegendItem(COLOURS[:3], request), *phases, *memory, preempted]


def _seat_box(plan: _Plan, slot: int) -> _Box:
    w = plan.seats.w / plan.columns
    x = plan.seats.x + slot // plan.rows * w
    return _Box(x + 1, _TOP + slot % plan.rows * plan.pitch + 1.5, w - 4, plan.pitch - 3)


def _draw_heads(canvas: StillCanvas, moment: Moment, plan: _Plan) -> None:
    state = moment.state
    ended = ", ".join(f"{n:,} {word}" for word, n in moment.finish_counts)
    notes = (
        ("Queue", f"{len(state.queue):,}", plan.queue),
        ("Seats", f"{len(state.slots):,} of {moment.num_seats:,} taken", plan.seats),
        ("Done", ended or "0", plan.done),
    )
    for name, note, box in notes:
        if name != "Seats":
            canvas.card(box.x, box.y, box.w, box.h, 6, CARD)
        x = box.x + 2 + canvas.text(name, box.x + 2, 11, bold=True) + 8
        canvas.text(note, x, 11, size=11.5, colour=SOFT, most=box.x + box.w - x)


def _draw_queue(canvas: StillCanvas, moment: Moment, hall: _Box) -> None:
    waiting = moment.state.waiting
    columns = max(1, int((hall.w - 6) // (_CHIP_W + 3)))
    room = columns * max(1, int((hall.h - 2) // (_CHIP_H + 3)))
    shown = len(waiting) if len(waiting) <= room else room - 1
    for place, request in enumerate(waiting[: shown + 1]):
        x = hall.x + 4 + place % columns * (_CHIP_W + 3)
        y = hall.y + 3 + place // columns * (_CHIP_H + 3)
        if place == shown:
            more = f"+{len(waiting) - shown:,}"
            canvas.text(more, x + 2, y + _CHIP_H / 2, colour=SOFT)
            return
        canvas.request(request, x, y, _CHIP_W, _CHIP_H)
        if moment.state.requests[request].status is Status.PREEMPTED:
            canvas.dashed(x + 1, y + 1, _CHIP_W - 2, _CHIP_H - 2, TEXT)
        _label(canvas, request, _Box(x, y, _CHIP_W, _CHIP_H), "")


def _draw_seat(canvas: StillCanvas, moment: Moment, slot: int, box: _Box) -> None:
    canvas.card(*box, 5, EMPTY)
    request = moment.state.slots.get(slot)
    if request is None:
        canvas.text(str(slot), box.x + box.w / 2, box.y + box.h / 2, colour=SOFT, align="center")
        return
    canvas.request(request, *box)
    tokens, phase = moment.work.get(request, (0, Phase.DECODE))
    words = "decode" if phase == Phase.DECODE else f"{phase_word(phase)} {tokens:,}"
    _label(canvas, request, box, words if tokens else "")
    if box.h > 16 and box.w > 36:
        _draw_progress(canvas, request, moment.state.requests[request], box)


def _draw_progress(canvas: StillCanvas, request: int, record: RequestState, box: _Box) -> None:
    total = record.prompt_tokens + record.max_tokens
    if total <= 0:
        return
    look = look_of(request)
    height = max(3.0, box.h * 0.12)
    full, top = box.w - 10, box.y + box.h - height - 2
    canvas.rect(box.x + 5, top, full, height, mix(look.fill, look.ink, 0.35))
    canvas.rect(box.x + 5, top, full * min(1, record.num_computed / total), height, look.ink)
    notch = box.x + 5 + full * record.prompt_tokens / total
    canvas.rect(notch - 0.75, top - 2, 1.5, height + 3, look.ink)


def _draw_done(canvas: StillCanvas, moment: Moment, hall: _Box) -> None:
    room = int((hall.h - 2) // (_CHIP_H + 3))
    for place, request in enumerate(moment.last_finished[:room]):
        box = _Box(hall.x + 4, hall.y + 3 + place * (_CHIP_H + 3), hall.w - 8, _CHIP_H)
        canvas.request(request, *box)
        record = moment.state.requests.get(request, RequestState())
        _label(canvas, request, box, f"{reason_word(record.reason)} · {record.num_output:,}")


def _label(canvas: StillCanvas, request: int, box: _Box, words: str) -> None:
    """Number on the left, words on the right, on plates of the request's colour."""
    look = look_of(request)
    label = f"#{request}"
    y = box.y + box.h / 2 - (1.5 if box.h > 24 else 0)
    width = min(len(label) * 8 + 6, box.w - 4)
    canvas.card(box.x + 3, y - 8.5, width, 17, 3, look.fill)
    canvas.text(label, box.x + 6, y, bold=True, colour=look.ink, most=box.w - 8)
    room = box.w - 16 - width
    if not words or room < 30:
        return
    words_width = min(room, len(words) * 6.3 + 8)
    canvas.card(box.x + box.w - words_width - 3, y - 8.5, words_width, 17, 3, look.fill)
    right = box.x + box.w - 6
    canvas.text(words, right, y, size=11, colour=look.ink, align="right", most=room)


def _draw_gauges(canvas: StillCanvas, moment: Moment, y: float) -> None:
    budget, phases = moment.config.max_num_batched_tokens, moment.phases
    half = (canvas.width - 12) / 2
    parts = [(n / budget, PHASE_COLOURS[phase]) for phase, n in enumerate(phases)]
    note = f"{sum(phases):,} of {plural(budget, 'token')}"
    _draw_gauge(canvas, _Box(0, y, half, 0), "This step", note, parts)
    unit = "block" if moment.is_paged else "token slot"
    note = f"{moment.used:,} of {plural(moment.capacity, unit)}"
    if moment.num_cached:
        note += f", {moment.num_cached:,} more cached"
    parts = [(moment.used / moment.capacity, TEXT), (moment.num_cached / moment.capacity, SOFT)]
    _draw_gauge(canvas, _Box(half + 12, y, half, 0), "KV memory", note, parts)


def _draw_gauge(
    canvas: StillCanvas, box: _Box, name: str, note: str, parts: list[tuple[float, str]]
) -> None:
    x = box.x + 2 + canvas.text(name, box.x + 2, box.y + 8, bold=True) + 8
    canvas.text(note, x, box.y + 8, size=11.5, colour=SOFT, most=box.x + box.w - x)
    canvas.rect(box.x, box.y + 22, box.w, 13, EMPTY)
    left = box.x
    for share, colour in parts:
        canvas.rect(left, box.y + 22, box.w * share, 13, colour)
        left += box.w * share
