"""The playground: every knob of the engine beside its panels (chapter 13, `playground.ipynb`).

A callback only notes what was asked. Knobs that the engine can change while it runs go into its
inbox; everything else goes to a worker thread, which makes a new run with the same seed and puts it
in front of the same panels.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from queue import SimpleQueue
from typing import Any

import ipywidgets

from tinyvllm_lab.engine.config import field_specs
from tinyvllm_lab.engine.feed import run_to_end
from tinyvllm_lab.engine.log import EventLog
from tinyvllm_lab.engine.recordings import recorded_run, recorded_runs
from tinyvllm_lab.engine.runner import EngineRunner
from tinyvllm_lab.engine.storage import load, save
from tinyvllm_lab.errors import TinyVllmError
from tinyvllm_lab.simulate.hardware import hardware_table
from tinyvllm_lab.simulate.models import model_names
from tinyvllm_lab.widgets.airport import Airport
from tinyvllm_lab.widgets.block_map import BlockMap
from tinyvllm_lab.widgets.display import Displayed
from tinyvllm_lab.widgets.feed import RunFeed
from tinyvllm_lab.widgets.knobs import GROUPS, LABEL_WIDTH, engine_knobs, workload_knobs
from tinyvllm_lab.widgets.metric_strip import MetricStrip
from tinyvllm_lab.widgets.page import show
from tinyvllm_lab.widgets.playground_settings import ENGINES, PlaygroundSettings
from tinyvllm_lab.widgets.slot_timeline import SlotTimeline

PACES = {"5 steps/s": 5.0, "20 steps/s": 20.0, "60 steps/s": 60.0, "as fast as it goes": None}
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
        self.feed = RunFeed.of(self._whole_run())
        self.page = show(
            *(
                Panel(self.feed, size=size)
                for Panel in (Airport, SlotTimeline, BlockMap, MetricStrip)
            )
        )
        self._orders: SimpleQueue[tuple[str, Any]] = SimpleQueue()
        self._settled = threading.Condition()
        self._open_orders = 0
        self._turning = False
        self._running_settings: PlaygroundSettings | None = None
        self.status = ipywidgets.HTML(layout=ipywidgets.Layout(min_height="3.6em"))
        self.code = ipywidgets.Textarea(layout=ipywidgets.Layout(display="none", height="220px"))
        left = ipywidgets.VBox(
            [self._buttons(), self._tabs(), self.status, self._files(), self.code],
            layout=ipywidgets.Layout(flex="0 0 420px", min_width="300px"),
        )
        right = ipywidgets.Box([self.page], layout=ipywidgets.Layout(flex="1 1 560px"))
        layout = ipywidgets.Layout(flex_flow="row wrap", align_items="flex-start")
        super().__init__([left, right], layout=layout)
        self._say("The run is over: press <b>Run</b> to watch it live, or turn a knob.")
        threading.Thread(target=self._work, name="playground", daemon=True).start()

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
        )  # fmt: skip
        self.seed.observe(lambda change: self._turned("seed", change["new"]), names="value")
        return ipywidgets.VBox([ipywidgets.HBox([*self.buttons.values()]), self.pace, self.seed])

    def _tabs(self) -> ipywidgets.Widget:
        config, workload = self.settings.config, self.settings.workload
        pages = {
            "Workload": [*self._engine_choice(), *workload_knobs(workload, self._turned)],
            **{group: [*engine_knobs(group, config, self._turned)] for group in GROUPS},
        }
        self.knobs = {c.knob: c for page in pages.values() for c in page}
        tabs = ipywidgets.Tab([ipywidgets.VBox(page) for page in pages.values()])
        tabs.titles = tuple(pages)
        return tabs

    def _engine_choice(self) -> list[ipywidgets.Widget]:
        choices = {
            "engine": (ENGINES, "Simulated time on a GPU, or the shipped model on this machine."),
            "hardware": ([h.name for h in hardware_table()], "The simulated accelerator."),
            "model": (model_names(), "The simulated model."),
        }
        made = []
        for name, (options, help) in choices.items():
            value = getattr(self.settings, name)
            control = ipywidgets.Dropdown(options=options, value=value, description=name)
            control.tooltip, control.knob = help, name
            control.style.description_width = LABEL_WIDTH
            control.layout.width = "auto"
            control.observe(lambda c, knob=name: self._turned(knob, c["new"]), names="value")
            made.append(control)
        return made

    def _files(self) -> ipywidgets.Widget:
        self.path = ipywidgets.Text(value="run.tvt", description="file")
        save_it = ipywidgets.Button(description="Save run", tooltip="Write the shown run.")
        load_it = ipywidgets.Button(description="Load run", tooltip="Show a stored run.")
        code = ipywidgets.Button(description="Copy as code", tooltip="A cell that makes this run.")
        save_it.on_click(lambda _: self._guarded(self.save, self.path.value))
        load_it.on_click(lambda _: self._guarded(self.load, self.path.value))
        code.on_click(lambda _: self._show_code())
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
        if self._turning:
            return
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
        self._show_followers(settings)
        if name in _LIVE and self.is_live:
            self._turn_live(name, value)
            return
        if self.is_live:
            self._say(f"<b>{name}</b> cannot change while the engine runs: restarted, same seed.")
            self._order("run")
        else:
            self._say(f"<b>{name}</b> = {value}: the whole run again, with the same seed.")
            self._order("reset")

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
        self._turning = True
        try:
            part = self.settings.config if hasattr(self.settings.config, name) else self.settings
            self.knobs[name].value = getattr(part, name)
        finally:
            self._turning = False

    def _show_followers(self, settings: PlaygroundSettings) -> None:
        """Knobs that had to change with another one."""
        self._turning = True
        try:
            for name in ("enable_prefix_caching", "preemption"):
                self.knobs[name].value = getattr(settings.config, name)
        finally:
            self._turning = False

    def _new_pace(self, change: dict[str, Any]) -> None:
        if self.runner is not None:
            self.runner.pace = change["new"]

    def _chose(self, name: str) -> None:
        if name:
            self._guarded(self.show_recorded, name)
            self.recorded.value = ""  # a menu: the same run can be chosen again

    def _show_code(self) -> None:
        self.code.value = self.settings.to_code()
        self.code.layout.display = "block"

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
        with self._settled:
            self._open_orders += 1
        self._orders.put((name, self.settings))

    def wait(self, timeout: float | None = 30.0) -> bool:
        """Wait until all orders are carried out; False if that took longer."""
        with self._settled:
            return self._settled.wait_for(lambda: self._open_orders == 0, timeout)

    def _work(self) -> None:
        while True:
            name, settings = self._orders.get()
            if name == "end":
                return
            newer = not self._orders.empty()
            try:
                if not (name == "reset" and newer):  # a slider that is dragged: the last value wins
                    self._carry_out(name, settings)
            except Exception as error:
                self.feed.tell_error(error)
            finally:
                with self._settled:
                    self._open_orders -= 1
                    self._settled.notify_all()

    def _carry_out(self, name: str, settings: PlaygroundSettings) -> None:
        runner = self.runner
        if name == "pause" and runner is not None:
            runner.pause()
        elif name in ("run", "step") and self.is_live and settings == self._running_settings:
            assert runner is not None
            runner.start() if name == "run" else runner.step()
        elif name in ("run", "step"):
            self._begin(settings, paused=name == "step")
        elif name == "reset":
            self.runner = None
            self.feed.show(self._whole_run(settings))

    def _begin(self, settings: PlaygroundSettings, paused: bool) -> None:
        """A new live run in front of the panels; the one before stops."""
        self._running_settings = settings
        self.runner = settings.make_runner(self.pace.value)
        self.feed.show(self.runner)
        self.runner.step() if paused else self.runner.start()

    def _whole_run(self, settings: PlaygroundSettings | None = None) -> Any:
        """A simulated run from beginning to end; a real one is only begun live."""
        settings = settings or self.settings
        if settings.engine != "simulated":
            settings = replace(settings, engine="simulated", model="tiny")
        engine = settings.make_engine()
        run_to_end(engine, settings.make_feed())
        return engine.log

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
        self.runner = None
        self.feed.show(log)
        self._say(words)

    def close(self) -> None:
        """Stop the engine and the worker."""
        self._orders.put(("end", self.settings))
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

    def __repr__(self) -> str:
        return f"Playground({self.settings.engine}, {self.feed.event_log.num_steps:,} steps)"
