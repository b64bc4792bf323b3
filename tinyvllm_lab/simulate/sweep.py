"""`load_sweep()`: one workload at rising rates, for latency over throughput (chapter 15).

    curve = load_sweep(independent(256), hardware="A10G", model="llama-3.2-1b")
    curve.best(SLO(ttft=0.2, tpot=0.015)).rate

Every point is a whole run of the real scheduler in simulated time. All points see the same requests
in the same order, and the same pattern of gaps between them, only closer together: an open loop,
which sends at its own pace whatever the server does (vLLM's `bench serve --request-rate`).

A run begins and ends with an empty engine, and neither is what a busy server looks like. So its
first and its last fifth are left out: of the requests for latencies and goodput, of the finishes
and of the tokens for throughput. Where more arrives than the server can do there is no steady state
at all: the queue grows for as long as the run lasts, and the latencies only say how long that was.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from tinyvllm_lab.engine.config import EngineConfig
from tinyvllm_lab.engine.metrics import SLO, Distribution, RequestMetrics, RunMetrics
from tinyvllm_lab.engine.metrics_types import ratio
from tinyvllm_lab.errors import ConfigError
from tinyvllm_lab.simulate.cost import CostModel
from tinyvllm_lab.simulate.hardware import Hardware
from tinyvllm_lab.simulate.models import ModelShape
from tinyvllm_lab.simulate.run import Run, config_for, simulate
from tinyvllm_lab.simulate.source import Arrival, WorkloadSource
from tinyvllm_lab.simulate.workloads import Workload

LOADS = (0.1, 0.3, 0.5, 0.65, 0.8, 0.9, 1.0, 1.1, 1.25, 1.5)
"""Offered rates as shares of the capacity, in ascending order."""
EDGE = 0.2
"""Share of the requests, and of the tokens, that is left out at the begin and at the end."""
FEWEST_REQUESTS = 20
SATURATED = 0.05
"""The queue counts as growing when this share of all requests waits as the last one arrives."""

Latency = Literal["ttft", "tpot", "e2e"]


@dataclass(frozen=True)
class LoadPoint:
    """One workload at one rate.

    Attributes:
        rate: requests a second that arrive in the measured part; inf: all are there from the start.
        run: the whole run.
        requests: the measured ones, in order of arrival.
        requests_per_s: that finished; see `middle_rate`.
        output_tokens_per_s: that were sampled; see `middle_rate`.
        backlog: requests that waited for their first seat when the last one arrived.
        num_requests: of the whole run.
    """

    rate: float
    run: Run
    requests: Sequence[RequestMetrics]
    requests_per_s: float
    output_tokens_per_s: float
    backlog: int
    num_requests: int

    @classmethod
    def of(cls, rate: float, run: Run) -> LoadPoint:
        """Measure a run.

        Raises:
            ConfigError: the engine refused some of its requests.
        """
        if run.refused:
            why = next(iter(run.refused.values()))
            what = f"{len(run.refused)} requests were refused; the first one: {why.what}"
            raise ConfigError(what, why.expected, why.fix)
        metrics = run.metrics()
        requests = metrics.requests
        edge = int(EDGE * len(requests))
        last = max(r.arrival for r in requests)
        return cls(
            rate=rate,
            run=run,
            requests=requests[edge : len(requests) - edge],
            requests_per_s=middle_rate([r.finish for r in requests if r.is_ended]),
            output_tokens_per_s=middle_rate(_token_times(metrics)),
            backlog=sum(r.admitted is None or r.admitted > last for r in requests),
            num_requests=len(requests),
        )

    @cached_property
    def ttft(self) -> Distribution:
        """Time to first token of the measured requests, in seconds."""
        return self.latency("ttft")

    @cached_property
    def tpot(self) -> Distribution:
        """Time per output token after the first."""
        return self.latency("tpot")

    @cached_property
    def e2e(self) -> Distribution:
        """Arrival to last token."""
        return self.latency("e2e")

    def latency(self, name: Latency) -> Distribution:
        """The distribution of one latency over the measured requests, in seconds."""
        return Distribution.of(getattr(request, name) for request in self.requests)

    def attainment(self, slo: SLO) -> float:
        """Share of the measured requests that meet an objective."""
        return ratio(sum(map(slo.is_met_by, self.requests)), len(self.requests))

    def goodput(self, slo: SLO) -> float:
        """Requests a second that meet it."""
        return self.attainment(slo) * self.requests_per_s

    @property
    def is_saturated(self) -> bool:
        """True if the queue grew: more arrived than could be served."""
        return self.backlog > SATURATED * self.num_requests


@dataclass(frozen=True)
class LoadSweep:
    """One workload at rising rates.

    Attributes:
        capacity: the run in which all requests are there from the start: no rate is served faster.
        points: by ascending rate.
    """

    capacity: LoadPoint
    points: Sequence[LoadPoint]

    @property
    def saturation(self) -> LoadPoint | None:
        """The lowest rate at which the queue grew, and at all higher ones; None: at no rate."""
        found = None
        for point in reversed(self.points):
            if not point.is_saturated:
                break
            found = point
        return found

    def best(self, slo: SLO, share: float = 0.95) -> LoadPoint | None:
        """The largest rate up to which so many of the requests meet an objective; None: no rate.

        DistServe (OSDI 2024) calls this rate the goodput of a system.
        """
        found = None
        for point in self.points:
            if point.attainment(slo) < share:
                break
            found = point
        return found


def load_sweep(
    workload: Workload,
    config: EngineConfig | None = None,
    hardware: str | Hardware = "A10G",
    model: str | ModelShape = "llama-3.2-1b",
    *,
    rates: Sequence[float] | None = None,
    cost_model: CostModel | None = None,
) -> LoadSweep:
    """Play a workload at rising rates, each run to its end.

    Args:
        workload: requests that arrive at times of their own; the times are stretched.
        config, hardware, model, cost_model: see `simulate`.
        rates: requests a second; None: `LOADS` of the capacity.

    Raises:
        ConfigError: hardware, model or a rate is out of range, or the workload is no open loop.
    """
    points = load_points(workload, config, hardware, model, rates=rates, cost_model=cost_model)
    capacity = next(points)
    return LoadSweep(capacity, sorted(points, key=lambda point: point.rate))


def load_points(
    workload: Workload,
    config: EngineConfig | None = None,
    hardware: str | Hardware = "A10G",
    model: str | ModelShape = "llama-3.2-1b",
    *,
    rates: Sequence[float] | None = None,
    loads: Sequence[float] = LOADS,
    cost_model: CostModel | None = None,
    stop: Callable[[], bool] | None = None,
) -> Iterator[LoadPoint]:
    """The points of a sweep, one after the other; the capacity comes first.

    Args:
        workload, config, hardware, model, cost_model: see `load_sweep`.
        rates: requests a second, in the order in which they are wanted; None: see `loads`.
        loads: the same as shares of the capacity.
        stop: asked before every step; True ends the sweep there.

    Raises:
        ConfigError: as `load_sweep`.
    """
    _check(workload, loads if rates is None else rates)
    cost_model = cost_model or CostModel(hardware, model)
    config = config or config_for(cost_model, workload)
    try:
        capacity = LoadPoint.of(math.inf, _run(workload, math.inf, config, cost_model, stop))
        yield capacity
        if rates is None:
            rates = [load * _known_rate(capacity) for load in loads]
        for rate in rates:
            yield LoadPoint.of(rate, _run(workload, rate, config, cost_model, stop))
    except _Stopped:
        return


def _known_rate(capacity: LoadPoint) -> float:
    if not capacity.requests_per_s:
        raise ConfigError(
            "All measured requests ended in one step, so no rate can be told from them.",
            expected="more requests, or longer answers",
        )
    return capacity.requests_per_s


def at_rate(workload: Workload, rate: float) -> Workload:
    """The same requests in the same order, at another rate.

    All times are stretched alike, so that the measured part arrives at exactly this rate.

    Args:
        workload: requests that arrive at times of their own.
        rate: requests a second; inf: all arrive at once.
    """
    measured = middle_rate([request.arrival_s for request in workload])
    stretched = (replace(r, arrival_s=r.arrival_s * measured / rate) for r in workload)
    return replace(workload, requests=tuple(stretched))


def middle_rate(times: Sequence[float | None] | NDArray[np.float64]) -> float:
    """Events a second in the middle, without the first and the last fifth of them.

    The slope of the straight line (least squares) through their count over time: it depends on all
    of them, where first and last alone would make a rate of 150 random events uncertain by 8 %.
    0 if no time passes.
    """
    ordered = np.sort(np.array(times, np.float64))
    edge = int(EDGE * len(ordered))
    middle = ordered[edge : len(ordered) - edge]
    if not len(middle) or middle[0] == middle[-1]:
        return 0.0
    from_mean = middle - middle.mean()
    return float(from_mean @ np.arange(len(middle)) / (from_mean @ from_mean))


def _token_times(metrics: RunMetrics) -> NDArray[np.float64]:
    """End of the step of every output token, in seconds, float64 `[output tokens]`."""
    return np.repeat(metrics.steps.end_us, metrics.steps.output_tokens) / 1e6


def _check(workload: Workload, rates: Sequence[float]) -> None:
    if any(request.after is not None for request in workload):
        raise ConfigError(
            f"In the workload {workload.name!r} some requests wait for the answers to others.",
            expected="an open loop: every request arrives at a time of its own",
        )
    if len(workload) < FEWEST_REQUESTS:
        few = f"The workload {workload.name!r} has {len(workload)} requests."
        raise ConfigError(few, f"at least {FEWEST_REQUESTS}, so that a middle is left to measure")
    if not middle_rate([request.arrival_s for request in workload]):
        raise ConfigError(f"The requests of {workload.name!r} arrive all at once.", "a rate")
    for rate in rates:
        if not 0 < rate < math.inf:
            raise ConfigError(f"A rate is {rate!r}.", "more than 0, and finite")


class _Stopped(Exception):
    """The sweep is not wanted any more."""


class _Stoppable(WorkloadSource):
    """A workload that asks before every step whether to go on."""

    def __init__(self, workload: Workload, stop: Callable[[], bool]) -> None:
        super().__init__(workload)
        self._stop = stop

    def take(self, until_s: float) -> list[Arrival]:
        """Hand over what has arrived, if the run is still wanted."""
        if self._stop():
            raise _Stopped
        return super().take(until_s)


def _run(
    workload: Workload,
    rate: float,
    config: EngineConfig,
    cost_model: CostModel,
    stop: Callable[[], bool] | None,
) -> Run:
    played = at_rate(workload, rate)
    source = _Stoppable(played, stop or (lambda: False))
    run = simulate(source, config, cost_model=cost_model)
    assert run.log is not None
    run.log.info.update(workload=played.name, seed=played.seed)
    return replace(run, workload=played)
