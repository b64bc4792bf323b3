"""Bugs that were reported against other engines: each test names its number in the list below.

 1 a request outgrows the pool and the engine dies             16 a fully cached prompt of k blocks
 2 a request fits max_model_len but not the pool: hang         17 equal prompts in one step
 3 a preempted request in the queue that is being walked       18 can_append by modulo
 4 admission on the first chunk thrashes                       19 blocks at prompts of 11, 12, 13
 5 seats counted per step, not per batch                       20 double free
 6 prefill first starves decodes                               21 reference counts after reset
 7 prompt == max_model_len                                     22 a live block in the free queue
 8 nothing runs after a refused prompt                         23 pages counted twice when idle
 9 the victim was scheduled in the same step                   24 abort before, twice, and unknown
10 a request that fits exactly waits for ever                  25 hash collisions
11 stale hash entries                                          26 output after preemption
12 a resumed request hits its own blocks                       27 chunked prefill
13 hits in the free queue are not charged                      28 positions
14 hits touched before the capacity check                      29 hit and miss give other output
15 hit length remembered from the first look

25 stands in test_engine.py, 27 in test_torch_executor.py; 26, 28 and 29 need the model and stand in
test_same_tokens.py.
"""

import pytest
from helpers import alone, make_engine, run

from tinyvllm_lab.cache import BlockPool
from tinyvllm_lab.engine.events import Kind, Reason
from tinyvllm_lab.engine.request import Status
from tinyvllm_lab.engine.sampling_params import SamplingParams
from tinyvllm_lab.engine.scheduler import Scheduler
from tinyvllm_lab.errors import CacheError, EngineError, RequestRefused


def tokens(n, first=0):
    return list(range(first, first + n))


def params(max_tokens, **more):
    return SamplingParams(max_tokens=max_tokens, **more)


def small_pool(usable, **config):
    return make_engine(
        **{"block_size": 4, "num_blocks": usable + 1, "enable_prefix_caching": False} | config
    )


def good_request_finishes(engine):
    request = engine.add_request(tokens(3), params(2))
    run(engine)
    assert request.finish_reason is Reason.LENGTH
    assert engine.scheduler.memory.num_used == 0


def steps_with_events(engine):
    """Step until done; yields the step's plan and its events as (kind, a, b, c) rows."""
    while engine.has_work:
        plan = engine.step().plan
        yield plan, engine.log.rows(*_span(engine.log.step_range(engine.num_steps - 1))).tolist()


def _span(numbers):
    return numbers.start, numbers.stop


@pytest.mark.parametrize("prompt", [8, 12])
def test_1_a_request_that_outgrows_the_pool_is_refused_and_the_others_go_on(prompt):
    engine = small_pool(2)
    before = engine.add_request(tokens(3), params(3))
    with pytest.raises(RequestRefused, match="blocks"):
        engine.add_request(tokens(prompt), params(4))
    run(engine)
    assert before.finish_reason is Reason.LENGTH
    good_request_finishes(engine)


def test_2_fitting_max_model_len_is_not_enough():
    engine = small_pool(2, max_model_len=100)
    with pytest.raises(RequestRefused, match="pool has 2"):
        engine.add_request(tokens(90), params(4))
    good_request_finishes(engine)


def test_2_the_watchdog_barks_when_work_is_left_but_nothing_moves():
    class Lazy(Scheduler):
        def _has_seat(self):
            return False

    engine = make_engine(engine={"scheduler": Lazy})
    request = engine.add_request(tokens(3), params(2))
    engine.step()
    engine.step()
    with pytest.raises(EngineError, match="1 waiting"):
        engine.step()
    engine.abort(request.request_id)
    run(engine)
    assert request.finish_reason is Reason.ABORT


def test_3_schedule_ends_and_admits_nobody_in_a_step_that_preempted():
    engine = small_pool(6, max_num_seqs=4)
    for i in range(4):
        engine.add_request(tokens(7, 100 * i), params(12))
    preempted = 0
    for plan, _ in steps_with_events(engine):
        preempted += len(plan.preempted)
        assert not (plan.preempted and (plan.admitted or plan.resumed))
    assert preempted > 0


def recomputed(reserve):
    engine = small_pool(
        13, reserve_full_isl=reserve, max_num_batched_tokens=8, max_num_seqs=4, max_model_len=48
    )
    for i in range(4):
        engine.add_request(tokens(40, 100 * i), params(2))
    run(engine)
    rows = engine.log.as_array().tolist()
    return sum(n for kind, _, n, phase in rows if kind == Kind.SCHEDULED and phase == 2)


def test_4_the_full_prompt_gate_keeps_prompts_from_being_computed_twice():
    assert recomputed(reserve=True) == 0
    assert recomputed(reserve=False) > 0


