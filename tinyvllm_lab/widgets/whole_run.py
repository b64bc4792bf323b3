"""`WholeRun`: a simulated run from beginning to end, in slices: its beginning shows soon."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from tinyvllm_lab.engine.feed import run_to_end
from tinyvllm_lab.engine.log import EventLog
from tinyvllm_lab.widgets.playground_settings import PlaygroundSettings


class WholeRun:
    """The run that settings make, in simulated time: the real engine is only run live.

    Args:
        settings: with engine "tiny" the same requests go through the shipped model's simulation.

    Attributes:
        log: the events so far.
        is_whole: True when every request has ended.
        work_s: seconds of work so far.

    Raises:
        ConfigError: the settings contradict each other.
    """

    def __init__(self, settings: PlaygroundSettings) -> None:
        self._feed = settings.make_feed()
        if settings.engine != "simulated":
            settings = replace(settings, engine="simulated", model="tiny")
        self._engine = settings.make_engine()
        assert self._engine.log is not None
        self.log: EventLog = self._engine.log
        self.is_whole = False
        self.work_s = 0.0

    def go_on(self, seconds: float, is_unwanted: Callable[[], bool] = lambda: False) -> bool:
        """Simulate for so long, or until it is whole or nobody wants it any more.

        Returns:
            True if it is whole.

        Raises:
            EngineError: a step failed.
        """
        begin = time.perf_counter()
        end = begin + seconds
        self.is_whole = run_to_end(
            self._engine, self._feed, lambda: time.perf_counter() > end or is_unwanted()
        )
        self.work_s += time.perf_counter() - begin
        return self.is_whole
