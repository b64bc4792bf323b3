"""The playground: every knob of the engine beside its panels (chapter 13, `playground.ipynb`).

A callback only notes what was asked. Knobs that the engine can change while it runs go into its
inbox; everything else goes to a worker thread, which makes a new run with the same seed and puts it
in front of the same panels: of a simulated run first the beginning, then the rest as it comes.
"""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from html import escape
from typing import Any

import ipywidgets

from tinyvllm_lab.engine.config import field_specs
from tinyvllm_lab.engine.log import EventLog
from tinyvllm_lab.engine.recordings import recorded_run, recorded_runs
from tinyvllm_lab.engine.runner import EngineRunner
from tinyvllm_lab.engine.storage import load, save
from tinyvllm_lab.errors import TinyVllmError
from tinyvllm_lab.widgets import cells
from tinyvllm_lab.widgets.airport import Airport
from tinyvllm_lab.widgets.block_map import BlockMap
from tinyvllm_lab.widgets.display import Displayed
from tinyvllm_lab.widgets.feed import RunFeed
from tinyvllm_lab.widgets.knob_tabs import KnobTabs
from tinyvllm_lab.widgets.metric_strip import MetricStrip
from tinyvllm_lab.widgets.orders import Order, Orders
from tinyvllm_lab.widgets.page import show
from tinyvllm_lab.widgets.playground_settings import PlaygroundSettings
from tinyvllm_lab.widgets.slot_timeline import SlotTimeline
from tinyvllm_lab.widgets.whole_run import WholeRun

OPENING_S, FIRST_SLICE_S, SLICE_S = 0.2, 0.045, 0.1
"""Seconds of work on a simulated run before it is shown: at the start, for a first picture after a
knob was turned, and from picture to picture then."""
SHORT_S = 0.12
"""After a run of less work than this the next one is expected to be short too: it is shown whole,
as its parts would only delay it."""
FILL_S = 1.0
"""Seconds after the first picture when the knobs behind the other tabs are made."""

PACES: dict[str, float | None] = {f"{n} steps/s": float(n) for n in (5, 20, 30, 60)}
PACES["as fast as it goes"] = None
_CLICKED = {
    "run": "Live. Scheduler knobs act from the next step on; the others restart the run.",
    "pause": "Paused after the current step. <b>Step</b> makes one, <b>Run</b> goes on.",
    "step": "One step.",
    "reset": "The whole run, from the beginning, with the same seed.",
}
_LIVE = frozenset(spec.name for spec in field_specs() if spec.live)


