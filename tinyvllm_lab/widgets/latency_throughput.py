"""`LatencyThroughput`: the explorer of what a server can do at which rate (chapters 13 and 15).

Every point is a run of the real scheduler in simulated time (`simulate/sweep.py`). A callback only
notes what the knobs say; a worker thread computes, sends each point as it is done, and ends when
there is nothing left to compute. A knob that turns meanwhile stops the run at its next step.
"""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import traitlets

from tinyvllm_lab.engine.config import field_specs
from tinyvllm_lab.errors import ConfigError, TinyVllmError
from tinyvllm_lab.simulate.cost import CostModel
from tinyvllm_lab.simulate.run import Run
from tinyvllm_lab.simulate.sweep import LoadPoint, LoadSweep
from tinyvllm_lab.widgets import cells
from tinyvllm_lab.widgets.calculator import Calculator
from tinyvllm_lab.widgets.esm import STATIC, bundle
from tinyvllm_lab.widgets.latency_throughput_still import draw_still
from tinyvllm_lab.widgets.load_curve import (
    LONG,
    OPTIONS,
    RANGES,
    SIMULATED,
    STEPS,
    Curve,
    check_knob,
    page_capacity,
    page_point,
    points_of,
)

STILL_WAIT_S = 20.0
"""How long a notebook that no browser shows waits for the picture of the whole curve."""
CAPTION = (
    "Each mark is one run: {requests} requests that arrive at random (Poisson) at one rate, the "
    "same ones in every run, on the real scheduler. Times come from a cost model of {model} on "
    "{gpu}. The first and the last fifth of each run are left out. Capacity is what a run "
    "serves in which all requests are there from the start. Hollow marks: more arrives than is "
    "served, so a longer run would show longer waits."
)
HELP = {
    **{spec.name: spec.help for spec in field_specs() if spec.name in RANGES},
    "prompt": "Lengths are lognormal with this median.",
    "answer": "Lengths are lognormal with this median.",
    "long_prompts": f"Share of the prompts that are {LONG} times as long.",
    "percentile": "Of the latency; and the share of the requests that must meet the limits.",
}