def test_5_no_more_requests_run_than_there_are_seats():
    engine = small_pool(40, max_num_seqs=2, max_num_batched_tokens=8)
    sent = [engine.add_request(tokens(6, 100 * i), params(9)) for i in range(5)]
    for _ in steps_with_events(engine):
        assert len(engine.scheduler.running) <= 2
    assert all(r.num_output_tokens == 9 for r in sent)


def decode_free_steps(order):
    engine = small_pool(60, order=order, max_num_seqs=8, max_num_batched_tokens=16)
    first = engine.add_request(tokens(4, 1000), params(20))
    engine.step()
    for i in range(4):
        engine.add_request(tokens(16, 100 * i), params(1))
    return sum(first not in plan.requests for plan, _ in steps_with_events(engine) if plan.admitted)


def test_6_running_decodes_get_a_token_in_every_step_unless_prefills_go_first():
    assert decode_free_steps("decode-first") == 0
    assert decode_free_steps("prefill-first") == 4


@pytest.mark.parametrize("length", [15, 16, 17])
def test_7_8_a_prompt_that_fills_the_model_is_refused_and_a_good_one_runs(length):
    engine = small_pool(8, max_model_len=16, max_num_batched_tokens=4)
    if length < 16:
        request = engine.add_request(tokens(length), params(5))
        run(engine)
        assert request.num_output_tokens == 1
    else:
        with pytest.raises(RequestRefused, match="max_model_len"):
            engine.add_request(tokens(length), params(5))
    good_request_finishes(engine)


def test_9_a_victim_that_had_its_tokens_gives_them_back():
    engine = small_pool(6, policy="priority", max_num_seqs=4)
    sent = [engine.add_request(tokens(7, 100 * i), params(9), priority=3 - i) for i in range(4)]
    for plan, events in steps_with_events(engine):
        running = engine.scheduler.running
        assert all(r in running or r.is_finished for r in plan.requests)
        assert not set(map(id, plan.requests)) & set(map(id, plan.preempted))
        scheduled = [row[1] for row in events if row[0] == Kind.SCHEDULED]
        assert set(scheduled) == {r.index for r in plan.requests}
        served = set(map(id, plan.requests))
        waiting = engine.scheduler.waiting
        assert all(id(r) in served for r in running if r not in waiting)
    assert all(r.output_token_ids == alone(r.prompt_token_ids, 9) for r in sent)


def test_10_a_request_that_fits_exactly_completes_and_one_more_token_is_refused():
    engine = small_pool(3)
    exact = engine.add_request(tokens(5), params(8))  # 5 + 8 - 1 = 12 = 3 blocks of 4
    run(engine)
    assert exact.num_output_tokens == 8
    with pytest.raises(RequestRefused):
        engine.add_request(tokens(5), params(9))


def test_11_an_evicted_prefix_misses_and_the_hash_map_stays_small():
    engine = small_pool(6, enable_prefix_caching=True)
    hits = []
    for prompt in (tokens(9), tokens(17, 100), tokens(17, 200), tokens(9)):
        engine.add_request(prompt, params(2))
        for plan, _ in steps_with_events(engine):
            hits += plan.hit_tokens
            assert engine.scheduler.memory.pool.num_hashes <= 6
    assert hits == [0, 0, 0, 0]


def test_12_a_resumed_request_recomputes_only_what_the_cache_lost():
    engine = small_pool(7, enable_prefix_caching=True, max_num_seqs=2)
    sent = [engine.add_request(tokens(11, 100 * i), params(8)) for i in range(2)]
    resumed = []
    for plan, _ in steps_with_events(engine):
        rows = zip(plan.requests, plan.starts, plan.num_tokens, strict=True)
        resumed += [(start, n) for r, start, n in rows if r in plan.resumed]
    assert resumed
    assert all(start > 0 and start % 4 == 0 and n >= 1 for start, n in resumed)
    assert all(r.output_token_ids == alone(r.prompt_token_ids, 8) for r in sent)


def blocked_by_hits():
    """A head whose hits lie in the free queue: taking them leaves too few blocks for the rest."""
    engine = small_pool(6, enable_prefix_caching=True, max_num_seqs=3)
    engine.add_request(tokens(9), params(1))  # leaves two cached blocks
    run(engine)
    busy = engine.add_request(tokens(9, 500), params(7))  # holds 3, later 4 blocks
    engine.step()
    head = engine.add_request([*tokens(8), *tokens(6, 900)], params(1))  # 2 hits and 2 more
    return engine, busy, head


