"""What the playground's knobs say, and the run that they make: no widget in here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache
from random import Random
from typing import Any

from tinyvllm_lab.engine.config import EngineConfig
from tinyvllm_lab.engine.engine import Engine
from tinyvllm_lab.engine.runner import EngineRunner
from tinyvllm_lab.engine.sampling_params import SamplingParams
from tinyvllm_lab.errors import ConfigError
from tinyvllm_lab.simulate.arrivals import Arrivals, Bursts, Poisson
from tinyvllm_lab.simulate.cost import CostModel
from tinyvllm_lab.simulate.executor import SimulatedExecutor, VirtualClock
from tinyvllm_lab.simulate.feed import WorkloadFeed
from tinyvllm_lab.simulate.lengths import Uniform
from tinyvllm_lab.simulate.presets import Draw, Turn, make_workload
from tinyvllm_lab.simulate.text_workloads import text_workload
from tinyvllm_lab.simulate.workloads import Workload

ENGINES = ("simulated", "tiny")
"""Simulated time on a GPU of the table, or the shipped model decoding real tokens."""

_SHORT_PROMPT, _LONG_PROMPT = Uniform(16, 96), Uniform(600, 1200)
_SHORT_ANSWER, _LONG_ANSWER = Uniform(8, 40), Uniform(120, 260)
_SHARES = 20
"""Text workloads are mixed in twentieths: 5 % is the finest share."""


def _number(default: float, low: float, high: float, unit: str, help: str) -> Any:
    limits = {"minimum": low, "maximum": high, "unit": unit, "help": help}
    return field(default=default, metadata=limits)


@dataclass(frozen=True)
class WorkloadKnobs:
    """Who comes, how often, and with what. Lengths are drawn from `seed`, so a run repeats."""

    num_requests: int = _number(40, 1, 500, "requests", "How many requests come in all.")
    rate_per_s: float = _number(15.0, 0.5, 100.0, "a second", "How many arrive, on average.")
    burst: int = _number(1, 1, 32, "at once", "1: one by one at random times. More: in groups.")
    long_prompts: int = _number(20, 0, 100, "%", "Share of requests with a long prompt.")
    long_answers: int = _number(30, 0, 100, "%", "Share of requests with a long answer.")
    hang_ups: int = _number(5, 0, 100, "%", "Share of customers who hang up midway.")

    def __post_init__(self) -> None:
        for f in fields(self):
            value, low, high = getattr(self, f.name), f.metadata["minimum"], f.metadata["maximum"]
            if not low <= value <= high:
                raise ConfigError(f"{f.name} is {value!r}.", f"{low} to {high}")

    @property
    def arrivals(self) -> Arrivals:
        """Poisson, or groups at the same average rate."""
        if self.burst == 1:
            return Poisson(self.rate_per_s)
        return Bursts(self.burst, every_s=self.burst / self.rate_per_s)


@dataclass(frozen=True)
class PlaygroundSettings:
    """Everything that makes a run; equal settings make equal runs."""

    engine: str = "simulated"
    hardware: str = "NVIDIA A10G"
    model: str = "llama-3.2-1b"
    seed: int = 0
    workload: WorkloadKnobs = field(default_factory=WorkloadKnobs)
    config: EngineConfig = field(
        default_factory=lambda: EngineConfig(max_num_seqs=8, num_blocks=257)
    )

    def __post_init__(self) -> None:
        if self.engine not in ENGINES:
            raise ConfigError(f"The engine is {self.engine!r}.", "one of " + ", ".join(ENGINES))

    def make_workload(self) -> Workload:
        """The requests, with their times."""
        if self.engine == "tiny":
            return _words(self.workload, self.seed)
        return _numbers(self.workload, self.seed)

    def make_engine(self) -> Engine:
        """An engine with these knobs, and nothing to do yet.

        Raises:
            ConfigError: the settings contradict each other.
        """
        return self._tiny_engine() if self.engine == "tiny" else self._simulated_engine()

    def make_feed(self) -> WorkloadFeed:
        """The customers of `make_workload`; they decode greedily."""
        return WorkloadFeed(self.make_workload(), SamplingParams(temperature=0.0))

    def make_runner(self, pace: float | None = None) -> EngineRunner:
        """An engine with its workload, ready to start; `pace` is in steps a second."""
        return EngineRunner(self.make_engine(), self.make_feed(), pace=pace)

    def _simulated_engine(self) -> Engine:
        cost = CostModel(self.hardware, self.model, block_size=self.config.block_size)
        engine = Engine(self.config, SimulatedExecutor(cost), clock=VirtualClock())
        assert engine.log is not None
        engine.log.info.update(
            time="simulated", hardware=cost.hardware.name, model=cost.model.name,
            kv_bytes_per_token=cost.model.kv_bytes_per_token,
        )  # fmt: skip
        return engine

    def _tiny_engine(self) -> Engine:
        from tinyvllm_lab.engine.torch_executor import TorchExecutor

        model, tokenizer = _tiny()
        engine = Engine(
            self.config, TorchExecutor(model, self.config),
            tokenizer=tokenizer,
            vocab_size=model.config.vocab_size,
            eos_token_ids=tokenizer.eos_token_ids,
        )  # fmt: skip
        assert engine.log is not None
        engine.log.info.update(
            time="measured", model="tiny",
            kv_bytes_per_token=model.config.kv_bytes_per_token("float32"),
        )  # fmt: skip
        return engine

    def changed(self, name: str, value: Any) -> PlaygroundSettings:
        """The settings with one knob turned, wherever it belongs.

        Raises:
            ConfigError: the value is out of range, or contradicts another knob.
        """
        if name in WorkloadKnobs.__dataclass_fields__:
            return replace(self, workload=replace(self.workload, **{name: value}))
        if name in EngineConfig.__dataclass_fields__:
            return replace(
                self, config=replace(self.config, **{name: value, **_follows(name, value)})
            )
        return replace(self, **{name: value})

    def to_code(self) -> str:
        """A notebook cell that makes the same run."""
        lines = [
            "from tinyvllm_lab import EngineConfig",
            "from tinyvllm_lab.widgets import Airport, BlockMap, SlotTimeline, show",
            "from tinyvllm_lab.widgets import PlaygroundSettings, WorkloadKnobs",
            "",
            "settings = PlaygroundSettings(",
            *(f"    {name}={getattr(self, name)!r}," for name in self._plain_fields()),
            f"    workload=WorkloadKnobs({_differences(self.workload)}),",
            f"    config=EngineConfig({_differences(self.config)}),",
            ")",
            "runner = settings.make_runner().start()",
            "show(Airport(runner), SlotTimeline(runner), BlockMap(runner))",
        ]
        return "\n".join(lines)

    def _plain_fields(self) -> Sequence[str]:
        names = ["engine", "seed"]
        return [*names, "hardware", "model"] if self.engine == "simulated" else names


def _follows(name: str, value: Any) -> dict[str, Any]:
    """What must change with a knob: regions have no blocks to share or to swap."""
    if name == "allocator" and value != "paged":
        return {"enable_prefix_caching": False, "preemption": "recompute"}
    return {}


def _differences(part: Any) -> str:
    """The fields that are not at their default, as keyword arguments."""
    changed = {
        f.name: getattr(part, f.name) for f in fields(part) if getattr(part, f.name) != f.default
    }
    return ", ".join(f"{name}={value!r}" for name, value in changed.items())


@cache
def _tiny() -> tuple[Any, Any]:
    """The shipped model in float32 and its tokenizer; torch is imported here, not before."""
    from tinyvllm_lab.model.llama import LlamaModel
    from tinyvllm_lab.model.registry import tiny_dir
    from tinyvllm_lab.model.tokenizer import Tokenizer

    return LlamaModel.from_dir(tiny_dir(), dtype="float32"), Tokenizer.from_dir(tiny_dir())


def _numbers(knobs: WorkloadKnobs, seed: int) -> Workload:
    """Requests of made-up tokens, for simulated time."""
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


def _words(knobs: WorkloadKnobs, seed: int) -> Workload:
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
    return text_workload(_tiny()[1], knobs.num_requests, knobs.arrivals, kinds=kinds, seed=seed)
