"""Metrics of a log written by hand: every number can be checked on paper."""

import math

import numpy as np
import pytest

from tinyvllm_lab.engine.config import EngineConfig
from tinyvllm_lab.engine.events import Kind, Phase, Reason
from tinyvllm_lab.engine.log import EventLog
from tinyvllm_lab.engine.metrics import SLO, Distribution, compute_metrics


def write(log, *events):
    for event in events:
        log.buffer += event
    log.flush()


def by_hand() -> EventLog:
    """Two seats, blocks of 4 tokens, four steps.

    Request 0 (prompt 5) is preempted in step 2 and comes back in step 3; request 1 (prompt 9) finds
    4 tokens in the prefix cache; request 2 is aborted while it waits; request 3 is refused.
    """
    log = EventLog(
        EngineConfig(max_num_seqs=2, block_size=4, num_blocks=11, max_num_batched_tokens=64)
    )
    log.info["kv_bytes_per_token"] = 10
    log.add_request(0, "zero", prompt_tokens=5, max_tokens=3, arrival_us=900)
    log.add_request(1, "one", prompt_tokens=9, max_tokens=9)
    write(
        log,
        (Kind.STEP, 0, 0, 1000),
        (Kind.SUBMIT, 0, 5, 3),
        (Kind.ADMIT, 0, 0, 0),
        (Kind.BLOCK_ALLOC, 1, 0, 0),
        (Kind.BLOCK_ALLOC, 2, 0, 1),
        (Kind.BLOCK_CACHE, 1, 0, 0),
        (Kind.SCHEDULED, 0, 5, Phase.PREFILL),
        (Kind.TOKEN, 0, 70, 1),
        (Kind.STEP_END, 2000, 11, 900),
    )
    write(
        log,
        (Kind.STEP, 0, 2, 2000),
        (Kind.SUBMIT, 1, 9, 9),
        (Kind.SUBMIT, 2, 4, 1),
        (Kind.REJECT, 3, 0, 1),
        (Kind.SCHEDULED, 0, 1, Phase.DECODE),
        (Kind.ADMIT, 1, 1, 4),
        (Kind.BLOCK_SHARE, 1, 1, 0),
        (Kind.BLOCK_ALLOC, 3, 1, 1),
        (Kind.BLOCK_ALLOC, 4, 1, 2),
        (Kind.SCHEDULED, 1, 5, Phase.PREFILL),
        (Kind.TOKEN, 0, 71, 2),
        (Kind.TOKEN, 1, 72, 1),
        (Kind.STEP_END, 4000, 12, 1900),
    )
    write(
        log,
        (Kind.STEP, 1, 4, 4000),
        (Kind.FINISH, 2, Reason.ABORT, -1),
        (Kind.PREEMPT, 0, 0, 0),
        (Kind.BLOCK_FREE, 2, 0, 0),
        (Kind.BLOCK_UNSHARE, 1, 0, 1),
        (Kind.SCHEDULED, 1, 1, Phase.DECODE),
        (Kind.TOKEN, 1, 73, 2),
        (Kind.FINISH, 1, Reason.STOP, 1),
        (Kind.BLOCK_FREE, 4, 1, 0),
        (Kind.BLOCK_FREE, 3, 1, 0),
        (Kind.BLOCK_FREE, 1, 1, 1),
        (Kind.STEP_END, 5000, 13, 900),
    )
    write(
        log,
        (Kind.STEP, 1, 0, 6000),
        (Kind.RESUME, 0, 0, 4),
        (Kind.BLOCK_SHARE, 1, 0, 0),
        (Kind.BLOCK_ALLOC, 2, 0, 1),
        (Kind.SCHEDULED, 0, 2, Phase.RECOMPUTE),
        (Kind.SCHEDULED, 0, 1, Phase.DECODE),
        (Kind.TOKEN, 0, 74, 3),
        (Kind.FINISH, 0, Reason.LENGTH, 0),
        (Kind.BLOCK_FREE, 2, 0, 0),
        (Kind.BLOCK_FREE, 1, 0, 1),
        (Kind.STEP_END, 9000, 14, 2900),
    )
    return log


def ms(value):
    return pytest.approx(value / 1000)