def test_13_14_hits_in_the_free_queue_are_charged_and_a_failed_look_changes_nothing():
    engine, busy, head = blocked_by_hits()
    pool = engine.scheduler.memory.pool
    for _ in range(5):
        before = (pool.free_queue(), list(pool.ref_counts), pool.num_hashes)
        engine.step()
        assert head.status is Status.WAITING
        assert head.block_table == []
        after = (pool.free_queue(), list(pool.ref_counts), pool.num_hashes)
        if busy.num_computed_tokens % 4 != 1:  # busy took no block in this step
            assert before[1] == after[1]
    run(engine)
    assert head.output_token_ids == alone(head.prompt_token_ids, 1)


def test_15_the_look_up_is_made_at_admission_not_remembered():
    engine, busy, head = blocked_by_hits()
    engine.step()
    pool = engine.scheduler.memory.pool
    cached = [b for b in pool.free_queue() if pool.hashes[b] is not None]
    for block in cached:  # somebody evicts the hits while the head waits
        pool.uncache(block, busy.index, 0)
    run(engine)
    assert head.output_token_ids == alone(head.prompt_token_ids, 1)


@pytest.mark.parametrize(("length", "hit"), [(8, 4), (9, 8), (12, 8), (13, 12)])
def test_16_at_least_one_token_is_computed_of_a_fully_cached_prompt(length, hit):
    engine = small_pool(12, enable_prefix_caching=True)
    for expected in (0, hit):
        request = engine.add_request(tokens(length), params(3))
        plan = engine.step().plan
        assert plan.hit_tokens == [expected]
        assert plan.num_tokens == [length - expected]
        run(engine)
        assert request.output_token_ids == alone(tokens(length), 3)


def test_17_equal_prompts_in_one_step_share_their_blocks():
    engine = small_pool(12, enable_prefix_caching=True)
    sent = [engine.add_request(tokens(9), params(3)) for _ in range(2)]
    engine.step()
    assert sent[0].block_table[:2] == sent[1].block_table[:2]
    assert sent[0].block_table[2] != sent[1].block_table[2]
    run(engine)


def test_18_19_blocks_grow_when_the_next_token_needs_one():
    """The sampled token has no KV yet: its block is asked for in the next step."""
    counts = {}
    for length in (11, 12, 13):
        engine = small_pool(12)
        request = engine.add_request(tokens(length), params(4))
        counts[length] = []
        while engine.has_work:
            engine.step()
            counts[length].append(len(request.block_table))
    assert counts == {11: [3, 3, 4, 0], 12: [3, 4, 4, 0], 13: [4, 4, 4, 0]}


def test_20_a_finish_on_the_block_boundary_frees_once_and_a_second_free_raises():
    engine = small_pool(3)
    engine.add_request(tokens(4), params(5))
    run(engine)
    pool = BlockPool(4)
    blocks = pool.allocate(2, 0, 0)
    pool.release(blocks, 0)
    queue = pool.free_queue()
    for bad in (blocks, [0], [9], [blocks[0], blocks[0]]):
        with pytest.raises(CacheError):
            pool.release(bad, 0)
    with pytest.raises(CacheError):
        pool.allocate(4, 0, 0)
    assert pool.free_queue() == queue
    pool.check_invariants([])


def test_21_a_block_just_handed_out_is_counted():
    pool = BlockPool(4)
    for _ in range(3):
        (block,) = pool.allocate(1, 0, 0)
        assert pool.ref_counts[block] == 1
        pool.check_invariants([[block]])
        pool.release([block], 0)


def test_22_no_block_of_a_live_table_is_free():
    engine = small_pool(12, enable_prefix_caching=True)
    sent = [engine.add_request([*tokens(8), i], params(6)) for i in (1, 2, 2)]
    for _ in steps_with_events(engine):
        free = set(engine.scheduler.memory.pool.free_queue())
        assert not free & {b for r in sent for b in r.block_table}


@pytest.mark.parametrize("caching", [True, False])
def test_23_when_idle_everything_is_free(caching):
    engine = small_pool(12, enable_prefix_caching=caching)
    for i in range(3):
        engine.add_request([*tokens(8), i], params(6))
    run(engine)
    pool = engine.scheduler.memory.pool
    assert pool.num_free == 12
    assert set(pool.ref_counts) == {0}


def test_24_aborts_come_early_twice_late_and_for_nobody():
    engine = small_pool(12, max_num_batched_tokens=4)
    early = engine.add_request(tokens(9), params(6))
    engine.abort(early.request_id)
    engine.step()
    middle = engine.add_request(tokens(9), params(6))
    engine.step()  # its prompt is half computed
    for _ in range(2):
        engine.abort(middle.request_id)
    engine.abort("nobody")
    engine.step()
    done = engine.add_request(tokens(3), params(1))
    run(engine)
    engine.abort(done.request_id)
    engine.step()
    assert [r.finish_reason for r in (early, middle, done)] == [
        Reason.ABORT, Reason.ABORT, Reason.LENGTH,
    ]  # fmt: skip
    assert engine.scheduler.memory.num_used == 0
