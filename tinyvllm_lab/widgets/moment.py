"""`Moment`: what a still shows, read from the log: one step, and the state after it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from tinyvllm_lab.engine.config import EngineConfig
from tinyvllm_lab.engine.events import Kind, Phase, Reason
from tinyvllm_lab.engine.history import History
from tinyvllm_lab.engine.log import EventLog
from tinyvllm_lab.engine.log_event import Event
from tinyvllm_lab.engine.state import EngineState


@dataclass(frozen=True)
class Moment:
    """One step of a run.

    Attributes:
        log: the run.
        step: the step; `log.first_step - 1` if there is none yet.
        state: the engine's state after it.
    """

    log: EventLog
    step: int
    state: EngineState

    @classmethod
    def of(cls, log: EventLog, step: int) -> Moment:
        """The moment after a step of the log."""
        step = max(log.first_step - 1, min(step, log.num_steps - 1))
        return cls(log, step, History(log).at(step).copy())

    @property
    def config(self) -> EngineConfig:
        """The engine's settings at the start of the run."""
        return self.log.config or EngineConfig()

    @cached_property
    def events(self) -> list[Event]:
        """The events of the step."""
        return list(self.log.events(self.step)) if self.step >= self.log.first_step else []

    @cached_property
    def work(self) -> dict[int, tuple[int, int]]:
        """What each request computes in the step: request -> tokens, phase."""
        return {e.a: (e.b, e.c) for e in self.events if e.kind is Kind.SCHEDULED}

    @property
    def phases(self) -> list[int]:
        """Tokens of the step by phase: prefill, decode, recompute."""
        return [sum(n for n, p in self.work.values() if p == phase) for phase in Phase]

    @cached_property
    def past(self) -> np.ndarray:
        """All kept events up to the end of the step, int64 `[events, 4]`."""
        return self.log.as_array()[: self.state.position - self.log.first_event]

    def of_kind(self, kind: Kind) -> np.ndarray:
        """The past events of a kind, int64 `[events, 4]`."""
        return self.past[self.past[:, 0] == int(kind)]

    @property
    def last_finished(self) -> list[int]:
        """Requests that have ended, the newest first."""
        return self.of_kind(Kind.FINISH)[::-1, 1].tolist()

    @property
    def num_seats(self) -> int:
        """Seats at this step: the knob's value, or more while a lowered knob drains."""
        seats = self.config.max_num_seqs
        for knob, value in self.state.knobs.items():
            if self.log.knob_values[knob] == "max_num_seqs":
                seats = int(self.log.knob_values[value])
        return max([seats, *(slot + 1 for slot in self.state.slots)])

    @property
    def is_paged(self) -> bool:
        """KV memory in blocks, not in contiguous regions."""
        return self.config.allocator == "paged"

    @property
    def capacity(self) -> int:
        """Blocks (contiguous: token slots) that requests can hold."""
        blocks = self.config.num_usable_blocks
        return blocks if self.is_paged else blocks * self.config.block_size

    @property
    def used(self) -> int:
        """Blocks (contiguous: token slots) that are held."""
        if self.is_paged:
            return len(self.state.ref_counts)
        return sum(r.region[1] for r in self.state.requests.values() if r.region)

    @property
    def num_cached(self) -> int:
        """Free blocks that keep their hash."""
        return len(self.state.cached.keys() - self.state.ref_counts.keys())

    @property
    def clock_us(self) -> int:
        """Engine clock at the end of the step, from the first step of the log on."""
        begins, ends = self.of_kind(Kind.STEP), self.of_kind(Kind.STEP_END)
        if not len(begins):
            return 0
        return int((ends[-1, 1] if len(ends) else begins[-1, 3]) - begins[0, 3])

    @property
    def finish_counts(self) -> Iterator[tuple[str, int]]:
        """Ended requests by reason, in words."""
        for reason, number in sorted(self.state.finished.items()):
            if number:
                yield reason_word(reason), number

    @property
    def source_words(self) -> tuple[str, str]:
        """Where the times come from: a word and a sentence."""
        info: dict[str, Any] = self.log.info
        if info.get("time") == "simulated":
            known = "hardware" in info
            where = f" of {info['model']} on {info['hardware']}" if known else ""
            about = "Decisions and memory are the engine's; times come from a cost model"
            return "simulated", f"{about}{where}."
        if info.get("time") == "drawn":
            return "drawn", "Drawn by hand to explain; no engine ran."
        machine = info.get("machine", "this machine")
        return "measured", f"Every step and time is what the engine did on {machine}."


def busiest_step(log: EventLog) -> int:
    """The first step that computes for as many requests as any: the picture to begin with.

    Among equals the one with the longest queue.
    """
    rows = log.as_array()
    starts = np.flatnonzero(rows[:, 0] == int(Kind.STEP))
    if not len(starts):
        return 0
    steps = np.searchsorted(starts, np.flatnonzero(rows[:, 0] == int(Kind.SCHEDULED)), "right") - 1
    computing = np.bincount(np.maximum(steps, 0), minlength=len(starts))  # [steps]
    waiting = rows[starts, 1]  # [steps]
    return log.first_step + int(np.lexsort((-waiting, -computing))[0])


def reason_word(reason: int | None) -> str:
    """A finish reason as people read it."""
    return Reason(reason).name.lower() if reason in list(Reason) else str(reason)


def phase_word(phase: int) -> str:
    """A phase as people read it."""
    return Phase(phase).name.lower() if phase in list(Phase) else str(phase)


def plural(number: int, one: str) -> str:
    """A number and its noun."""
    return f"{number:,} {one}" + ("" if number == 1 else "s")


def duration(us: float) -> str:
    """A time as people read it, as in `static/words.js`."""
    if us < 1000:
        return f"{us:.0f} µs"
    if us < 1e6:
        return f"{us / 1000:.{1 if us < 1e4 else 0}f} ms"
    return f"{us / 1e6:.{2 if us < 1e7 else 1}f} s"