def test_requests_by_hand():
    zero, one, two = compute_metrics(by_hand()).requests
    assert (zero.request_id, one.request_id, two.request_id) == ("zero", "one", "request-2")
    assert (zero.arrival, one.arrival, two.arrival) == (ms(0.9), ms(2), ms(2))
    assert (zero.queue_time, one.queue_time, two.queue_time) == (ms(0.1), ms(0), None)
    assert (zero.ttft, one.ttft, two.ttft) == (ms(1.1), ms(2), None)
    assert (zero.tpot, one.tpot, two.tpot) == (ms(3.5), ms(1), None)
    assert (zero.e2e, one.e2e, two.e2e) == (ms(8.1), ms(3), None)
    assert (zero.prefill_time, zero.decode_time, zero.inference_time) == (ms(1), ms(7), ms(8))
    assert (zero.reason, one.reason, two.reason) == (Reason.LENGTH, Reason.STOP, Reason.ABORT)
    assert (zero.finish, one.finish, two.finish) == (ms(9), ms(5), ms(4))
    assert (zero.output_tokens, one.output_tokens, two.output_tokens) == (3, 2, 0)
    assert (zero.preemptions, zero.recomputed_tokens) == (1, 2)
    assert zero.preempted_time == ms(2)
    assert (zero.hit_tokens, zero.resumed_hit_tokens, one.hit_tokens) == (0, 4, 4)


def test_the_run_by_hand():
    run = compute_metrics(by_hand(), SLO(ttft=0.0015))
    assert run.duration == ms(8)
    assert run.reasons == {Reason.STOP: 1, Reason.LENGTH: 1, Reason.ABORT: 1}
    assert (run.num_ended, run.num_rejected, run.num_good) == (2, 1, 1)
    assert run.requests_per_s == pytest.approx(250)
    assert run.goodput == pytest.approx(125)
    assert run.output_tokens_per_s == pytest.approx(5 / 0.008)
    assert run.computed_tokens == {"prefill": 10, "decode": 3, "recompute": 2}
    assert run.computed_tokens_per_s == pytest.approx(15 / 0.008)
    assert (run.prompt_tokens, run.output_tokens) == (18, 5)
    assert sorted(run.gaps) == pytest.approx([0.001, 0.002, 0.005])
    assert (run.itl.count, run.itl.mean, run.itl.p50) == (3, ms(8 / 3), ms(2))
    assert (run.preemptions, run.recomputed_tokens) == (1, 2)
    assert (run.hit_tokens, run.resumed_hit_tokens) == (4, 4)
    assert run.prefix_hit_rate == pytest.approx(4 / 14)
    assert (run.ttft.count, run.tpot.count, run.e2e.count, run.queue_time.count) == (2, 2, 2, 2)


def test_seats_by_hand():
    run = compute_metrics(by_hand())
    assert run.steps.batch_size.tolist() == [1, 2, 1, 1]
    assert run.steps.duration_us.tolist() == [1000, 2000, 1000, 3000]
    assert run.batch_occupancy == pytest.approx((0.5 + 1 + 0.5 + 0.5) / 4)
    # One of two seats is empty for 1 + 1 + 3 of 7 ms.
    assert run.idle_slot_share == pytest.approx(5 / 14)
    assert (run.mean_batch_size, run.mean_batch_tokens) == (1.25, 15 / 4)
    assert run.steps.schedule_us.tolist() == [11, 12, 13, 14]
    assert run.steps.execute_us.tolist() == [900, 1900, 900, 2900]
    assert run.steps.waiting.tolist() == [0, 0, 1, 1]


def test_kv_memory_by_hand():
    kv = compute_metrics(by_hand()).kv
    columns = kv.columns
    assert columns.capacity == 40
    # Blocks 1 2 | 1 2 3 4, block 1 shared | 1 3 4 | 1 2
    assert columns.reserved.tolist() == [8, 16, 12, 8]
    assert columns.used.tolist() == [5, 11, 10, 7]
    assert columns.internal.tolist() == [3, 5, 2, 1]
    assert columns.external.tolist() == [0, 0, 0, 0]
    assert (kv.capacity, kv.peak_reserved, kv.peak_used) == (400, 160, 110)
    assert kv.mean_reserved == pytest.approx(10 * (8 * 1 + 16 * 2 + 12 * 1 + 8 * 3) / 7)
    assert kv.mean_wasted == pytest.approx(10 * (3 * 1 + 5 * 2 + 2 * 1 + 1 * 3) / 7)
    assert kv.wasted_share == pytest.approx((3 + 10 + 2 + 3) / (8 + 32 + 12 + 24))
    assert compute_metrics(by_hand(), kv_bytes_per_token=3).kv.capacity == 120


