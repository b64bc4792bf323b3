"""The explorer's picture for those who cannot show a widget: the charts of `latency_throughput.js`.

The two files draw the same: latency over throughput, and goodput over the offered rate.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from tinyvllm_lab.engine.metrics import SLO
from tinyvllm_lab.simulate.sweep import LoadPoint
from tinyvllm_lab.widgets.load_curve import Curve, num_requests
from tinyvllm_lab.widgets.moment import duration
from tinyvllm_lab.widgets.palette import CARD, COLOURS, LINE, PAGE, SOFT, TEXT, mix
from tinyvllm_lab.widgets.still import LegendItem, StillCanvas, frame_still, to_png

FIRST, GOOD, THIRD = COLOURS[4], COLOURS[2], COLOURS[5]
GRID = mix(LINE, PAGE, 0.6)
PALE = 0.62  # share of the page in the colour of the former curve
LATENCIES = {"ttft": "TTFT", "tpot": "TPOT", "e2e": "end to end"}
THROUGHPUTS = {
    "tokens": ("output_tokens_per_s", "output tokens a second"),
    "requests": ("requests_per_s", "requests served a second"),
}
_HEIGHT, _GAP = 270.0, 18.0  # px

Place = tuple[float, float]


@dataclass(frozen=True)
class Axis:
    """From `low` to `high`, with ticks at round values."""

    low: float
    high: float
    ticks: Sequence[float]
    text: Callable[[float], str]
    log: bool = False

    @classmethod
    def linear(cls, high: float, text: Callable[[float], str], most: int = 6) -> Axis:
        """From 0 on."""
        power = 10 ** math.floor(math.log10(high / most))
        step = next(n * power for n in (1, 2, 5, 10) if n * power >= 0.999 * high / most)
        return cls(0.0, high, [i * step for i in range(int(high / step) + 1)], text)

    @classmethod
    def logarithmic(cls, low: float, high: float, text: Callable[[float], str]) -> Axis:
        """Ticks at 1, 2, 5, 10, …"""
        powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        ticks = [n * 10.0**power for power in powers for n in (1, 2, 5)]
        return cls(low, high, [v for v in ticks if low <= v <= high], text, log=True)

    def along(self, value: float) -> float:
        """How far along the axis a value lies, 0 to 1."""
        part = (value - self.low) / (self.high - self.low)
        if self.log:
            part = math.log(value / self.low) / math.log(self.high / self.low)
        return min(max(part, 0.0), 1.0)


class Chart:
    """A part of a canvas with two axes.

    Args:
        canvas: to draw on.
        left, width: of the part, in px.
        x, y: the axes.
    """

    def __init__(self, canvas: StillCanvas, left: float, width: float, x: Axis, y: Axis) -> None:
        self.canvas, self.axes = canvas, (x, y)
        self.edge = left
        self.left = left + 8 + max(canvas.text_width(y.text(v), 10.5) for v in y.ticks)
        self.right, self.top, self.bottom = left + width - 8, 32.0, canvas.height - 36

    def place(self, x: float, y: float) -> Place:
        """Where a point lies, in px."""
        along_x, along_y = self.axes[0].along(x), self.axes[1].along(y)
        return (
            self.left + along_x * (self.right - self.left),
            self.bottom - along_y * (self.bottom - self.top),
        )

    def grid(self, x_name: str, y_name: str) -> None:
        """Grid, ticks and names of the axes."""
        canvas, (across, up) = self.canvas, self.axes
        for value in across.ticks:
            x = self.place(value, up.low)[0]
            canvas.line(x, self.top, x, self.bottom, GRID)
            canvas.text(across.text(value), x, self.bottom + 11, size=10.5, colour=SOFT,
                        align="center")  # fmt: skip
        for value in up.ticks:
            y = self.place(across.low, value)[1]
            canvas.line(self.left, y, self.right, y, GRID)
            canvas.text(up.text(value), self.left - 5, y, size=10.5, colour=SOFT, align="right")
        middle = (self.left + self.right) / 2
        canvas.text(x_name, middle, self.bottom + 28, size=11, colour=SOFT, align="center")
        canvas.text(y_name, self.edge, 8, bold=True)

    def upright(self, value: float, colour: str, label: str) -> None:
        """A line across the chart, with its name on top."""
        x = self.place(value, self.axes[1].low)[0]
        self.canvas.line(x, self.top, x, self.bottom, colour, 1.5)
        align: Literal["left", "right"] = "right" if x > (self.left + self.right) / 2 else "left"
        self.canvas.text(label, x, self.top - 8, size=10.5, colour=SOFT, align=align)

    def line(self, places: Sequence[Place], colour: str, width: float = 2) -> None:
        """A line through points, by their values."""
        self.canvas.path([self.place(*p) for p in places if not math.isnan(p[1])], colour, width)

    def dot(self, x: float, y: float, colour: str, *, hollow: bool, ringed: bool) -> None:
        """A mark; the best rate has a ring around it."""
        if math.isnan(y):
            return
        x, y = self.place(x, y)
        if ringed:
            self.canvas.card(x - 9, y - 9, 18, 18, 9, None, THIRD, 2)
        self.canvas.card(x - 4.5, y - 4.5, 9, 9, 4.5, PAGE if hollow else colour, colour, 2)


def draw_still(
    title: str, curve: Curve, former: Curve | None, choice: Mapping[str, Any], caption: str
) -> bytes:
    """The picture, as PNG."""
    picture = _Picture(curve, former, choice)
    knobs = curve.knobs
    caption = caption.format(
        requests=f"{num_requests(knobs):,}", model=knobs["model"], gpu=knobs["gpu"]
    )
    text = " ".join([*picture.sentences(), caption])
    head = f"{title}: {knobs['model']} on {knobs['gpu']}"
    return to_png(
        frame_still(head, "simulated", picture.now(), picture.legend(), text, _HEIGHT, picture.draw)
    )


class _Picture:
    """The curves with what the knobs say of them."""

    def __init__(self, curve: Curve, former: Curve | None, choice: Mapping[str, Any]) -> None:
        self.curve, self.choice = curve, choice
        self.sweeps = [c.sweep for c in (former, curve) if c is not None and c.sweep is not None]
        self.sweep = curve.sweep
        self.has_former = former is not None
        self.slo = SLO(ttft=choice["ttft_ms"] / 1e3, tpot=choice["tpot_ms"] / 1e3)
        self.share = int(choice["percentile"][1:]) / 100
        self.best = self.sweep.best(self.slo, self.share) if self.sweep else None

    def now(self) -> str:
        """How far it has come."""
        if self.curve.error:
            return "not computed"
        count = len(self.curve.points)
        return f"{count} rates" if self.curve.done else f"computing: {count} rates so far"

    def sentences(self) -> list[str]:
        """What the curve says."""
        if self.curve.error:
            return [self.curve.error]
        if self.sweep is None:
            return []
        limits = f"TTFT <= {self.choice['ttft_ms']:,} ms and TPOT <= {self.choice['tpot_ms']} ms"
        who = f"{self.choice['percentile'][1:]} % of the requests"
        best = f"Up to {self.best.rate:.3g} requests/s {who} meet {limits}." if self.best else (
            f"At no rate here do {who} meet {limits}."
        )  # fmt: skip
        capacity = self.sweep.capacity
        return [
            f"Capacity: {capacity.requests_per_s:.3g} requests/s, "
            f"{capacity.output_tokens_per_s:,.0f} output tokens/s.",
            best,
        ]

    def legend(self) -> list[LegendItem]:
        """What colours and marks mean."""
        items = [
            LegendItem((FIRST,), "latency", "line"),
            LegendItem((GOOD,), "goodput: requests a second that meet both limits", "line"),
            LegendItem((SOFT,), "served", "line"),
            LegendItem((LINE,), "offered", "line"),
            LegendItem((THIRD,), "limit, best rate", "line"),
        ]
        pale = (mix(FIRST, PAGE, PALE), mix(GOOD, PAGE, PALE))
        return [*items, LegendItem(pale, "before")] if self.has_former else items

    def draw(self, canvas: StillCanvas) -> None:
        """Both charts side by side."""
        width = (canvas.width - _GAP) / 2
        self._draw_latency(canvas, width)
        self._draw_goodput(canvas, width)

    def _draw_latency(self, canvas: StillCanvas, width: float) -> None:
        name, choice = self.choice["latency"], self.choice
        throughput, x_name = THROUGHPUTS[choice["throughput"]]

        def place(point: LoadPoint) -> Place:
            latency = 1e6 * getattr(point.latency(name), choice["percentile"])
            return getattr(point, throughput), latency

        limit = {"ttft": choice["ttft_ms"], "tpot": choice["tpot_ms"]}.get(name, 0) * 1e3
        times = [place(p)[1] for s in self.sweeps for p in s.points] + [limit]
        known = [time for time in times if time > 0] or [1e4, 1e6]
        widest = 1.08 * _most(
            getattr(p, throughput) for s in self.sweeps for p in (s.capacity, *s.points)
        )
        y = Axis.logarithmic(min(known) / 1.4, max(known) * 1.4, duration)
        chart = Chart(canvas, 0, width, Axis.linear(widest, lambda v: f"{v:,.0f}"), y)
        chart.grid(x_name, f"{LATENCIES[name]}, {choice['percentile']}")
        if self.sweep:
            chart.upright(getattr(self.sweep.capacity, throughput), TEXT, "capacity")
        if limit:
            chart.line([(0, limit), (widest, limit)], THIRD, 1.5)
        self._draw_curve(chart, place, FIRST)

    def _draw_goodput(self, canvas: StillCanvas, width: float) -> None:
        rates = [p.rate for s in self.sweeps for p in s.points]
        rates += [1.5 * s.capacity.requests_per_s for s in self.sweeps]
        widest = 1.02 * _most(rates)
        top = 1.12 * _most(p.requests_per_s for s in self.sweeps for p in (s.capacity, *s.points))
        x, y = Axis.linear(widest, _rate), Axis.linear(top, _rate)
        chart = Chart(canvas, width + _GAP, width, x, y)
        full = self.sweep.saturation if self.sweep else None
        if full is not None:
            left = chart.place(full.rate, 0)[0]
            canvas.rect(left, chart.top, chart.right - left, chart.bottom - chart.top, CARD)
        chart.grid("requests offered a second", "requests a second")
        if full is not None:
            canvas.text("the queue grows", chart.right - 6, chart.top + 10, size=10.5,
                        colour=SOFT, align="right")  # fmt: skip
        chart.line([(0, 0), (min(top, widest), min(top, widest))], LINE, 1.5)
        if self.sweep:
            chart.line([(p.rate, p.requests_per_s) for p in self.sweep.points], SOFT, 1.5)
        if self.best:
            chart.upright(self.best.rate, THIRD, f"best: {_rate(self.best.rate)}")
        self._draw_curve(chart, lambda p: (p.rate, p.goodput(self.slo)), GOOD)

    def _draw_curve(self, chart: Chart, place: Callable[[LoadPoint], Place], colour: str) -> None:
        """The former curve, the curve, and its marks."""
        if self.has_former:
            pale = mix(colour, PAGE, PALE)
            chart.line([place(p) for p in self.sweeps[0].points], pale)
        points: Sequence[LoadPoint] = self.sweep.points if self.sweep else ()
        chart.line([place(point) for point in points], colour)
        for point in points:
            ringed = point is self.best
            chart.dot(*place(point), colour, hollow=point.is_saturated, ringed=ringed)


def _most(values: Any) -> float:
    """The largest, or 1 if there is none."""
    return max((v for v in values if math.isfinite(v)), default=0.0) or 1.0


def _rate(rate: float) -> str:
    return f"{rate:.3g}"