class Playground(Displayed, ipywidgets.HBox):
    """Knobs on the left, the engine on the right.

    Args:
        settings: where the knobs stand first; None: a simulated A10G with some pressure on memory.
        size: "normal", or "presenter" for a projector.

    Attributes:
        settings: where the knobs stand now.
        runner: the engine's thread; None: the shown run is over or was loaded.
        feed: carries the shown run to the browser.
    """

    def __init__(self, settings: PlaygroundSettings | None = None, *, size: str = "normal") -> None:
        self.settings = settings or PlaygroundSettings()
        self.runner: EngineRunner | None = None
        opening = WholeRun(self.settings)
        opening.go_on(OPENING_S)
        self._opening = None if opening.is_whole else opening
        self._is_short = opening.work_s < SHORT_S
        self.feed = RunFeed(opening.log, is_growing=not opening.is_whole)
        self.page = show(
            *(
                Panel(self.feed, size=size)
                for Panel in (Airport, SlotTimeline, BlockMap, MetricStrip)
            )
        )
        self._showing = threading.Lock()  # held by who puts something in front of the panels
        self._running_settings: PlaygroundSettings | None = None
        self.status = ipywidgets.HTML(layout=ipywidgets.Layout(min_height="3.6em"))
        hidden = ipywidgets.Layout(display="none", height="300px", width="auto")
        self.code = ipywidgets.Textarea(layout=hidden)
        self._tabs = KnobTabs(self.settings, self._turned)
        self._tabs.observe(lambda _: self._tabs.fill(self.settings), names="selected_index")
        parts = [self._buttons(), self._tabs, self.status, self._files(), self.code]
        left = ipywidgets.VBox(parts).add_class(f"tvl-knobs-{size}")
        right = ipywidgets.Box([self.page], layout=ipywidgets.Layout(flex="1 1 560px"))
        layout = ipywidgets.Layout(flex_flow="row wrap", align_items="flex-start")
        super().__init__([left, right], layout=layout)
        self._say("The run is over: press <b>Run</b> to watch it live, or turn a knob.")
        self._orders = Orders(self._carry_out, self._tell_error)
        cells.register(self, self.feed)
        if self._opening is not None:
            self._order("open")

    # ------------------------------------------------------------------- layout

    def _buttons(self) -> ipywidgets.Widget:
        self.buttons = {}
        for name, help in (
            ("Run", "Start the workload from the beginning, or go on after a pause."),
            ("Pause", "Stop after the current step."),
            ("Step", "Make one step."),
            ("Reset", "The whole run again, from the beginning, with the same seed."),
        ):
            button = ipywidgets.Button(
                description=name, tooltip=help, layout=ipywidgets.Layout(width="92px")
            )
            button.on_click(self._clicked)
            self.buttons[name] = button
        self.pace = ipywidgets.Dropdown(
            options=PACES, value=20.0, description="speed", tooltip="How fast a live run goes."
        )
        self.pace.observe(self._new_pace, names="value")
        self.seed = ipywidgets.BoundedIntText(
            value=self.settings.seed, min=0, max=9999, description="seed",
            tooltip="Equal seeds make equal workloads.",
            disabled=self.settings.fixed_workload is not None,
        )  # fmt: skip
        self.seed.observe(lambda change: self._turned("seed", change["new"]), names="value")
        return ipywidgets.VBox([ipywidgets.HBox([*self.buttons.values()]), self.pace, self.seed])

    @property
    def knobs(self) -> dict[str, ipywidgets.Widget]:
        """The control of each knob."""
        self._tabs.fill(self.settings)
        return self._tabs.controls

    def _files(self) -> ipywidgets.Widget:
        self.path = ipywidgets.Text(value="run.tvt", description="file")
        save_it = ipywidgets.Button(description="Save run", tooltip="Write the shown run.")
        load_it = ipywidgets.Button(description="Load run", tooltip="Show a stored run.")
        code = ipywidgets.Button(description="Copy as code", tooltip="A cell that makes this run.")
        save_it.on_click(lambda _: self._guarded(self.save, self.path.value))
        load_it.on_click(lambda _: self._guarded(self.load, self.path.value))
        code.on_click(lambda _: self._guarded(self._show_code, ""))
        self.file_buttons = {"save": save_it, "load": load_it, "code": code}
        self.recorded = ipywidgets.Dropdown(
            options=[("show one …", ""), *((name, name) for name in recorded_runs())],
            description="recorded", tooltip="Runs that come with the course.",
        )  # fmt: skip
        self.recorded.observe(lambda change: self._chose(change["new"]), names="value")
        buttons = ipywidgets.HBox([save_it, load_it, code])
        return ipywidgets.VBox([self.recorded, self.path, buttons])

    # ---------------------------------------------------------------- callbacks

    def _clicked(self, button: ipywidgets.Button) -> None:
        name = button.description.lower()
        self._say(_CLICKED[name])
        self._order(name)

    def _turned(self, name: str, value: Any) -> None:
        """A knob was turned: live if the engine can, else a new run with the same seed."""
        if isinstance(value, float):
            value = round(value, 6)  # browsers return 24.999999999999996 for 25
        try:
            settings = self.settings.changed(name, value)
        except TinyVllmError as error:
            self._set_back(name, str(error))
            return
        if settings == self.settings:
            return
        self.settings = settings
        if name in _LIVE and self.is_live:
            self._turn_live(name, value)
        elif self.is_live:
            self._order("run")
            self._say(f"<b>{name}</b> cannot change while the engine runs: restarted, same seed.")
        else:
            self._order("reset")  # before all words: the picture is waited for
            self._say(f"<b>{name}</b> = {value}: the whole run again, with the same seed.")
        self._tabs.follow(settings)

    def _turn_live(self, name: str, value: Any) -> None:
        try:
            assert self.runner is not None
            self.runner.set_knob(name, value)
            self._running_settings = self.settings
            self._say(f"<b>{name}</b> = {value} from the next step on.")
        except TinyVllmError as error:
            self._say(f"<b>{name}</b>: {error}")

    def _set_back(self, name: str, why: str) -> None:
        self._say(why.replace("\n", "<br>"))
        self._tabs.move(self.settings, [name])

    def _new_pace(self, change: dict[str, Any]) -> None:
        if self.runner is not None:
            self.runner.pace = change["new"]

    def _chose(self, name: str) -> None:
        if name:
            self._guarded(self.show_recorded, name)
            self.recorded.value = ""  # a menu: the same run can be chosen again

    def _show_code(self, _: str) -> None:
        path = self.settings.save_workload()
        self.code.value = self.settings.to_code()
        self.code.layout.display = "block"
        if path is not None:
            self._say(f"The requests are stored in {escape(path)}, where the code finds them.")

    def _guarded(self, act: Any, path: str) -> None:
        try:
            act(path)
        except (TinyVllmError, OSError) as error:
            self._say(str(error).replace("\n", "<br>"))

    def _say(self, html: str) -> None:
        self.status.value = f'<div role="status" style="line-height:1.3">{html}</div>'

    # ------------------------------------------------------------------- orders

    @property
    def is_live(self) -> bool:
        """True while an engine is in front of the panels that can go on."""
        runner = self.runner
        return runner is not None and runner.state in ("running", "paused") and not self._is_over()

    def _is_over(self) -> bool:
        assert self.runner is not None
        return self.runner.state == "running" and self.runner.join(0)

    def _order(self, name: str) -> None:
        """Ask the worker for something; orders are done one after the other."""
        self._orders.put(name, self.settings)

    def wait(self, timeout: float | None = 30.0) -> bool:
        """Wait until all orders are carried out; False if that took longer."""
        return self._orders.wait(timeout)

    def _carry_out(self, order: Order) -> None:
        name, settings, runner = order.name, order.settings, self.runner
        if name == "pause" and runner is not None:
            runner.pause()
        elif name in ("run", "step") and self.is_live and settings == self._running_settings:
            assert runner is not None
            runner.start() if name == "run" else runner.step()
        elif name in ("run", "step"):
            self._begin(order)
        elif name == "reset":
            self._show_whole_run(order)
        elif self._opening is not None:
            opening, self._opening = self._opening, None
            self._go_on(opening, order)

    def _tell_error(self, error: Exception) -> None:
        with self._showing:
            if self.feed.is_growing:  # nobody goes on with it
                self.feed.settle()
        self.feed.tell_error(error)

    def _begin(self, order: Order) -> None:
        """A new live run in front of the panels; the one before stops."""
        runner = order.settings.make_runner(self.pace.value)
        with self._showing:
            if self._orders.is_withdrawn(order):
                return
            self._running_settings = order.settings
            self.runner = runner
            self.feed.show(runner)
        runner.step() if order.name == "step" else runner.start()

    def _show_whole_run(self, order: Order) -> None:
        run = WholeRun(order.settings)
        run.go_on(SHORT_S if self._is_short else FIRST_SLICE_S)
        with self._showing:
            if self._orders.is_withdrawn(order):
                return
            self.runner = None
            self.feed.show(run.log, is_growing=not run.is_whole)
        self._go_on(run, order)
        self._is_short = run.is_whole and run.work_s < SHORT_S

    def _go_on(self, run: WholeRun, order: Order) -> None:
        """The rest of a run that is shown in part; it is dropped when another one is wanted."""
        while not run.is_whole:
            run.go_on(SLICE_S, lambda: self._orders.is_overtaken(order))
            with self._showing:
                if self._orders.is_overtaken(order):
                    return
                self.feed.settle() if run.is_whole else self.feed.flush()

    # -------------------------------------------------------------- from Python

    def save(self, path: str) -> None:
        """Write the shown run (`.tvt` or `.jsonl`)."""
        save(self.feed.event_log, path)
        self._say(f"Saved {self.feed.event_log.num_steps:,} steps to {path}.")

    def load(self, path: str) -> None:
        """Show a stored run."""
        log = load(path)
        self._replace(log, f"Loaded {log.num_steps:,} steps from {path}.")

    def show_recorded(self, name: str) -> None:
        """Show one of the `recorded_runs`."""
        log = recorded_run(name)
        self._replace(log, f"<b>{name}</b>, recorded. {log.info['about']}")

    def _replace(self, log: EventLog, words: str) -> None:
        self._orders.withdraw()
        with self._showing:
            self.runner = None
            self.feed.show(log)
        self._say(words)

    def close(self) -> None:
        """Stop the engine and the worker, and free the engine."""
        self._orders.end()
        self.runner = None
        self.feed.close()
        super().close()

    def still(self) -> bytes:
        """The panels in one picture, as PNG."""
        return self.page.still()

    def shown_feeds(self) -> list[RunFeed]:
        """The feed of the shown run."""
        return [self.feed]

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        """The widget, and its picture for those who cannot show a widget."""
        return self._bundle(ipywidgets.HBox._repr_mimebundle_(self, **kwargs))

    def _ipython_display_(self) -> None:
        super()._ipython_display_()
        with suppress(RuntimeError):  # no event loop here: a tab is filled when it is chosen
            loop = asyncio.get_running_loop()
            loop.call_later(FILL_S, lambda: self._tabs.fill(self.settings))

    def __repr__(self) -> str:
        return f"Playground({self.settings.engine}, {self.feed.event_log.num_steps:,} steps)"