def test_contiguous_memory_by_hand():
    log = EventLog(
        EngineConfig(
            allocator="contiguous-first-fit", enable_prefix_caching=False, block_size=4,
            num_blocks=26,
        )
    )  # fmt: skip
    start = [(Kind.STEP, 0, 0, 0)]
    for request, (begin, length) in enumerate([(0, 20), (20, 40), (60, 16)]):
        start += [
            (Kind.SUBMIT, request, length, 5),
            (Kind.ADMIT, request, request, 0),
            (Kind.REGION_ALLOC, request, begin, length),
            (Kind.SCHEDULED, request, length - 3, Phase.PREFILL),
        ]
    write(log, *start, (Kind.STEP_END, 10, 0, 0))
    write(
        log,
        (Kind.STEP, 0, 76, 10),
        (Kind.FINISH, 1, Reason.ABORT, 1),
        (Kind.REGION_FREE, 1, 20, 40),
        (Kind.REGION_GROW, 2, 60, 24),
        (Kind.REGION_MOVE, 0, 0, 4),
        (Kind.STEP_END, 20, 0, 0),
    )
    columns = compute_metrics(log).kv.columns
    assert columns.capacity == 100
    assert columns.reserved.tolist() == [76, 44]
    assert columns.used.tolist() == [67, 17 + 13]
    assert columns.internal.tolist() == [9, 14]
    # Holes: 76-100 | 0-4, 24-60, 84-100
    assert columns.external.tolist() == [0, 4 + 16]
    assert columns.wasted.tolist() == [9, 34]


def test_seats_follow_the_knob_and_drain():
    log = EventLog(EngineConfig(max_num_seqs=4))
    name, four, one = (log.intern_knob(v) for v in ("max_num_seqs", 4, 1))
    events = []
    for step in range(3):
        events.append((Kind.STEP, 0, 0, step))
        if step == 1:
            events.append((Kind.KNOB, name, four, one))
        events += [(Kind.SCHEDULED, request, 1, Phase.DECODE) for request in range(3 - step)]
        events.append((Kind.STEP_END, step + 1, 0, 0))
    write(log, *events)
    run = compute_metrics(log)
    assert run.steps.batch_size.tolist() == [3, 2, 1]
    assert run.steps.seats.tolist() == [4, 2, 1]
    assert run.idle_slot_share == pytest.approx(1 / 7)


def test_an_empty_log_and_a_log_without_steps_have_metrics():
    for events in ([], [(Kind.SUBMIT, 0, 3, 3), (Kind.REJECT, 1, 0, 0)]):
        log = EventLog()
        write(log, *events)
        run = compute_metrics(log, SLO())
        assert (run.duration, run.requests_per_s, run.goodput) == (0, 0, 0)
        assert (run.requests, run.ttft.count) == ([], 0)
        assert math.isnan(run.ttft.p50)
        assert compute_metrics(log).goodput is None


def test_a_step_that_never_ended_has_no_length():
    log = EventLog()
    write(log, (Kind.STEP, 0, 0, 5), (Kind.STEP, 0, 0, 9), (Kind.STEP_END, 12, 0, 0))
    write(log, (Kind.STEP, 0, 0, 20))
    assert compute_metrics(log).steps.end_us.tolist() == [9, 12, 20]


def test_percentiles_are_linear():
    values = [0.1, 0.4, 0.2, None, 0.3]
    distribution = Distribution.of(values)
    assert distribution.count == 4
    assert distribution.p50 == pytest.approx(0.25)
    assert distribution.p90 == pytest.approx(np.quantile([0.1, 0.2, 0.3, 0.4], 0.9))
    assert (distribution.minimum, distribution.maximum) == (0.1, 0.4)


def test_slo_limits():
    zero, one, two = compute_metrics(by_hand()).requests
    assert SLO().is_met_by(zero)
    assert not SLO().is_met_by(two)
    assert SLO(ttft=0.0011, tpot=0.0036, e2e=0.009).is_met_by(zero)
    assert not SLO(tpot=0.003).is_met_by(zero)
    assert not SLO(e2e=0.0029).is_met_by(one)
