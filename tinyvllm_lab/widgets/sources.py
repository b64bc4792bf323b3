"""What a panel can be given: a log, a file, a runner, an engine, an `LLM`, a simulation."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tinyvllm_lab.engine.log import EventLog
from tinyvllm_lab.engine.storage import load
from tinyvllm_lab.errors import LogError

if TYPE_CHECKING:
    from tinyvllm_lab.engine.engine import Engine
    from tinyvllm_lab.engine.runner import EngineRunner


@dataclass(frozen=True, slots=True)
class Source:
    """A run.

    Attributes:
        log: its events.
        engine: the engine that writes or wrote them, if it is known.
        runner: the thread that steps the engine now, if there is one.
    """

    log: EventLog
    engine: Engine | None = None
    runner: EngineRunner | None = None


def open_source(source: Any) -> Source:
    """Find the log, and the engine if there is one.

    Args:
        source: an `EventLog`, the path of a stored one, an `EngineRunner`, an `Engine`, or anything
            that has such a `log` or `engine` (`LLM`, a simulation's `Run`).

    Raises:
        LogError: it is none of them, it keeps no log, or the stored log is damaged.
        OSError: the file cannot be read.
    """
    if isinstance(source, EventLog):
        return Source(source)
    if isinstance(source, str | os.PathLike):
        return Source(load(source))
    engine = getattr(source, "engine", None)
    log = getattr(source, "log", None) or getattr(engine, "log", None)
    if not isinstance(log, EventLog):
        raise LogError(
            f"A {type(source).__name__} cannot be shown: it has no event log.",
            "an EventLog, the path of a stored run, an EngineRunner, an LLM or a simulation's Run",
            "Make the engine without log=False.",
        )
    runner = source if hasattr(source, "listeners") else None
    return Source(log, engine or (source if hasattr(source, "tokenizer") else None), runner)
