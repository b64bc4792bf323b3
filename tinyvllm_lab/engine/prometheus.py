"""Metrics in the Prometheus text format, under the names that vLLM's dashboards know.

Source of the format: the Prometheus documentation, "Exposition formats", version 0.0.4. Names,
kinds and buckets follow vLLM V1 (`vllm/v1/metrics/loggers.py`); with `prefix="vllm"` a Grafana
dashboard made for vLLM shows our runs. The last four gauges are ours.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import inf

import numpy as np
from numpy.typing import ArrayLike

from tinyvllm_lab.engine.events import Reason
from tinyvllm_lab.engine.metrics_types import RunMetrics

_TTFT = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
    20.0, 40.0, 80.0, 160.0, 640.0, 2560.0,
)  # fmt: skip
_ITL = (
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0,
    40.0, 80.0,
)  # fmt: skip
_LATENCY = (
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0,
    480.0, 960.0, 1920.0, 7680.0,
)  # fmt: skip
_BATCH = tuple(float(1 << k) for k in (0, *range(3, 15)))
_LENGTH = tuple(float(m * 10**k) for k in range(6) for m in (1, 2, 5))

_HISTOGRAMS = (
    ("time_to_first_token_seconds", "ttft", _TTFT, "Arrival to first token."),
    (
        "request_time_per_output_token_seconds",
        "tpot",
        _ITL,
        "Time per output token after the first, one value a request.",
    ),
    ("e2e_request_latency_seconds", "e2e", _LATENCY, "Arrival to last token."),
    ("request_queue_time_seconds", "queue_time", _LATENCY, "Arrival to first seat."),
    ("request_prefill_time_seconds", "prefill_time", _LATENCY, "First seat to first token."),
    ("request_decode_time_seconds", "decode_time", _LATENCY, "First to last token."),
    ("request_inference_time_seconds", "inference_time", _LATENCY, "First seat to last token."),
    ("request_prompt_tokens", "prompt_tokens", _LENGTH, "Prompt tokens of a request."),
    ("request_generation_tokens", "output_tokens", _LENGTH, "Output tokens of a request."),
)

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def prometheus_text(run: RunMetrics, model_name: str = "", prefix: str = "tinyvllm") -> str:
    """The metrics of a run as text for a `/metrics` page.

    Counters and histograms cover the events that the log holds; gauges are those of the last step.

    Args:
        run: the metrics.
        model_name: value of the label that every sample carries.
        prefix: what stands before the colon of every name.
    """
    page = _Page(prefix, {"model_name": model_name})
    _gauges(page, run)
    _counters(page, run)
    ended = [request for request in run.requests if request.is_ended]
    for name, attribute, buckets, about in _HISTOGRAMS:
        asked = run.requests if attribute in ("ttft", "queue_time") else ended
        values = [value for r in asked if (value := getattr(r, attribute)) is not None]
        page.histogram(name, about, values, buckets)
    page.histogram(
        "inter_token_latency_seconds", "Gaps between the tokens of a request.", run.gaps, _ITL
    )
    batches = run.steps.computed_tokens
    page.histogram("iteration_tokens_total", "Tokens computed in a step.", batches, _BATCH)
    return page.text()


def _gauges(page: _Page, run: RunMetrics) -> None:
    kv = run.kv.columns
    used = _latest(kv.reserved) / kv.capacity if kv.capacity else 0.0
    page.gauge("num_requests_running", "Requests in the last batch.", _latest(run.steps.batch_size))
    page.gauge("num_requests_waiting", "Requests in the queue.", _latest(run.steps.waiting))
    page.gauge("kv_cache_usage_perc", "Reserved share of KV memory, 0 to 1.", used)
    page.gauge("batch_occupancy", "Mean share of seats that computed.", run.batch_occupancy)
    page.gauge("idle_slot_share", "Share of seat-seconds without work.", run.idle_slot_share)
    page.gauge("kv_wasted_share", "Reserved KV memory without a token.", run.kv.wasted_share)
    page.gauge("goodput_requests_per_second", "Requests within the SLO.", run.goodput or 0.0)


def _counters(page: _Page, run: RunMetrics) -> None:
    queries = sum(r.prompt_tokens for r in run.requests if r.admitted is not None)
    page.counter("num_preemptions", "Requests that lost their seat.", run.preemptions)
    page.counter("prompt_tokens", "Prompt tokens computed.", run.computed_tokens["prefill"])
    page.counter("generation_tokens", "Output tokens sampled.", run.output_tokens)
    page.counter("recomputed_tokens", "Tokens computed again.", run.recomputed_tokens)
    page.counter("prefix_cache_queries", "Prompt tokens looked up.", queries)
    page.counter("prefix_cache_hits", "Prompt tokens found in the cache.", run.hit_tokens)
    page.counter(
        "prefix_cache_resumed_hits", "Tokens found after preemptions.", run.resumed_hit_tokens
    )
    about = "Requests that ended, by reason."
    reasons = [({"finished_reason": r.name.lower()}, run.reasons.get(r, 0)) for r in Reason]
    page.family("request_success", "counter", about, reasons, suffix="_total")


def _latest(column: np.ndarray) -> int:
    return int(column[-1]) if len(column) else 0


class _Page:
    """Builds the text, family by family."""

    def __init__(self, prefix: str, labels: dict[str, str]) -> None:
        self._prefix, self._labels = prefix, labels
        self._lines: list[str] = []

    def text(self) -> str:
        """The page, with its last line break."""
        return "\n".join([*self._lines, ""])

    def gauge(self, name: str, about: str, value: float) -> None:
        """One number that goes up and down."""
        self.family(name, "gauge", about, [({}, value)])

    def counter(self, name: str, about: str, value: int) -> None:
        """One number that only grows."""
        self.family(name, "counter", about, [({}, value)], suffix="_total")

    def family(
        self,
        name: str,
        kind: str,
        about: str,
        samples: Iterable[tuple[dict[str, str], float]],
        suffix: str = "",
    ) -> None:
        """A family whose samples have the same name."""
        self._head(name + suffix, kind, about)
        self._lines += [self._sample(name + suffix, labels, value) for labels, value in samples]

    def histogram(
        self, name: str, about: str, values: ArrayLike, buckets: tuple[float, ...]
    ) -> None:
        """Cumulative buckets, sum and count."""
        self._head(name, "histogram", about)
        sample = np.sort(np.asarray(values, np.float64))
        for bound, count in _cumulative(sample, buckets):
            label = "+Inf" if bound == inf else repr(bound)
            self._lines.append(self._sample(f"{name}_bucket", {"le": label}, count))
        self._lines.append(self._sample(f"{name}_sum", {}, float(sample.sum())))
        self._lines.append(self._sample(f"{name}_count", {}, len(sample)))

    def _head(self, name: str, kind: str, about: str) -> None:
        full = f"{self._prefix}:{name}"
        self._lines += [f"# HELP {full} {about}", f"# TYPE {full} {kind}"]

    def _sample(self, name: str, labels: dict[str, str], value: float) -> str:
        pairs = {**self._labels, **labels}.items()
        inside = ",".join(f'{key}="{_escape(text)}"' for key, text in pairs)
        return f"{self._prefix}:{name}{{{inside}}} {value!r}"


def _cumulative(sample: np.ndarray, buckets: tuple[float, ...]) -> Iterator[tuple[float, int]]:
    """How many values are at most each bound; the last bound is infinite."""
    counts = np.searchsorted(sample, buckets, side="right").tolist()
    return zip((*buckets, inf), (*counts, len(sample)), strict=True)


def _escape(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
