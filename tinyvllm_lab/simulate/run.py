"""`simulate()`: a workload on the real engine, in simulated time.

    run = simulate(chat(), hardware="A10G", model="llama-3.2-1b")
    run.metrics().ttft

Scheduler, block pool and event log are those that decode real tokens; only the executor and the
clock are not real. What the log says of decisions and memory is exact; what it says of time is as
good as the cost model.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, Literal

from tinyvllm_lab.engine.config import EngineConfig, as_config
from tinyvllm_lab.engine.engine import Engine
from tinyvllm_lab.engine.feed import run_to_end
from tinyvllm_lab.engine.log import EventLog
from tinyvllm_lab.engine.metrics import SLO, RequestMetrics, RunMetrics, compute_metrics
from tinyvllm_lab.errors import ConfigError, RequestRefused
from tinyvllm_lab.simulate.cost import CostModel
from tinyvllm_lab.simulate.executor import SimulatedExecutor, VirtualClock
from tinyvllm_lab.simulate.feed import WorkloadFeed
from tinyvllm_lab.simulate.hardware import Hardware
from tinyvllm_lab.simulate.models import ModelShape
from tinyvllm_lab.simulate.source import Source
from tinyvllm_lab.simulate.workloads import Workload

MOST_BLOCKS = 1 << 18
"""Blocks that `config_for` gives a pool at most: four million tokens in blocks of 16. More would
only cost the simulation time and memory."""


@dataclass(frozen=True)
class Run:
    """What a simulation leaves.

    Attributes:
        workload: what was played (None for a source of your own).
        config: the engine's settings at the start.
        cost_model: what gave the times.
        engine: the engine, all its requests ended.
        log: the event log; None if it was switched off.
        refused: what the door said to requests that it refused, by name.
        dropped: names of requests that never arrived, their conversation having ended before.
        simulated_s: seconds on the virtual clock.
        busy_s: seconds of them in which a step was computed.
        wall_s: seconds that the simulation itself took.
    """

    workload: Workload | None
    config: EngineConfig
    cost_model: CostModel
    engine: Engine
    log: EventLog | None
    refused: dict[str, RequestRefused]
    dropped: list[str]
    simulated_s: float
    busy_s: float
    wall_s: float

    def metrics(self, slo: SLO | None = None) -> RunMetrics:
        """Latencies, throughput, memory and the rest, from the log; goodput for an SLO.

        Raises:
            ConfigError: the run kept no log.
        """
        if self.log is None:
            raise ConfigError("This run kept no event log.", "simulate(..., log=None)")
        return compute_metrics(self.log, slo)

    def requests_of(self, kind: str) -> list[RequestMetrics]:
        """The requests of one kind ("long_prompt", say).

        Raises:
            ConfigError: the run kept no log.
        """
        metrics = self.metrics()
        about = self.log.requests if self.log is not None else {}
        return [r for r in metrics.requests if about[r.number].get("kind") == kind]

    def __str__(self) -> str:
        hardware, model = self.cost_model.hardware.name, self.cost_model.model.name
        name = self.workload.name if self.workload else "source"
        return (
            f"{name} on {hardware} with {model} (simulated): {self.engine.num_steps:,} steps, "
            f"{self.simulated_s:,.1f} s, busy {self.busy_s / (self.simulated_s or 1):.0%}; "
            f"computed in {self.wall_s:.2f} s"
        )


def simulate(
    workload: Workload | Source,
    config: EngineConfig | None = None,
    hardware: str | Hardware = "A10G",
    model: str | ModelShape = "llama-3.2-1b",
    *,
    cost_model: CostModel | None = None,
    log: EventLog | Literal[False] | None = None,
    **engine_options: Any,
) -> Run:
    """Play a workload to its end.

    Args:
        workload: a `Workload`, or a `Source` of your own.
        config: None: `config_for` the cost model and the workload.
        hardware: an accelerator or its name; ignored if `cost_model` is given.
        model: a model shape or its name; ignored if `cost_model` is given.
        cost_model: with other overheads or dtypes, or one of your own.
        log: an `EventLog` (a ring, say), None for a new one, or False for none.
        engine_options: for `Engine`: `scheduler`, `block_pool`, `policy_key` of your own.

    Raises:
        ConfigError: the workload or the config is none; hardware or model is unknown, or does not
            fit.
        EngineError: the scheduler got stuck.
    """
    begun = time.perf_counter()
    feed = WorkloadFeed(workload)
    block_size = as_config(config).block_size
    cost_model = cost_model or CostModel(hardware, model, block_size=block_size)
    played = workload if isinstance(workload, Workload) else None
    config = config or config_for(cost_model, played)
    executor, clock = SimulatedExecutor(cost_model), VirtualClock()
    engine = Engine(config, executor, clock=clock, log=log, **engine_options)
    if engine.log is not None:
        engine.log.info.update(_info(cost_model, played))
    run_to_end(engine, feed)
    return Run(
        workload=played,
        config=config,
        cost_model=cost_model,
        engine=engine,
        log=engine.log,
        refused=feed.refused,
        dropped=list(getattr(feed.source, "dropped", ())),
        simulated_s=clock.now(),
        busy_s=executor.busy_us / 1e6,
        wall_s=time.perf_counter() - begun,
    )


def _info(cost_model: CostModel, workload: Workload | None) -> dict[str, Any]:
    """What the log says of where its times come from."""
    return {
        "time": "simulated",
        "hardware": cost_model.hardware.name,
        "model": cost_model.model.name,
        "kv_bytes_per_token": cost_model.model.kv_bytes_per_token,
        "workload": workload.name if workload else None,
        "seed": workload.seed if workload else None,
    }


def config_for(
    cost_model: CostModel, workload: Workload | None = None, **knobs: Any
) -> EngineConfig:
    """A config that fits hardware, model and workload, as a server would choose it.

    Args:
        cost_model: its hardware's memory minus the model's weights gives `num_blocks`, up to
            `MOST_BLOCKS`.
        workload: `max_model_len` becomes its longest context, if that exceeds 2,048.
        knobs: fields of `EngineConfig` that you choose yourself. By default 64 seats and 2,048
            tokens a step.

    Raises:
        ConfigError: the model does not fit, or a knob is out of range.
    """
    longest = workload.longest_context if workload else 0
    defaults = {
        "max_num_seqs": 64,
        "max_num_batched_tokens": 2048,
        "block_size": cost_model.block_size,
        "max_model_len": max(2048, longest),
    }
    if "num_blocks" not in knobs:
        defaults["num_blocks"] = min(cost_model.num_kv_blocks(), MOST_BLOCKS)
    return EngineConfig(**{**defaults, **knobs})