class LatencyThroughput(Calculator):
    """Latency and goodput of one workload at rising rates, with knobs for workload and server.

    Args:
        model: a name of the simulator's table of models.
        gpu: a name of its table of hardware.
        max_num_seqs, max_num_batched_tokens: knobs of the engine.
        prompt, answer: median lengths in tokens.
        long_prompts: per cent of the prompts that are eight times as long.
        latency: "ttft", "tpot" or "e2e".
        percentile: "p50", "p95" or "p99": of the latency, and the share of the requests that must
            meet the limits.
        throughput: in "tokens" (output) or "requests" a second.
        ttft_ms, tpot_ms: the limits that goodput asks for, in milliseconds.
        size: "normal", or "presenter" for a projector.

    Attributes:
        curve: the newest sweep, as far as it has come.
        former: the one before the last knob was turned; None: there was none.

    Raises:
        ConfigError: a name is unknown, a number is out of range, or the model does not fit.
    """

    _esm = bundle("latency_throughput")
    _css = Calculator._css + (STATIC / "latency_throughput.css").read_text(encoding="utf-8")
    module: ClassVar[str] = "latency_throughput"
    title: ClassVar[str] = "Latency and throughput"
    default_caption = CAPTION

    selected_place = traitlets.Int(None, allow_none=True).tag(sync=True)
    opening = traitlets.Dict().tag(sync=True)  # `curves`, for a page that has not yet answered
    _has_page = False

    def __init__(
        self,
        model: str = "llama-3.2-1b",
        gpu: str = "NVIDIA A10G",
        max_num_seqs: int = 64,
        max_num_batched_tokens: int = 2048,
        prompt: int = 256,
        answer: int = 64,
        long_prompts: int = 0,
        *,
        latency: str = "ttft",
        percentile: str = "p95",
        throughput: str = "tokens",
        ttft_ms: int = 200,
        tpot_ms: int = 16,
        size: str = "normal",
    ) -> None:
        choice = {
            "model": model, "gpu": gpu, "max_num_seqs": max_num_seqs,
            "max_num_batched_tokens": max_num_batched_tokens, "prompt": prompt, "answer": answer,
            "long_prompts": long_prompts, "ttft_ms": ttft_ms, "tpot_ms": tpot_ms,
            "latency": latency, "percentile": percentile, "throughput": throughput,
        }  # fmt: skip
        self.curve = Curve(0, {name: choice[name] for name in SIMULATED})
        self.former: Curve | None = None
        self._state = threading.Condition(threading.RLock())
        self._wanted: dict[str, Any] | None = None
        self._worker: threading.Thread | None = None
        self._is_closed = False
        self._still_shows: Any = None
        tables = {
            "simulated": SIMULATED, "ranges": RANGES, "options": OPTIONS, "steps": STEPS,
            "help": HELP,
        }  # fmt: skip
        super().__init__(tables, choice, size)
        self.opening = self.curves
        self.on_msg(self._on_message)
        self.observe(lambda change: self._want(change["new"]), names="choice")
        self._want(choice)
        cells.register(self, self)

    def _check(self, choice: Mapping[str, Any], tables: Mapping[str, Any]) -> None:
        for name, value in choice.items():
            check_knob(self._name, name, value)
        CostModel(choice["gpu"], choice["model"]).num_kv_blocks()  # refuses what does not fit

    # ---------------------------------------------------------------- computing

    def _want(self, choice: Mapping[str, Any]) -> None:
        """Note what the knobs say; the worker computes it."""
        wanted = {name: choice.get(name) for name in SIMULATED}
        with self._state:
            if wanted == self._wanted or self._is_closed:
                return
            self._wanted = wanted
            if self._worker is None:
                self._worker = threading.Thread(target=self._work, name="sweep", daemon=True)
                self._worker.start()

    def _work(self) -> None:
        """Compute what is wanted, until nothing newer is."""
        try:
            while self._has_more():
                self._compute(self.curve)
        finally:
            with self._state:
                self._rest()

    def _has_more(self) -> bool:
        """Begin what is wanted; False if it is there already."""
        with self._state:
            is_there = self.curve.done and self.curve.knobs == self._wanted
            if is_there or self._is_closed or self._wanted is None:
                self._rest()
                return False
            self._begin(self._wanted)
            return True

    def _rest(self) -> None:
        if self._worker is threading.current_thread():
            self._worker = None
            self._state.notify_all()

    def _begin(self, knobs: dict[str, Any]) -> None:
        """A new curve; the one before becomes the former one if it was complete."""
        keep = self.curve.done and not self.curve.error
        if keep:
            self.former = self.curve
        self.curve = Curve(self.curve.number + 1, knobs)
        self._tell({"k": "begin", "keep": keep, "curve": self.curve.page()})

    def _compute(self, curve: Curve) -> None:
        began = time.perf_counter()

        def stop() -> bool:
            return self._is_closed or self._wanted != curve.knobs

        try:
            for name, value in curve.knobs.items():
                check_knob(self._name, name, value)
            for place, point in points_of(curve.knobs, stop):
                self._add(curve, place, point)
        except Exception as error:
            curve.error = f"{type(error).__name__}: {error}"
            if not isinstance(error, TinyVllmError):
                curve.traceback = "".join(traceback.format_exception(error))
        if not stop():
            curve.wall_s, curve.done = time.perf_counter() - began, True
            told = ("wall_s", "done", "error", "traceback")
            self._news(curve, **{name: getattr(curve, name) for name in told})

    def _add(self, curve: Curve, place: int | None, point: LoadPoint) -> None:
        """A run is done: the capacity (place None), or one of the rates."""
        with self._state:
            if place is None:
                curve.capacity = point
                self._news(curve, capacity=page_capacity(point))
            else:
                curve.points[place] = point
                self._news(curve, point=page_point(place, point))

    # ------------------------------------------------------------------ messages

    def _news(self, curve: Curve, **news: Any) -> None:
        self._tell({"k": "news", "number": curve.number, **news})

    def _tell(self, message: dict[str, Any]) -> None:
        """Send what is new. Before a page answers messages would be lost: it gets all of it."""
        with self._state:
            if self._is_closed:
                return
            if self._has_page:
                self.send(message)
            else:
                self.opening = self.curves

    def _on_message(self, _widget: Any, content: dict[str, Any], _buffers: Any) -> None:
        if content.get("k") == "ready":
            with self._state:
                self._has_page = True
                self._state.notify_all()
                self._tell({"k": "all", **self.curves})

    @property
    def curves(self) -> dict[str, Any]:
        """What a page shows, without a kernel too."""
        former = None if self.former is None else self.former.page()
        return {"curve": self.curve.page(), "former": former}

    # --------------------------------------------------------------- from Python

    def turn(self, **knobs: Any) -> None:
        """Turn knobs, as the sliders do.

        Raises:
            ConfigError: a knob is unknown, a value out of range, or the model does not fit.
        """
        choice = {**self.choice, **knobs}
        self._check(choice, {})
        self.choice = choice

    def wait(self, timeout: float | None = 60.0) -> bool:
        """Wait until the curve is complete; False if that took longer."""
        with self._state:
            return self._state.wait_for(lambda: self._worker is None, timeout)

    @property
    def sweep(self) -> LoadSweep:
        """The whole curve: waits until it is complete.

        Raises:
            ConfigError: it could not be computed.
        """
        self.wait(None)
        found = self.curve.sweep
        if found is None or self.curve.error or not self.curve.done:
            raise ConfigError(self.curve.error or f"The {self._name} is closed.", "a whole curve")
        return found

    def run(self, place: int) -> Run:
        """The run of a rate, 0 being the lowest; waits until the curve is complete.

        Raises:
            ConfigError: there is no such rate, or the curve could not be computed.
        """
        points = self.sweep.points
        if not -len(points) <= place < len(points):
            raise ConfigError(f"There is no rate {place!r}.", f"0 to {len(points) - 1}")
        return points[place].run

    @property
    def selected(self) -> Run | None:
        """The run of the mark that is selected in the picture."""
        return None if self.selected_place is None else self.run(self.selected_place)

    def save_html(self, path: str | Path) -> Path:
        """Write one file that shows the curves in any browser, with no kernel and no network.

        The limits and the picture can be changed in it; workload and server stay as they are.

        Raises:
            OSError: the file cannot be written.
        """
        from tinyvllm_lab.widgets.export import save_html

        self.wait()
        return save_html(path, self)

    def close(self) -> None:
        """Stop computing. Safe to call twice."""
        with self._state:
            self._is_closed = True
            self._state.notify_all()
        super().close()

    # --------------------------------------------------------------------- still

    def still(self) -> bytes:
        """The picture of what is computed so far, as PNG."""
        with self._state:
            curve, former = replace(self.curve, points=dict(self.curve.points)), self.former
            self._still_shows = self._shown_now()
        return draw_still(self.title, curve, former, self.choice, self.caption)

    def _shown_now(self) -> Any:
        return self.curve.number, self.curve.done, len(self.curve.points), self.choice

    def refresh_stills(self) -> None:
        """Store the picture of the whole curve, if no page listens; called after every cell."""
        with self._state:
            if self._has_page or self._is_closed or not self._display_id:
                return
            self._state.wait_for(lambda: self._worker is None or self._has_page, STILL_WAIT_S)
            if self._has_page or self._still_shows == self._shown_now():
                return
        self.refresh_still()

    def __repr__(self) -> str:
        knobs = ", ".join(f"{name}={self.choice[name]!r}" for name in SIMULATED)
        return f"{self._name}({knobs})"
