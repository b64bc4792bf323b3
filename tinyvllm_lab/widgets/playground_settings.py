"""What the playground's knobs say, and the run that they make: no widget in here."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache, lru_cache
from hashlib import sha256
from typing import Any

from tinyvllm_lab.engine.config import EngineConfig
from tinyvllm_lab.engine.engine import Engine
from tinyvllm_lab.engine.runner import EngineRunner
from tinyvllm_lab.engine.sampling_params import SamplingParams
from tinyvllm_lab.errors import ConfigError
from tinyvllm_lab.simulate.cost import CostModel
from tinyvllm_lab.simulate.executor import SimulatedExecutor, VirtualClock
from tinyvllm_lab.simulate.feed import WorkloadFeed
from tinyvllm_lab.simulate.workloads import Workload, WorkloadRequest
from tinyvllm_lab.widgets.workload_knobs import (
    MIX,
    WorkloadKnobs,
    numbers_workload,
    words_workload,
)

ENGINES = ("simulated", "tiny")
"""Simulated time on a GPU of the table, or the shipped model decoding real tokens."""


@dataclass(frozen=True)
class PlaygroundSettings:
    """Everything that makes a run; equal settings make equal runs.

    Attributes:
        engine: one of `ENGINES`.
        hardware, model: what is simulated.
        seed: of the workload's knobs.
        workload: knobs, or a fixed one: a `Workload`, a list of `WorkloadRequest`, or the path of a
            workload in JSON lines.
        config: the engine's knobs.

    Raises:
        ConfigError: the settings contradict each other, or the workload cannot be read.
    """

    engine: str = "simulated"
    hardware: str = "NVIDIA A10G"
    model: str = "llama-3.2-1b"
    seed: int = 0
    workload: WorkloadKnobs | Workload | str | os.PathLike[str] = field(
        default_factory=WorkloadKnobs
    )
    config: EngineConfig = field(
        default_factory=lambda: EngineConfig(max_num_seqs=8, num_blocks=257)
    )

    def __post_init__(self) -> None:
        if self.engine not in ENGINES:
            raise ConfigError(f"The engine is {self.engine!r}.", "one of " + ", ".join(ENGINES))
        known = WorkloadKnobs | Workload | str | os.PathLike
        if not isinstance(self.workload, known):
            object.__setattr__(self, "workload", _as_workload(self.workload))
        if self.fixed_workload is None and self.engine == "tiny" and self.knobs.preset != MIX:
            raise ConfigError(
                f"The shipped model cannot serve the preset {self.knobs.preset!r}.",
                f"preset {MIX!r}: its requests are made of words that the model knows",
            )

    @property
    def knobs(self) -> WorkloadKnobs:
        """The workload's knobs; a fixed one has none: where they would stand at first."""
        return self.workload if isinstance(self.workload, WorkloadKnobs) else WorkloadKnobs()

    @property
    def fixed_workload(self) -> Workload | None:
        """The workload, if it does not come from knobs."""
        if isinstance(self.workload, str | os.PathLike):
            return _stored(os.fspath(self.workload), _changed_at(self.workload))
        return None if isinstance(self.workload, WorkloadKnobs) else self.workload

    def make_workload(self) -> Workload:
        """The requests, with their times.

        Raises:
            ConfigError: the shipped model does not know the token ids of a fixed workload.
        """
        if (fixed := self.fixed_workload) is not None:
            if self.engine == "tiny":
                _check_ids(fixed, _tiny()[0].config.vocab_size)
            return fixed
        if self.engine == "tiny":
            return words_workload(self.knobs, _tiny()[1], self.seed)
        return numbers_workload(self.knobs, self.seed)

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
            return replace(self, workload=replace(self.knobs, **{name: value}))
        if name in EngineConfig.__dataclass_fields__:
            return replace(
                self, config=replace(self.config, **{name: value, **_follows(name, value)})
            )
        return replace(self, **{name: value})

    def value_of(self, name: str) -> Any:
        """Where a knob stands, wherever it belongs."""
        for part in (self.config, self.knobs):
            if hasattr(part, name):
                return getattr(part, name)
        return getattr(self, name)

    def save_workload(self) -> str | None:
        """Store a workload that was given as requests, so that `to_code` can name its file.

        Returns:
            The file in the working directory; None: the code needs none.

        Raises:
            OSError: it cannot be written.
        """
        if not isinstance(self.workload, Workload):
            return None
        path = _file_of(self.workload)
        self.workload.save(path)
        return path

    def to_code(self) -> str:
        """A notebook cell that makes the same run; see `save_workload`."""
        has_knobs = isinstance(self.workload, WorkloadKnobs)
        names = "PlaygroundSettings" + (", WorkloadKnobs" if has_knobs else "")
        lines = [
            "from tinyvllm_lab import EngineConfig",
            "from tinyvllm_lab.widgets import Airport, BlockMap, SlotTimeline, show",
            f"from tinyvllm_lab.widgets import {names}",
            "",
            "settings = PlaygroundSettings(",
            *(f"    {name}={getattr(self, name)!r}," for name in self._plain_fields()),
            f"    workload={self._workload_code()},",
            f"    config=EngineConfig({_differences(self.config)}),",
            ")",
            "runner = settings.make_runner().start()",
            "show(Airport(runner), SlotTimeline(runner), BlockMap(runner))",
        ]
        return "\n".join(lines)

    def _plain_fields(self) -> Sequence[str]:
        names = ["engine", "seed"]
        return [*names, "hardware", "model"] if self.engine == "simulated" else names

    def _workload_code(self) -> str:
        if isinstance(self.workload, WorkloadKnobs):
            return f"WorkloadKnobs({_differences(self.workload)})"
        if isinstance(self.workload, Workload):
            return repr(_file_of(self.workload))
        return repr(os.fspath(self.workload))


def _as_workload(requests: Any) -> Workload:
    """A list of requests."""
    listed = list(requests) if isinstance(requests, Sequence) else [requests]
    if not all(isinstance(request, WorkloadRequest) for request in listed):
        raise ConfigError(
            f"The workload is {requests!r:.80}.",
            "WorkloadKnobs, a Workload, a list of WorkloadRequest, or the path of JSON lines",
        )
    return Workload("requests", tuple(listed))


def _changed_at(path: str | os.PathLike[str]) -> int:
    """When the file was written, or 0: reading it will say what is wrong."""
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return 0


@lru_cache(maxsize=8)
def _stored(path: str, _changed_at: int) -> Workload:
    return Workload.load(path)


def _file_of(workload: Workload) -> str:
    """A name that no other workload has."""
    digest = sha256(repr(workload.requests).encode()).hexdigest()
    return f"{workload.name}-{digest[:8]}.jsonl"


def _check_ids(workload: Workload, vocab_size: int) -> None:
    largest = max(max(request.prompt_token_ids) for request in workload)
    if largest >= vocab_size:
        raise ConfigError(
            f"The workload {workload.name!r} has the token id {largest}.",
            f"ids up to {vocab_size - 1}: the shipped model knows no others",
            "Choose the simulated engine.",
        )


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
