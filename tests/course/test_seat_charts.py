"""Seat charts show who sat where: held to what the log says was computed."""

from dataclasses import replace

import pytest

from tinyvllm_lab.course.memory_charts import request_colour
from tinyvllm_lab.course.seat_charts import seat_chart, stays
from tinyvllm_lab.engine.config import EngineConfig
from tinyvllm_lab.engine.events import Kind
from tinyvllm_lab.paths import assets_dir
from tinyvllm_lab.simulate import Workload, simulate

CONFIG = EngineConfig(max_num_seqs=8, num_blocks=257, enable_prefix_caching=False)
SMALL_POOL = replace(CONFIG, num_blocks=48, max_model_len=704)
"""Too small for eight: requests are preempted and come back."""


@pytest.fixture(scope="module")
def workload() -> Workload:
    return Workload.load(assets_dir() / "workloads" / "course.jsonl")


@pytest.mark.parametrize("config", [CONFIG, replace(CONFIG, batching="static"), SMALL_POOL])
def test_whoever_computes_sits_in_a_seat_of_their_own(workload, config) -> None:
    log = simulate(workload, config).log
    seated = {(s.request, step): s.seat for s in stays(log) for step in range(s.first, s.last)}
    computed = {
        (event.a, step)
        for step in range(log.num_steps)
        for event in log.events(step)
        if event.kind is Kind.SCHEDULED
    }
    assert computed == set(seated)
    taken = {(seat, step) for (_, step), seat in seated.items()}
    assert len(taken) == len(seated), "two requests in one seat"


def test_the_small_pool_makes_people_leave_and_come_back(workload) -> None:
    log = simulate(workload, SMALL_POOL).log
    assert len(stays(log)) > len(workload)


def test_a_run_that_goes_on_is_drawn_up_to_now(workload) -> None:
    log = simulate(workload, CONFIG).log
    kept = log.kept()
    stop = log.step_range(5).stop
    begun = type(log).of(kept._replace(rows=kept.rows[:stop]), CONFIG)
    assert {stay.last for stay in stays(begun)} == {6}


def test_bars_have_the_colours_of_their_requests(workload) -> None:
    logs = {name: simulate(workload, replace(CONFIG, batching=name)).log
            for name in ("static", "continuous")}  # fmt: skip
    fig = seat_chart(logs, "Two", "simulated")
    grey, bars, _, others = fig.data
    assert list(grey.x) == [logs["static"].num_steps] * 8
    assert list(bars.marker.color) == [request_colour(int(n)) for n in bars.text]
    assert sorted(map(int, others.text)) == list(range(len(workload)))
    assert fig.layout.xaxis.range == fig.layout.xaxis2.range == (0, logs["static"].num_steps)
    assert fig.layout.height <= 380
