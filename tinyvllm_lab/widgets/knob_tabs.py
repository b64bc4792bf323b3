"""`KnobTabs`: the playground's controls: the workload's on the first tab, then the engine's."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import Any

import ipywidgets

from tinyvllm_lab.widgets.knobs import GROUPS, Turned, engine_knobs, run_knobs, workload_knobs
from tinyvllm_lab.widgets.playground_settings import PlaygroundSettings
from tinyvllm_lab.widgets.workload_knobs import MIX, MIX_ONLY

_FOLLOWERS = ("enable_prefix_caching", "preemption")
"""Knobs that have to change with another one."""

_SIMULATED_ONLY = ("hardware", "model", "preset")
"""Knobs that the shipped model on this machine does not have."""


class KnobTabs(ipywidgets.Tab):
    """Tabs of controls; those behind the first one are empty until `fill`.

    Args:
        settings: where the knobs stand first.
        turned: called with name and value when somebody turns one.

    Attributes:
        controls: the control of each knob so far.
    """

    def __init__(self, settings: PlaygroundSettings, turned: Turned) -> None:
        self._turned = turned
        self._is_moving = False
        first = [*run_knobs(settings, self._heard), *self._workload(settings)]
        self.controls = {control.knob: control for control in first if hasattr(control, "knob")}
        self._pages = [ipywidgets.VBox() for _ in GROUPS]
        super().__init__([ipywidgets.VBox(first), *self._pages], titles=("Workload", *GROUPS))
        self.follow(settings)

    def _workload(self, settings: PlaygroundSettings) -> Iterable[ipywidgets.Widget]:
        fixed = settings.fixed_workload
        if fixed is None:
            return workload_knobs(settings.knobs, self._heard)
        about = f"<b>{escape(fixed.name)}</b>: {len(fixed)} requests. {escape(fixed.about)}"
        return [ipywidgets.HTML(about)]

    def fill(self, settings: PlaygroundSettings) -> None:
        """Make the engine's knobs: a first picture does not wait for them."""
        for group, page in zip(GROUPS, self._pages, strict=True):
            if not page.children:
                controls = [*engine_knobs(group, settings.config, self._heard)]
                self.controls |= {control.knob: control for control in controls}
                page.children = controls

    def _heard(self, name: str, value: Any) -> None:
        if not self._is_moving:
            self._turned(name, value)

    def move(self, settings: PlaygroundSettings, names: Iterable[str]) -> None:
        """Let controls stand where the settings say; nobody has turned them."""
        self._is_moving = True
        try:
            for name in self.controls.keys() & set(names):
                self.controls[name].value = settings.value_of(name)
        finally:
            self._is_moving = False

    def follow(self, settings: PlaygroundSettings) -> None:
        """Show what had to change with another knob, and which ones do nothing now."""
        self.move(settings, _FOLLOWERS)
        idle = {name for name in MIX_ONLY if settings.knobs.preset != MIX}
        idle |= {name for name in _SIMULATED_ONLY if settings.engine != "simulated"}
        for name in self.controls.keys() & {*MIX_ONLY, *_SIMULATED_ONLY}:
            self.controls[name].disabled = name in idle
