"""`compare`: two runs of one workload side by side, at the same moment of the engine's clock."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np

from tinyvllm_lab.engine.config import EngineConfig
from tinyvllm_lab.engine.events import Kind
from tinyvllm_lab.engine.log import EventLog
from tinyvllm_lab.errors import ConfigError
from tinyvllm_lab.widgets.moment import busiest_step
from tinyvllm_lab.widgets.page import PanelPage
from tinyvllm_lab.widgets.panel import Panel
from tinyvllm_lab.widgets.slot_timeline import SlotTimeline

_TOGETHER = "Both sides show the same moment of the engine's clock."


def compare(
    run_a: Any,
    run_b: Any,
    panel: type[Panel] = SlotTimeline,
    titles: tuple[str, str] | None = None,
    **options: Any,
) -> PanelPage:
    """Put one panel of two runs side by side, with one set of controls.

    The controls are those of the run that takes longer. Whatever moves one side (play, step, scrub,
    a click) moves the other to the last step that had begun by then, counted from each run's first
    step. A request that is pointed at or selected stands out on both sides. While a run is live,
    its side shows the newest step and keeps controls of its own.

    Args:
        run_a, run_b: two runs of one workload, each as a `Panel` takes it.
        panel: which panel.
        titles: of the two sides; None: the settings in which the runs differ.
        options: for both panels.

    Returns:
        The page; `page.panels` are the two.

    Raises:
        LogError: a run is none.
        ConfigError: both are the same run, or an option is unknown.
    """
    sides = [panel(run_a, **options), panel(run_b, **options)]
    logs = [side.feed.event_log for side in sides]
    if sides[0].feed is sides[1].feed:
        raise ConfigError("Both sides show the same run.", "two runs of one workload")
    for side, title, letter in zip(sides, titles or _titles(*logs), "ab", strict=True):
        side.title, side.name = title, f"{side.name}_{letter}"
        side.caption = f"{side.caption} {_TOGETHER}"
    long, short = sides if _clocks(logs[0])[-1] >= _clocks(logs[1])[-1] else sides[::-1]
    long.linked_feed, short.controls = short.feed_id, short.feed.is_live
    if long.still_step is None:
        long.still_step = busiest_step(long.feed.event_log)
    short.still_step = step_at(short.feed.event_log, clock_at(long.feed.event_log, long.still_step))
    return PanelPage((sides[0], sides[1]), 2)


def clock_at(log: EventLog, step: int) -> int:
    """When a step began: microseconds of engine clock since the log's first step."""
    clocks = _clocks(log)
    return int(clocks[np.clip(step - log.first_step, 0, len(clocks) - 1)])


def step_at(log: EventLog, clock_us: int) -> int:
    """The last step that had begun by then; before the first one: the first."""
    return log.first_step + max(0, int(np.searchsorted(_clocks(log), clock_us, "right")) - 1)


def _clocks(log: EventLog) -> np.ndarray:
    """Beginning of each step, int64 `[steps]`, from 0 on; a log without a step has one at 0."""
    rows = log.as_array()
    clocks = rows[rows[:, 0] == int(Kind.STEP), 3]  # [steps]
    return clocks - clocks[0] if len(clocks) else np.zeros(1, np.int64)


def _titles(log_a: EventLog, log_b: EventLog) -> tuple[str, str]:
    a, b = log_a.config or EngineConfig(), log_b.config or EngineConfig()
    names = [f.name for f in fields(a) if getattr(a, f.name) != getattr(b, f.name)]
    if not names:
        return "Run A", "Run B"
    return _settings(a, names), _settings(b, names)


def _settings(config: EngineConfig, names: list[str]) -> str:
    return ", ".join(f"{name}={getattr(config, name)!r}" for name in names)
