"""The metric strip: what an operator watches, as numbers now and as lines over the run."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tinyvllm_lab.engine.events import Kind
from tinyvllm_lab.widgets.esm import bundle
from tinyvllm_lab.widgets.holdings import holdings_of
from tinyvllm_lab.widgets.moment import Moment, duration
from tinyvllm_lab.widgets.palette import CARD, COLOURS, LINE, SOFT, TEXT
from tinyvllm_lab.widgets.panel import Panel
from tinyvllm_lab.widgets.still import LegendItem, StillCanvas

_FIRST, _SECOND = COLOURS[4], COLOURS[5]
_WINDOW_US = 1e6  # throughput is that of the last second
_POINTS = 240  # of a line
_HEIGHT, _GAP = 118.0, 10.0
_ROWS = (3, 2)  # tiles

Floats = NDArray[np.float64]


class _Tile(NamedTuple):
    name: str
    value: str
    note: str
    most: str
    lines: list[Floats]
    """float64 `[steps]` each; nan: no value"""


class MetricStrip(Panel):
    """Requests, throughput, TTFT, TPOT and KV memory (chapters 09 and 15)."""

    _esm = bundle("metric_strip")
    module = "metric_strip"
    default_title = "Metrics"
    default_caption = (
        "Times are on the engine's clock. TTFT: arrival to first token; TPOT: time per further "
        "token of requests that have ended."
    )

    def still_height(self, moment: Moment) -> float:
        """The rows of tiles."""
        return len(_ROWS) * (_HEIGHT + _GAP) - _GAP

    def draw_still(self, canvas: StillCanvas, moment: Moment) -> None:
        """The same tiles as `static/metric_strip.js`, up to the step."""
        tiles = iter(_tiles(moment))
        for row, number in enumerate(_ROWS):
            width = (canvas.width - _GAP * (number - 1)) / number
            for place in range(number):
                corner = (place * (width + _GAP), row * (_HEIGHT + _GAP))
                _draw_tile(canvas, next(tiles), corner, width)

    def still_legend(self, moment: Moment) -> list[LegendItem]:
        """The two lines."""
        return [
            LegendItem((_FIRST,), "running, output, median, used", "line"),
            LegendItem((_SECOND,), "waiting, slowest tenth (p90)", "line"),
        ]


def _tiles(moment: Moment) -> list[_Tile]:
    table = _Steps(moment)
    state, holdings = moment.state, holdings_of(moment)
    empty = holdings.wasted / holdings.held if holdings.held else 0.0
    speed = table.throughput()
    now = speed[-1] if len(speed) else np.nan
    requests = [table.count(Kind.SCHEDULED), table.column(1)]
    used = table.column(2)
    return [
        _Tile("Requests", f"{len(state.slots):,} running", f"{len(state.queue):,} waiting",
              f"{_most(requests):,.0f}", requests),
        _Tile("Throughput", "–" if np.isnan(now) else f"{now:,.0f} tok/s", "output, last second",
              f"{_most([speed]):,.0f} tok/s", [speed]),
        _latency_tile("TTFT", "to first token", *table.ttft()),
        _latency_tile("TPOT", "per token", *table.tpot()),
        _Tile("KV memory", f"{moment.used / moment.capacity:.0%} used", f"{empty:.1%} of it empty",
              f"{_most([used]):,.0f}", [used]),
    ]  # fmt: skip


def _latency_tile(name: str, about: str, median: Floats, slow: Floats) -> _Tile:
    now = [duration(v[-1]) if len(v) and not np.isnan(v[-1]) else "–" for v in (median, slow)]
    note, most = f"{about}; p90 {now[1]}", duration(_most([median, slow]))
    return _Tile(name, now[0], note, most, [median, slow])


def _most(lines: list[Floats]) -> float:
    values = np.concatenate([*lines, [0.0]])
    return float(np.nanmax(values))


class _Steps:
    """Columns over the steps up to the moment, from the events."""

    def __init__(self, moment: Moment) -> None:
        self.rows = moment.past
        self.log = moment.log
        self.starts = np.flatnonzero(self.rows[:, 0] == int(Kind.STEP))
        self.begins = self.rows[self.starts, 3]  # µs [steps]
        self.ends = self.begins.copy()
        at = np.flatnonzero(self.rows[:, 0] == int(Kind.STEP_END))
        self.ends[self.step_of(at)] = self.rows[at, 1]

    def step_of(self, places: NDArray[np.intp]) -> NDArray[np.intp]:
        """Steps of events, by their places."""
        return np.maximum(np.searchsorted(self.starts, places, "right") - 1, 0)

    def column(self, number: int) -> Floats:
        """An integer of the `STEP` events."""
        return self.rows[self.starts, number].astype(float)

    def count(self, kind: Kind) -> Floats:
        """Events of a kind in each step."""
        places = np.flatnonzero(self.rows[:, 0] == int(kind))
        return np.bincount(self.step_of(places), minlength=len(self.starts)).astype(float)

    def throughput(self) -> Floats:
        """Output tokens a second, over the last second at each step."""
        tokens = np.concatenate([[0.0], np.cumsum(self.count(Kind.TOKEN))])
        first = np.searchsorted(self.begins, self.ends - _WINDOW_US, "left")
        steps = np.arange(len(self.starts))
        first = np.minimum(first, steps)
        span = (self.ends - self.begins[first]).astype(float)
        return np.where(span > 0, (tokens[steps + 1] - tokens[first]) * 1e6 / span.clip(1), np.nan)

    def ttft(self) -> tuple[Floats, Floats]:
        """Median and 90th percentile of the time to first token, in µs, at each step."""
        arrivals = self._arrivals()
        firsts: dict[int, int] = {}
        for request, step in zip(*self._tokens(), strict=True):
            firsts.setdefault(request, step)
        samples = [(s, self.ends[s] - arrivals[r]) for r, s in firsts.items() if r in arrivals]
        return self._running(samples)

    def tpot(self) -> tuple[Floats, Floats]:
        """The same of the time per further token, of requests that have ended."""
        steps: dict[int, list[int]] = {}
        for request, step in zip(*self._tokens(), strict=True):
            steps.setdefault(request, []).append(step)
        places = np.flatnonzero(self.rows[:, 0] == int(Kind.FINISH))
        samples = []
        for request, step in zip(self.rows[places, 1], self.step_of(places), strict=True):
            of = steps.get(int(request), [])
            if len(of) > 1:
                samples.append((step, (self.ends[of[-1]] - self.ends[of[0]]) / (len(of) - 1)))
        return self._running(samples)

    def _tokens(self) -> tuple[list[int], list[int]]:
        places = np.flatnonzero(self.rows[:, 0] == int(Kind.TOKEN))
        return self.rows[places, 1].tolist(), self.step_of(places).tolist()

    def _arrivals(self) -> dict[int, float]:
        places = np.flatnonzero(self.rows[:, 0] == int(Kind.SUBMIT))
        known = {}
        for request, step in zip(self.rows[places, 1].tolist(), self.step_of(places), strict=True):
            arrival = self.log.requests.get(request, {}).get("arrival_us")
            known[request] = self.begins[step] if arrival is None else arrival
        return known

    def _running(self, samples: list[tuple[int, float]]) -> tuple[Floats, Floats]:
        """Percentiles of all samples up to each step; only where a line has a point."""
        out = np.full((2, len(self.starts)), np.nan)
        if not samples:
            return out[0], out[1]
        ordered = np.array(sorted(samples))  # [samples, 2]
        for step in _sampled(len(self.starts)):
            values = ordered[: np.searchsorted(ordered[:, 0], step, "right"), 1]
            if len(values):
                out[:, step] = np.percentile(values, (50, 90))
        return out[0], out[1]


def _sampled(steps: int) -> list[int]:
    """The steps at which a line has a point; the last one is among them."""
    return sorted({*np.linspace(0, steps - 1, min(steps, _POINTS)).astype(int).tolist()})


def _draw_tile(canvas: StillCanvas, tile: _Tile, corner: tuple[float, float], w: float) -> None:
    x, y = corner
    canvas.card(x, y, w, _HEIGHT, 6, CARD)
    width = canvas.text(tile.name, x + 6, y + 12, bold=True)
    canvas.text(tile.value, x + w - 6, y + 12, bold=True, align="right", most=w - width - 16)
    canvas.text(tile.note, x + 6, y + 30, size=11, colour=SOFT, most=w - 12)
    left, top, width, height = x + 6, y + 50, w - 12, _HEIGHT - 59
    canvas.line(left, top + height, left + width, top + height, LINE)
    canvas.text(f"max {tile.most}", left + width, top - 5, size=9.5, colour=SOFT, align="right")
    scale = _most(tile.lines) or 1.0
    for line, colour in zip(tile.lines, (_FIRST, _SECOND), strict=False):
        steps = max(len(line) - 1, 1)
        points = [
            (left + width * step / steps, top + height * (1 - 0.9 * line[step] / scale))
            for step in _sampled(len(line))
            if not np.isnan(line[step])
        ]
        canvas.path(points, colour)
    canvas.rect(left + width - 1.5, top, 1.5, height, TEXT)
