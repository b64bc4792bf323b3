"""What metrics are made of: an objective, a distribution, a request, memory, a run.

The definitions stand in `metrics`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tinyvllm_lab.engine.events import Reason
from tinyvllm_lab.engine.metrics_kv import KVColumns
from tinyvllm_lab.engine.metrics_steps import StepColumns

_ENDED = (Reason.STOP, Reason.LENGTH)


def ratio(part: float, whole: float) -> float:
    """`part / whole` as a Python float; 0 if there is no whole."""
    return float(part) / float(whole) if whole else 0.0


@dataclass(frozen=True, slots=True)
class SLO:
    """A service-level objective: limits in seconds; None: no limit.

    A request of one token has no TPOT and meets any limit on it.
    """

    ttft: float | None = None
    tpot: float | None = None
    e2e: float | None = None

    def is_met_by(self, request: RequestMetrics) -> bool:
        """True if the request ended by itself, within all limits."""
        limits = ((self.ttft, request.ttft), (self.tpot, request.tpot), (self.e2e, request.e2e))
        return request.is_ended and all(
            limit is None or value is None or value <= limit for limit, value in limits
        )


@dataclass(frozen=True, slots=True)
class Distribution:
    """A sample in numbers; percentiles are interpolated linearly. All nan if it is empty."""

    count: int
    mean: float
    p50: float
    p90: float
    p95: float
    p99: float
    minimum: float
    maximum: float

    @classmethod
    def of(cls, values: Iterable[float | None]) -> Distribution:
        """The distribution of the values that are not None."""
        return cls.of_array(np.array([v for v in values if v is not None], np.float64))

    @classmethod
    def of_array(cls, sample: NDArray[np.float64]) -> Distribution:
        """The distribution of an array."""
        if not len(sample):
            return cls(0, *[float("nan")] * 7)
        levels = np.percentile(sample, (50, 90, 95, 99, 0, 100)).tolist()
        return cls(len(sample), float(sample.mean()), *levels)


@dataclass(frozen=True, slots=True)
class RequestMetrics:
    """One request. Times in seconds on the engine clock; None: it did not come to that.

    Attributes:
        number: its running number in the events.
        request_id: its name.
        arrival, admitted, first_token, last_token, finish: points in time.
        reason: why it ended; None while it is under way.
        preempted_time: what it waited to come back after preemptions.
        recomputed_tokens: tokens computed again after preemptions.
        hit_tokens, resumed_hit_tokens: tokens that the prefix cache spared it when it was admitted,
            and when it came back.
    """

    number: int
    request_id: str
    prompt_tokens: int
    max_tokens: int
    output_tokens: int
    arrival: float
    admitted: float | None
    first_token: float | None
    last_token: float | None
    finish: float | None
    reason: Reason | None
    preemptions: int
    preempted_time: float
    recomputed_tokens: int
    hit_tokens: int
    resumed_hit_tokens: int

    @property
    def is_ended(self) -> bool:
        """True if it stopped by itself or reached its length."""
        return self.reason in _ENDED

    @property
    def queue_time(self) -> float | None:
        """Arrival to first seat."""
        return _between(self.arrival, self.admitted)

    @property
    def ttft(self) -> float | None:
        """Arrival to first token."""
        return _between(self.arrival, self.first_token)

    @property
    def prefill_time(self) -> float | None:
        """First seat to first token."""
        return _between(self.admitted, self.first_token)

    @property
    def decode_time(self) -> float | None:
        """First to last token."""
        return _between(self.first_token, self.last_token)

    @property
    def inference_time(self) -> float | None:
        """First seat to last token."""
        return _between(self.admitted, self.last_token)

    @property
    def tpot(self) -> float | None:
        """Decode time per token after the first."""
        decode_time = self.decode_time
        if decode_time is None or self.output_tokens < 2:
            return None
        return decode_time / (self.output_tokens - 1)

    @property
    def e2e(self) -> float | None:
        """Arrival to last token, of a request that ended by itself."""
        return _between(self.arrival, self.last_token) if self.is_ended else None


def _between(start: float | None, end: float | None) -> float | None:
    return None if start is None or end is None else end - start


@dataclass(frozen=True, slots=True)
class KVMetrics:
    """KV memory: time-weighted means and peaks in bytes (token slots if a token's size is unknown).

    Attributes:
        bytes_per_token: keys and values of one token in all layers; 1 counts token slots.
        capacity: all of it.
        columns: slots at each step, see `KVColumns`.
    """

    bytes_per_token: int
    capacity: int
    mean_reserved: float
    mean_used: float
    mean_internal: float
    mean_external: float
    peak_reserved: int
    peak_used: int
    columns: KVColumns = field(repr=False)

    @property
    def mean_wasted(self) -> float:
        """Internal and external fragmentation."""
        return self.mean_internal + self.mean_external

    @property
    def wasted_share(self) -> float:
        """Share of the reserved memory that holds no token: internal fragmentation."""
        return ratio(self.mean_internal, self.mean_reserved)


@dataclass(frozen=True)
class RunMetrics:
    """A whole run.

    Attributes:
        duration: begin of the first step to end of the last one, in seconds.
        num_rejected: requests refused at the door; they are not in `requests`.
        reasons: ended requests by reason.
        prompt_tokens: of all requests that arrived.
        output_tokens: sampled.
        computed_tokens: tokens that went through the model, by phase name.
        ttft, tpot, itl, e2e, queue_time: distributions over requests (itl: over gaps), in seconds.
        slo: what goodput asks for, or None.
        num_good: requests that met it (None without one).
        batch_occupancy: mean share of the seats whose request computed something, over steps.
        idle_slot_share: share of the seat-seconds of all steps in which a seat computed nothing:
            sum of (seats - batch size) x duration / sum of seats x duration. Time between steps,
            when the engine had nothing to do, does not count.
        mean_batch_size: requests a step, over the steps that computed something.
        mean_batch_tokens: tokens a step, over the same steps.
        preemptions, recomputed_tokens, hit_tokens, resumed_hit_tokens: sums, see `RequestMetrics`.
        kv: memory over time, in token slots; see `KVMetrics` for the summary.
        requests: every request whose arrival is in the log.
        steps: every step, as columns.
        gaps: all inter-token latencies in seconds, float64 `[gaps]`.
    """

    duration: float
    num_rejected: int
    reasons: dict[Reason, int]
    prompt_tokens: int
    output_tokens: int
    computed_tokens: dict[str, int]
    ttft: Distribution
    tpot: Distribution
    itl: Distribution
    e2e: Distribution
    queue_time: Distribution
    slo: SLO | None
    num_good: int | None
    batch_occupancy: float
    idle_slot_share: float
    mean_batch_size: float
    mean_batch_tokens: float
    preemptions: int
    recomputed_tokens: int
    hit_tokens: int
    resumed_hit_tokens: int
    kv: KVMetrics
    requests: list[RequestMetrics] = field(repr=False)
    steps: StepColumns = field(repr=False)
    gaps: NDArray[np.float64] = field(repr=False)

    @property
    def num_ended(self) -> int:
        """Requests that stopped by themselves or reached their length."""
        return sum(self.reasons.get(reason, 0) for reason in _ENDED)

    @property
    def requests_per_s(self) -> float:
        """Ended requests a second."""
        return ratio(self.num_ended, self.duration)

    @property
    def output_tokens_per_s(self) -> float:
        """Sampled tokens a second: the usual throughput."""
        return ratio(self.output_tokens, self.duration)

    @property
    def computed_tokens_per_s(self) -> float:
        """Tokens through the model a second: prompts, outputs and recomputation."""
        return ratio(sum(self.computed_tokens.values()), self.duration)

    @property
    def goodput(self) -> float | None:
        """Requests a second that met the SLO; None without one."""
        return None if self.num_good is None else ratio(self.num_good, self.duration)

    @property
    def prefix_hit_rate(self) -> float:
        """Share of the admitted requests' prompt tokens that the prefix cache spared."""
        asked = sum(r.prompt_tokens for r in self.requests if r.admitted is not None)
        return ratio(sum(r.hit_tokens for r in self.requests), asked)
