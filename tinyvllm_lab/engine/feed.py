"""`Feed`: whoever sends an engine its requests over time. A workload, say (chapter 15)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from tinyvllm_lab.engine.engine import Engine, StepOutput


class Feed(Protocol):
    """Sends requests, and hangs up, as the engine's clock goes on."""

    def before_step(self, engine: Engine) -> None:
        """Send and abort what is due at `engine.clock.now()`."""

    def after_step(self, engine: Engine, output: StepOutput) -> None:
        """See what the step brought: the next turn of a chat follows the answer."""

    def next_time(self) -> float | None:
        """Engine clock of the next arrival or hang-up, in seconds; None: nothing is to come."""


def run_to_end(engine: Engine, feed: Feed, should_stop: Callable[[], bool] | None = None) -> bool:
    """Step until the feed is exhausted and every request has ended.

    With a virtual clock idle time is jumped over, with a wall clock it is waited for.

    Args:
        should_stop: asked after every step; if it says True, the run stands still until the next
            call goes on with it.

    Returns:
        True if everything has ended.

    Raises:
        EngineError: a step failed.
    """
    while True:
        feed.before_step(engine)
        if engine.has_work:
            feed.after_step(engine, engine.step())
            if should_stop is not None and should_stop():
                return False
            continue
        following = feed.next_time()
        if following is None:
            return True
        engine.clock.advance_to(following)
