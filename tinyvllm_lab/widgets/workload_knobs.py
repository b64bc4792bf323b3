"""Who comes to the playground: sliders for a mix of customers, or one of the ready workloads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from functools import lru_cache
from random import Random
from typing import Any

from tinyvllm_lab.errors import ConfigError
from tinyvllm_lab.simulate.arrivals import Arrivals, Bursts, Poisson
from tinyvllm_lab.simulate.lengths import Uniform
from tinyvllm_lab.simulate.presets import Draw, Turn, airport, chat, make_workload, rag
from tinyvllm_lab.simulate.text_workloads import text_workload
from tinyvllm_lab.simulate.workloads import Workload

MIX = "mix"
_READY: dict[str, Callable[..., Workload]] = {"chat": chat, "rag": rag, "airport": airport}
PRESETS = (MIX, *_READY)
"""Customers that the sliders mix, or a ready workload of `simulate.presets`."""

MIX_ONLY = ("long_prompts", "long_answers", "hang_ups")
"""Knobs that a ready workload does not have."""

_SHORT_PROMPT, _LONG_PROMPT = Uniform(16, 96), Uniform(600, 1200)
_SHORT_ANSWER, _LONG_ANSWER = Uniform(8, 40), Uniform(120, 260)
_SHARES = 20
"""Text workloads are mixed in twentieths: 5 % is the finest share."""


def _number(default: float, low: float, high: float, unit: str, help: str) -> Any:
    limits = {"minimum": low, "maximum": high, "unit": unit, "help": help}
    return field(default=default, metadata=limits)


def _choice(choices: tuple[str, ...], help: str) -> Any:
    return field(default=choices[0], metadata={"choices": choices, "unit": "", "help": help})


@dataclass(frozen=True)
class WorkloadKnobs:
    """Who comes, how often, and with what. Lengths are drawn from `seed`, so a run repeats.

    Raises:
        ConfigError: a value is out of range.
    """

    preset: str = _choice(
        PRESETS, "mix: the sliders below. chat: conversations of several turns. rag: long "
        "documents. airport: a huge prompt, short answers, and people who hang up.",
    )  # fmt: skip
    num_requests: int = _number(40, 1, 500, "requests", "How many requests come in all.")
    rate_per_s: float = _number(15.0, 0.5, 100.0, "a second", "How many arrive, on average.")
    burst: int = _number(1, 1, 32, "at once", "1: one by one at random times. More: in groups.")
    long_prompts: int = _number(20, 0, 100, "%", "Share of requests with a long prompt.")
    long_answers: int = _number(30, 0, 100, "%", "Share of requests with a long answer.")
    hang_ups: int = _number(5, 0, 100, "%", "Share of customers who hang up midway.")

    def __post_init__(self) -> None:
        for f in fields(self):
            value, limits = getattr(self, f.name), f.metadata
            if "choices" in limits:
                if value not in limits["choices"]:
                    expected = "one of " + ", ".join(limits["choices"])
                    raise ConfigError(f"{f.name} is {value!r}.", expected)
            elif not limits["minimum"] <= value <= limits["maximum"]:
                expected = f"{limits['minimum']} to {limits['maximum']}"
                raise ConfigError(f"{f.name} is {value!r}.", expected)

    @property
    def arrivals(self) -> Arrivals:
        """Poisson, or groups at the same average rate."""
        if self.burst == 1:
            return Poisson(self.rate_per_s)
        return Bursts(self.burst, every_s=self.burst / self.rate_per_s)


# Most knobs of the engine leave the requests as they are: the last ones are kept.
@lru_cache(maxsize=4)
def numbers_workload(knobs: WorkloadKnobs, seed: int) -> Workload:
    """Requests of made-up tokens, for simulated time."""
    if knobs.preset != MIX:
        return _READY[knobs.preset](knobs.num_requests, knobs.arrivals, seed=seed)
    draw = Draw(seed)
    conversations = [[_turn(draw, knobs)] for _ in range(knobs.num_requests)]
    return make_workload("playground", conversations, knobs.arrivals, seed)


def _turn(draw: Draw, knobs: WorkloadKnobs) -> Turn:
    rng = draw.lengths
    long_prompt, long_answer = _chance(rng, knobs.long_prompts), _chance(rng, knobs.long_answers)
    hangs_up = _chance(rng, knobs.hang_ups)
    prompt = (_LONG_PROMPT if long_prompt else _SHORT_PROMPT).sample(rng)
    answer = (_LONG_ANSWER if long_answer or hangs_up else _SHORT_ANSWER).sample(rng)
    hang_up = rng.randint(4, 40)
    kind = "hangs_up" if hangs_up else "long_prompt" if long_prompt else "short"
    return Turn(
        draw.tokens(prompt), answer, kind=kind, abort_after_tokens=hang_up if hangs_up else None
    )


def _chance(rng: Random, percent: int) -> bool:
    return rng.random() * 100 < percent


def words_workload(knobs: WorkloadKnobs, tokenizer: Any, seed: int) -> Workload:
    """The same mix in words that the shipped model understands."""
    shares = {
        "hangs_up": knobs.hang_ups,
        "long_prompt": knobs.long_prompts,
        "story": knobs.long_answers,
    }
    kinds = [
        kind for kind, percent in shares.items() for _ in range(round(percent / 100 * _SHARES))
    ]
    rest = max(0, _SHARES - len(kinds))
    kinds += (["short_answer", "count", "glossary"] * _SHARES)[:rest]
    return text_workload(tokenizer, knobs.num_requests, knobs.arrivals, kinds=kinds, seed=seed)
