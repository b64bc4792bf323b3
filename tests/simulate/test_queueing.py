"""The simulator against queueing theory: M/D/1, plain queues, Little's law."""

import heapq
from statistics import fmean

import pytest
from log_reading import events, times_us

from tinyvllm_lab.engine.config import EngineConfig
from tinyvllm_lab.engine.engine import Engine
from tinyvllm_lab.engine.events import Kind
from tinyvllm_lab.engine.feed import run_to_end
from tinyvllm_lab.simulate import presets
from tinyvllm_lab.simulate.arrivals import Poisson
from tinyvllm_lab.simulate.executor import SimulatedExecutor, VirtualClock
from tinyvllm_lab.simulate.feed import WorkloadFeed
from tinyvllm_lab.simulate.lengths import Fixed, Uniform
from tinyvllm_lab.simulate.run import simulate
from tinyvllm_lab.simulate.workloads import Workload

SMALL = EngineConfig(max_num_seqs=8, max_num_batched_tokens=256, num_blocks=400, max_model_len=4096)


def simulate_fixed_step(workload: Workload, step_us: int, config: EngineConfig):
    clock = VirtualClock()
    engine = Engine(config, SimulatedExecutor(fixed_step_us=step_us), clock=clock)
    run_to_end(engine, WorkloadFeed(workload))
    return engine.log


def test_one_seat_and_one_step_a_request_is_the_queue_m_d_1():
    # Pollaczek-Khinchine: with utilisation rho a customer waits rho * D / (2 * (1 - rho)).
    step_s, rho, count = 0.010, 0.5, 20_000
    workload = presets.independent(count, Poisson(rho / step_s), Fixed(1), Fixed(1), seed=3)
    log = simulate_fixed_step(workload, 10_000, EngineConfig(max_num_seqs=1))
    stay = fmean(done - arrival for arrival, done in times_us(log).values()) / 1e6
    assert stay - step_s == pytest.approx(rho * step_s / (2 * (1 - rho)), rel=0.05)


def test_one_seat_serves_as_a_plain_queue_does():
    workload = presets.independent(300, Poisson(12.0), Fixed(5), Uniform(1, 12), seed=4)
    log = simulate_fixed_step(workload, 10_000, EngineConfig(max_num_seqs=1))
    free, expected = 0.0, {}
    for asked in workload:  # one step a token, first come, first served, no overlap
        free = max(free, asked.arrival_s) + 0.010 * asked.max_tokens
        expected[asked.request_id] = free
    done = {name: times[-1] / 1e6 for name, times in times_us(log).items()}
    assert done == pytest.approx(expected, abs=1e-3)  # a jump rounds up to a microsecond


def test_many_seats_serve_as_many_servers_of_equal_speed():
    # Steps that all take the same time make each seat a server; arrivals wait for the next step.
    step, seats = 10_000, 4
    workload = presets.independent(300, Poisson(40.0), Fixed(5), Uniform(1, 16), seed=5)
    log = simulate_fixed_step(workload, step, EngineConfig(max_num_seqs=seats))
    done = {name: times[-1] for name, times in times_us(log).items()}
    starts = sorted(t for _, _, t in events(log, Kind.STEP))
    free = [0] * seats
    for asked in workload:
        ready = max(heapq.heappop(free), round(asked.arrival_s * 1e6))
        begin = next(t for t in starts if t >= ready)
        assert done[asked.request_id] == begin + step * asked.max_tokens
        heapq.heappush(free, done[asked.request_id])


def test_littles_law_holds():
    # Mean number in the system = arrival rate x mean stay. Left: counted at the ends of steps.
    # Right: from the requests' own times, which also count the wait for the step to end.
    run = simulate(presets.independent(300, Poisson(4.0), seed=6), SMALL)
    inside = area = begin = end = 0
    for kind, a, _, c in run.log.as_array().tolist():
        inside += (kind == Kind.SUBMIT) - (kind == Kind.FINISH)
        begin = c if kind == Kind.STEP else begin
        if kind == Kind.STEP_END:
            area, end = area + inside * (a - begin), a
    stays = [row.finish - row.arrival for row in run.metrics().requests]
    rate = len(stays) / (end / 1e6)
    assert area / end == pytest.approx(rate * fmean(stays), rel=0.05)
    assert area / end > 2
