"""Metrics of a run, computed from its event log alone (chapter 15).

Times are on the engine clock, in seconds. A token exists from the end of its step on.

    queue_time    first seat - arrival
    ttft          time to first token: first token - arrival
    tpot          time per output token: (last token - first token) / (output tokens - 1)
    itl           inter-token latency: each gap between two neighbouring tokens of a request
    e2e           end-to-end latency: last token - arrival
    throughput    output tokens (or ended requests) / duration of the run
    goodput       ended requests that met the service-level objective / duration

These are the definitions of vLLM's V1 metrics and of its `bench serve`; goodput is that of Zhong et
al., "DistServe" (OSDI 2024), section 2. A request counts as ended when it stopped by itself or
reached its length, not when it was aborted, timed out or failed. TPOT and ITL need two tokens.
Mean TPOT weighs requests, mean ITL weighs tokens: long answers move ITL more.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tinyvllm_lab.engine.events import Kind, Reason
from tinyvllm_lab.engine.log import EventLog
from tinyvllm_lab.engine.metrics_kv import KVColumns, kv_columns
from tinyvllm_lab.engine.metrics_requests import NEVER, RequestColumns, request_columns
from tinyvllm_lab.engine.metrics_steps import Ints, StepColumns, Table, step_columns
from tinyvllm_lab.engine.metrics_types import (
    SLO,
    Distribution,
    KVMetrics,
    RequestMetrics,
    RunMetrics,
    ratio,
)

__all__ = ["SLO", "Distribution", "KVMetrics", "RequestMetrics", "RunMetrics", "compute_metrics"]

_US = 1e6
_TIMES = ("arrival", "admitted", "first_token", "last_token", "finish")
_COUNTS = (
    "prompt_tokens", "max_tokens", "output_tokens", "preemptions", "recomputed_tokens",
    "hit_tokens", "resumed_hit_tokens",
)  # fmt: skip


def compute_metrics(
    log: EventLog, slo: SLO | None = None, kv_bytes_per_token: int | None = None
) -> RunMetrics:
    """All metrics of the events that a log holds.

    Requests whose arrival was dropped from a ring are left out of `requests` and of what is
    computed from them; sums over events count every kept event.

    Args:
        log: the log; it may still grow.
        slo: what goodput asks for.
        kv_bytes_per_token: None: `log.info["kv_bytes_per_token"]`, or else 1.
    """
    table = Table.of(log)
    steps = step_columns(log, table)
    columns = request_columns(log, table, steps)
    requests = _requests(log, columns)
    gaps = columns.gaps_us() / _US
    size = kv_bytes_per_token or int(log.info.get("kv_bytes_per_token", 1))
    finishes = table.b[table.where(Kind.FINISH)].tolist()
    return RunMetrics(
        duration=int(steps.end_us[-1] - steps.start_us[0]) / _US if table.num_steps else 0.0,
        num_rejected=table.where(Kind.REJECT).size,
        reasons={reason: finishes.count(reason) for reason in Reason if reason in finishes},
        prompt_tokens=int(columns.prompt_tokens.sum()),
        output_tokens=int(steps.output_tokens.sum()),
        computed_tokens=_computed(steps),
        **_distributions(requests, gaps),
        slo=slo,
        num_good=sum(map(slo.is_met_by, requests)) if slo else None,
        **_seats(steps),
        preemptions=int(steps.preemptions.sum()),
        recomputed_tokens=int(steps.recomputed_tokens.sum()),
        hit_tokens=int(table.c[table.where(Kind.ADMIT)].sum()),
        resumed_hit_tokens=int(table.c[table.where(Kind.RESUME)].sum()),
        kv=_kv(kv_columns(log, table), steps, size),
        requests=requests,
        steps=steps,
        gaps=gaps,
    )


def _computed(steps: StepColumns) -> dict[str, int]:
    return {
        "prefill": int(steps.prefill_tokens.sum()),
        "decode": int(steps.decode_tokens.sum()),
        "recompute": int(steps.recomputed_tokens.sum()),
    }


def _distributions(requests: list[RequestMetrics], gaps: NDArray[np.float64]) -> dict[str, Any]:
    names = ("ttft", "tpot", "e2e", "queue_time")
    by_request = {name: Distribution.of(getattr(r, name) for r in requests) for name in names}
    return {**by_request, "itl": Distribution.of_array(gaps)}


def _seats(steps: StepColumns) -> dict[str, Any]:
    busy = steps.batch_size > 0
    shares = steps.batch_size / np.maximum(steps.seats, 1)
    idle = (steps.seats - steps.batch_size) * steps.duration_us
    return {
        "batch_occupancy": float(shares.mean()) if len(shares) else 0.0,
        "idle_slot_share": ratio(idle.sum(), (steps.seats * steps.duration_us).sum()),
        "mean_batch_size": ratio(steps.batch_size.sum(), busy.sum()),
        "mean_batch_tokens": ratio(steps.computed_tokens.sum(), busy.sum()),
    }


def _kv(columns: KVColumns, steps: StepColumns, size: int) -> KVMetrics:
    weights = steps.duration_us

    def mean(slots: Ints) -> float:
        return size * ratio((slots * weights).sum(), weights.sum())

    return KVMetrics(
        bytes_per_token=size,
        capacity=size * columns.capacity,
        mean_reserved=mean(columns.reserved),
        mean_used=mean(columns.used),
        mean_internal=mean(columns.internal),
        mean_external=mean(columns.external),
        peak_reserved=size * int(columns.reserved.max(initial=0)),
        peak_used=size * int(columns.used.max(initial=0)),
        columns=columns,
    )


def _requests(log: EventLog, columns: RequestColumns) -> list[RequestMetrics]:
    names = {number: about.get("id") for number, about in dict(log.requests).items()}
    times = np.stack([getattr(columns, f"{name}_us") for name in _TIMES], axis=1).tolist()
    counts = np.stack([getattr(columns, name) for name in _COUNTS], axis=1).tolist()
    whole = (columns.number.tolist(), columns.reason.tolist(), columns.preempted_us.tolist())
    return [
        RequestMetrics(
            number=number,
            request_id=names.get(number) or f"request-{number}",
            reason=None if reason == NEVER else Reason(reason),
            preempted_time=waited / _US,
            **_seconds(when),
            **dict(zip(_COUNTS, counted, strict=True)),
        )
        for number, reason, waited, when, counted in zip(*whole, times, counts, strict=True)
    ]


def _seconds(times: list[int]) -> dict[str, Any]:
    pairs = zip(_TIMES, times, strict=True)
    return {name: None if time == NEVER else time / _US for name, time in pairs}
