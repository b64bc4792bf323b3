"""Sweeps: limits that need no simulator, and every number again from the metrics' rows."""

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from tinyvllm_lab.engine.config import EngineConfig
from tinyvllm_lab.engine.events import Kind
from tinyvllm_lab.engine.metrics import SLO
from tinyvllm_lab.engine.metrics_frames import request_frame
from tinyvllm_lab.errors import ConfigError
from tinyvllm_lab.simulate import (
    Bursts,
    ClosedLoop,
    Fixed,
    LogNormal,
    Poisson,
    Uniform,
    Workload,
    at_rate,
    independent,
    load_points,
    load_sweep,
    simulate,
)
from tinyvllm_lab.simulate.sweep import EDGE, LoadSweep, middle_rate

CONFIG = EngineConfig(
    max_num_seqs=8, num_blocks=600, max_num_batched_tokens=512, max_model_len=1024
)


@pytest.fixture(scope="module")
def workload():
    return independent(120, Poisson(1.0), Uniform(16, 200), LogNormal(24, 0.6, 2, 90), seed=4)


@pytest.fixture(scope="module")
def curve(workload):
    return load_sweep(workload, CONFIG)


def test_at_a_tiny_rate_every_request_is_as_fast_as_alone(workload):
    point = load_sweep(workload, CONFIG, rates=[1e-3]).points[0]
    first = int(EDGE * len(workload))
    assert len(point.requests) == len(workload) - 2 * first
    for found, asked in list(zip(point.requests, workload.requests[first:], strict=False))[::9]:
        alone = Workload("alone", (replace(asked, arrival_s=0.0),))
        solo = simulate(alone, CONFIG).metrics().requests[0]
        assert (found.request_id, found.output_tokens) == (asked.request_id, asked.max_tokens)
        for name in ("ttft", "tpot", "e2e"):
            assert getattr(found, name) == pytest.approx(getattr(solo, name), abs=2e-6)
    assert point.requests_per_s == pytest.approx(1e-3, rel=0.01)
    assert not point.is_saturated


def test_no_rate_is_served_faster_than_the_capacity(curve):
    assert curve.capacity.rate == math.inf
    assert [p.rate for p in curve.points] == sorted(p.rate for p in curve.points)
    for point in curve.points:
        assert point.requests_per_s < 1.05 * min(point.rate, curve.capacity.requests_per_s)
        assert point.output_tokens_per_s < 1.05 * curve.capacity.output_tokens_per_s
    waits = [point.run.metrics().queue_time.mean for point in curve.points]
    assert waits == sorted(waits)


def test_the_queue_grows_from_the_capacity_on(curve):
    capacity = curve.capacity.requests_per_s
    assert 0.85 < curve.saturation.rate / capacity < 1.3
    assert not any(point.is_saturated for point in curve.points if point.rate < 0.85 * capacity)
    for point in curve.points:
        frame = request_frame(point.run.metrics())
        assert point.backlog == (frame.admitted > frame.arrival.max()).sum()


def test_littles_law_at_every_rate(curve):
    """Mean number in the system = arrivals a second x mean time in the system."""
    for point in [curve.capacity, *curve.points]:
        metrics = point.run.metrics()
        steps = metrics.steps
        in_system = ((steps.waiting + steps.batch_size) * steps.duration_us).sum() / 1e6
        times = sum(request.e2e for request in metrics.requests)
        assert in_system == pytest.approx(times, rel=0.05)


def test_every_number_again_from_the_rows(curve):
    slo = SLO(ttft=0.05, tpot=0.0075)
    goods = []
    for point in curve.points:
        frame = request_frame(point.run.metrics()).sort_values("arrival", kind="stable")
        edge = len(frame) // 5
        rows = frame.iloc[edge:-edge]
        met = (rows.ttft <= 0.05) & ~(rows.tpot > 0.0075)
        ends = np.sort(frame.finish)[edge:-edge]
        served = np.polyfit(ends, np.arange(len(ends)), 1)[0]
        assert point.requests_per_s == pytest.approx(served)
        assert point.attainment(slo) == met.mean()
        assert point.goodput(slo) == pytest.approx(met.mean() * served)
        assert point.tpot.p95 == pytest.approx(np.nanpercentile(rows.tpot, 95))
        assert point.ttft.p50 == pytest.approx(rows.ttft.median())
        goods.append(met.mean())
    assert goods[0] > 0.95 > goods[-1]
    best = curve.best(slo, 0.95)
    first_bad = next(i for i, share in enumerate(goods) if share < 0.95)
    assert best is curve.points[first_bad - 1]


