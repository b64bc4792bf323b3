"""What a panel can be given: a log, a file, a runner, an engine, an `LLM`, a simulation."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tinyvllm_lab.engine.events import Kind
from tinyvllm_lab.engine.log import EventLog
from tinyvllm_lab.engine.storage import load
from tinyvllm_lab.errors import LogError

if TYPE_CHECKING:
    from tinyvllm_lab.engine.engine import Engine
    from tinyvllm_lab.engine.runner import EngineRunner

_MOST_PROMPT = 300  # characters of a prompt that panels show


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


def add_texts(source: Source, first: int) -> None:
    """Fill the log's side tables, for panels that show text: of tokens, and of prompts.

    Args:
        source: a run; without a tokenizer nothing is added.
        first: number of the first event to look at.

    Raises:
        IndexError: the log has dropped this event.
    """
    log = source.log
    rows = log.rows(first, log.num_events)
    tokenizer: Any = getattr(source.engine, "tokenizer", None)
    if source.engine is None or tokenizer is None:
        return
    for token_id in set(rows[rows[:, 0] == int(Kind.TOKEN), 2].tolist()) - log.texts.keys():
        log.texts[token_id] = tokenizer.token_text(token_id)
    for index in rows[rows[:, 0] == int(Kind.SUBMIT), 1].tolist():
        known = log.requests.get(index, {})
        prompt = getattr(source.engine.requests.get(known.get("id", "")), "prompt", None)
        if prompt:
            known["prompt"] = prompt[:_MOST_PROMPT]
