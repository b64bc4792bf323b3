"""Numbers that the prose of chapters 08 and 09 quotes, computed again in simulated time."""

from dataclasses import replace

import numpy as np
import pytest

from tinyvllm_lab.engine.config import EngineConfig
from tinyvllm_lab.engine.metrics import RunMetrics
from tinyvllm_lab.paths import assets_dir
from tinyvllm_lab.simulate import CostModel, Workload, simulate
from tinyvllm_lab.simulate.run import Run

CONFIG = EngineConfig(
    max_num_seqs=8, max_num_batched_tokens=2048, num_blocks=257, enable_prefix_caching=False
)


@pytest.fixture(scope="module")
def workload() -> Workload:
    return Workload.load(assets_dir() / "workloads" / "course.jsonl")


def play(workload: Workload, **knobs) -> Run:
    return simulate(workload, replace(CONFIG, **knobs), "A10G", "llama-3.2-1b")


def empty_seats(metrics: RunMetrics, *, queue: bool = False) -> float:
    """In percent of all seats in all steps, or in those in which somebody waited."""
    steps = metrics.steps
    share = (steps.seats - steps.batch_size) / steps.seats
    return round(100 * share[steps.waiting > 0].mean() if queue else 100 * share.mean(), 1)


def short_latency(run: Run) -> list[float]:
    """p50 and p95 of the short questions, in seconds."""
    return np.percentile([r.e2e for r in run.requests_of("short_answer")], (50, 95)).tolist()


@pytest.mark.parametrize(
    ("batching", "steps", "empty", "empty_with_queue", "tokens_per_s", "latency"),
    [
        ("static", 579, 60.7, 59.2, 498, [1.76, 2.91]),
        ("continuous", 289, 21.3, 0.0, 984, [0.73, 0.84]),
    ],
)
def test_side_by_side(
    workload, batching, steps, empty, empty_with_queue, tokens_per_s, latency
) -> None:
    run = play(workload, batching=batching)
    metrics = run.metrics()
    assert run.engine.num_steps == steps
    assert empty_seats(metrics) == empty
    assert empty_seats(metrics, queue=True) == empty_with_queue
    assert metrics.output_tokens_per_s == pytest.approx(tokens_per_s, abs=1)
    assert short_latency(run) == pytest.approx(latency, abs=0.01)


def test_the_bus_that_waits_at_step_140(workload) -> None:
    steps = play(workload, batching="static").metrics().steps
    assert (steps.batch_size[140], steps.waiting[140]) == (1, 28)


def test_more_seats_on_the_bus_bring_less_than_they_cost(workload) -> None:
    one, many = (
        play(workload, batching="static", max_num_seqs=seats, num_blocks=1100).metrics()
        for seats in (1, 32)
    )
    assert 5 < many.output_tokens_per_s / one.output_tokens_per_s < 6
    assert empty_seats(many) > 80


def test_company_is_nearly_free_up_to_a_point() -> None:
    gpu = CostModel("A10G", "llama-3.2-1b")
    one, many, crowd = (gpu.decode_step(n, 200).total_s for n in (1, 64, 256))
    assert 1.15 < many / one < 1.25
    assert 3 < crowd / one < 3.5
    assert round(gpu.saturation_batch) == 93


@pytest.mark.parametrize(
    ("order", "budget", "longest_gap_ms"),
    [
        ("decode-first", 64, 6.2),
        ("decode-first", 128, 6.9),
        ("decode-first", 2048, 26.7),
        ("prefill-first", 64, 37.4),
        ("prefill-first", 128, 19.9),
    ],
)
def test_what_the_budget_and_the_order_protect(workload, order, budget, longest_gap_ms) -> None:
    metrics = play(workload, max_num_batched_tokens=budget, order=order).metrics()
    assert 1000 * metrics.itl.maximum == pytest.approx(longest_gap_ms, abs=0.1)


def test_a_seat_stays_empty_while_a_long_prompt_uses_up_the_budget(workload) -> None:
    steps = play(workload, max_num_batched_tokens=128).metrics().steps
    assert steps.batch_size[123:128].tolist() == [8, 8, 7, 7, 8]


def test_cache_and_continuous_batching_need_each_other(workload) -> None:
    runs = {
        (cached, batching): play(
            workload, use_kv_cache=cached, batching=batching, max_num_batched_tokens=8192
        ).metrics()
        for cached in (False, True)
        for batching in ("static", "continuous")
    }
    naive = runs[False, "static"]
    gain = {key: naive.duration / metrics.duration for key, metrics in runs.items()}
    assert gain[False, "continuous"] == pytest.approx(1.03, abs=0.01)
    assert gain[True, "static"] == pytest.approx(2.5, abs=0.05)
    assert gain[True, "continuous"] == pytest.approx(5.0, abs=0.05)
    assert sum(naive.computed_tokens.values()) == 188_334
    assert sum(runs[True, "continuous"].computed_tokens.values()) == 4_696