def test_the_tokens_are_those_of_the_middle(curve):
    for point in curve.points[:3]:
        times, new = [], 0
        for kind, a, _, _ in point.run.log.as_array().tolist():
            new += kind == Kind.TOKEN
            if kind == Kind.STEP_END:
                times += new * [a / 1e6]
                new = 0
        edge = len(times) // 5
        middle = times[edge:-edge]
        sampled = np.polyfit(middle, np.arange(len(middle)), 1)[0]
        assert point.output_tokens_per_s == pytest.approx(sampled)


def test_a_rate_moves_the_arrivals_and_nothing_else(workload):
    for rate in (0.5, 7.0):
        other = at_rate(workload, rate)
        assert [(r.request_id, r.prompt_token_ids, r.max_tokens) for r in other] == [
            (r.request_id, r.prompt_token_ids, r.max_tokens) for r in workload
        ]
        times = np.array([r.arrival_s for r in other])
        ratios = times / [r.arrival_s for r in workload]
        assert ratios == pytest.approx(np.full(len(other), ratios[0]))
        edge = len(times) // 5
        middle = times[edge:-edge]
        assert np.polyfit(middle, np.arange(len(middle)), 1)[0] == pytest.approx(rate)
    assert {r.arrival_s for r in at_rate(workload, math.inf)} == {0.0}


def test_equal_sweeps_are_equal_and_a_point_is_a_run_like_any_other(workload, curve):
    point = load_sweep(workload, CONFIG, rates=[curve.points[4].rate]).points[0]
    assert point.requests == curve.points[4].requests
    again = simulate(point.run.workload, point.run.config)
    assert again.metrics().requests == point.run.metrics().requests
    assert again.log.info == point.run.log.info


def test_the_middle_of_even_times():
    assert middle_rate(np.arange(100) / 4) == pytest.approx(4.0)
    # What happens at the begin and at the end does not count.
    times = [0.0] * 20 + [*np.linspace(5, 8, 61)] + [900.0] * 19
    assert middle_rate(times[::-1]) == pytest.approx(20.0)
    assert middle_rate([3.0] * 50) == middle_rate([]) == middle_rate([1.0]) == 0.0


def test_best_and_saturation_look_at_all_rates_below_and_above():
    points = [
        SimpleNamespace(name=name, attainment=lambda _, share=share: share, is_saturated=full)
        for name, share, full in (
            ("a", 1.0, False), ("b", 0.96, True), ("c", 0.9, False), ("d", 0.99, True),
            ("e", 0.2, True),
        )
    ]  # fmt: skip
    curve = LoadSweep(points[0], points)
    assert curve.best(SLO(ttft=1.0)).name == "b"
    assert curve.best(SLO(ttft=1.0), 0.99).name == "a"
    assert curve.saturation.name == "d"
    assert LoadSweep(points[0], points[2:3]).best(SLO(ttft=1.0)) is None
    assert LoadSweep(points[0], points[:1]).saturation is None


def test_a_sweep_that_is_not_wanted_ends_within_a_step(workload):
    asked = []

    def stop():
        asked.append(True)
        return len(asked) > 1000

    points = list(load_points(workload, CONFIG, stop=stop))
    assert len(asked) == 1001
    assert [point.rate for point in points][:1] == [math.inf]
    assert len(points) < 4


def test_what_is_no_open_loop_is_refused(workload):
    closed = independent(40, ClosedLoop(4))
    at_once = independent(40, Bursts(40, 1.0))
    small = EngineConfig(max_num_seqs=8, num_blocks=600, max_model_len=64)
    for bad, config, rates, words in (
        (closed, None, None, "wait for the answers"),
        (at_once, None, None, "all at once"),
        (independent(10), None, None, "has 10 requests"),
        (workload, None, [3.0, 0.0], "A rate is 0.0"),
        (workload, None, [math.inf], "A rate is inf"),
        (workload, small, None, "were refused"),
        (independent(20, prompt=Fixed(4), output=Fixed(1)), None, None, "ended in one step"),
    ):
        with pytest.raises(ConfigError, match=words):
            load_sweep(bad, config, rates=rates)
    assert load_sweep(workload, CONFIG, rates=[]).points == []
    with pytest.raises(ConfigError, match="abacus"):
        load_sweep(workload, hardware="abacus")
