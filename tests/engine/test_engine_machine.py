"""Hypothesis drives the engine: random arrivals, aborts, knobs, tiny pools, every policy."""

from __future__ import annotations

from random import Random

import pytest
from helpers import CheckingExecutor, FakeClock, alone, make_engine
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tinyvllm_lab.engine.config import (
    ALLOCATORS,
    BATCHINGS,
    ORDERS,
    POLICIES,
    PREEMPTIONS,
    VICTIMS,
    EngineConfig,
)  # fmt: skip
from tinyvllm_lab.engine.events import Kind, Reason
from tinyvllm_lab.engine.sampling_params import SamplingParams
from tinyvllm_lab.errors import ConfigError, RequestRefused

MAX_LEN = 40


@st.composite
def configs(draw):
    allocator = draw(st.sampled_from([*ALLOCATORS, "paged", "paged", "paged"]))
    paged = allocator == "paged"
    block_size = draw(st.sampled_from([1, 2, 3, 4, 8]))
    # Enough for one longest request: MAX_LEN - 1 KV tokens.
    least = -(-MAX_LEN // block_size) + 1
    return EngineConfig(
        max_num_seqs=draw(st.integers(1, 6)),
        max_num_batched_tokens=draw(st.integers(1, 64)),
        block_size=block_size,
        num_blocks=draw(st.integers(least, least + 12)),
        max_model_len=MAX_LEN,
        batching=draw(st.sampled_from(BATCHINGS)),
        policy=draw(st.sampled_from(POLICIES)),
        long_prefill_token_threshold=draw(st.sampled_from([0, 0, 1, 5])),
        enable_prefix_caching=paged and draw(st.booleans()),
        preemption=draw(st.sampled_from(PREEMPTIONS)) if paged else "recompute",
        num_host_blocks=draw(st.integers(0, 12)),
        victim=draw(st.sampled_from(VICTIMS)),
        order=draw(st.sampled_from(ORDERS)),
        watermark=draw(st.sampled_from([0.0, 0.1])),
        reserve_full_isl=draw(st.booleans()),
        skip_blocked_head=draw(st.booleans()),
        allocator=allocator,
        compaction=draw(st.booleans()),
        check_invariants=True,
    )


# Few different tokens and lengths, so that prefixes are shared and blocks collide in content.
prompts = st.one_of(
    st.lists(st.integers(0, 2), min_size=1, max_size=MAX_LEN + 2),
    st.integers(1, MAX_LEN + 2).map(lambda n: [0] * n),
)
arrivals = st.tuples(
    st.just("add"), prompts, st.integers(1, 30), st.integers(0, 3), st.sampled_from([1, 1, 1, 2, 3])
)
aborts = st.tuples(st.just("abort"), st.integers(0, 30))
knobs = st.one_of(
    st.tuples(st.just("knob"), st.just("max_num_seqs"), st.integers(1, 6)),
    st.tuples(st.just("knob"), st.just("max_num_batched_tokens"), st.integers(1, 64)),
    st.tuples(st.just("knob"), st.just("policy"), st.sampled_from(POLICIES)),
    st.tuples(st.just("knob"), st.just("order"), st.sampled_from(ORDERS)),
    st.tuples(st.just("knob"), st.just("victim"), st.sampled_from(VICTIMS)),
    st.tuples(st.just("knob"), st.just("enable_chunked_prefill"), st.booleans()),
    st.tuples(st.just("knob"), st.just("long_prefill_token_threshold"), st.integers(0, 9)),
    st.tuples(st.just("knob"), st.just("reserve_full_isl"), st.booleans()),
)
forks = st.tuples(st.just("fork"), st.integers(0, 30), st.integers(1, 20))
moves = st.one_of(arrivals, arrivals, arrivals, aborts, forks, knobs, st.just(("step",)))


def perform(engine, move, sent):
    if move[0] == "add":
        _, prompt, max_tokens, priority, n = move
        params = SamplingParams(max_tokens=max_tokens, n=n)
        try:
            request = engine.add_request(prompt, params, priority=priority)
        except RequestRefused:
            return
        sent += [request, *request.children]
    elif move[0] == "abort" and sent:
        engine.abort(sent[move[1] % len(sent)].request_id)
    elif move[0] == "fork" and sent:
        parent = sent[move[1] % len(sent)]
        try:
            sent.append(engine.fork(parent.request_id, SamplingParams(max_tokens=move[2])))
        except RequestRefused:
            return
    elif move[0] == "knob":
        engine.set_knob(move[1], move[2])


def step(engine):
    before = len(engine.scheduler.running)
    admitted = engine.step().plan
    limit = max(engine.config.max_num_seqs, before)
    assert len(engine.scheduler.running) <= limit
    assert len(admitted.preempted) <= before
    assert admitted.total_tokens <= engine.config.max_num_batched_tokens


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(config=configs(), plan=st.lists(st.tuples(moves, st.integers(0, 3)), max_size=40))
def test_everybody_ends_with_the_right_tokens_and_nothing_is_lost(config, plan):
    play(config, plan)


def play(config, plan):
    """Play moves, then run dry. `CheckingExecutor` asserts that rows read their own prefix."""
    engine = make_engine(CheckingExecutor(config), **{f: getattr(config, f) for f in FIELDS})
    sent = []
    for move, steps in plan:
        perform(engine, move, sent)
        for _ in range(steps):
            step(engine)
    for _ in range(20_000):
        if not engine.has_work:
            break
        step(engine)
    assert not engine.has_work, engine.scheduler.describe()
    for request in sent:
        assert request.is_finished
        expected = alone(request.prompt_token_ids, request.sampling_params.max_tokens)
        output = request.output_token_ids
        assert output == expected[: len(output)]
        if request.finish_reason is Reason.LENGTH:
            room = MAX_LEN - request.num_prompt_tokens
            assert len(output) == min(request.sampling_params.max_tokens, room)
        else:
            assert request.finish_reason is Reason.ABORT
    memory = engine.scheduler.memory
    assert memory.num_used == 0
    memory.check_invariants([])
    assert engine.requests == {}
    assert engine._families == {}
    check_log(engine, sent)
    return engine


def random_move(rng):
    if (k := rng.random()) < 0.6:
        n = rng.randint(1, 38)
        prompt = [0] * n if rng.random() < 0.5 else rng.choices(range(3), k=n)
        return "add", prompt, rng.randint(1, 30), rng.randint(0, 3), rng.choice([1, 1, 1, 2, 3])
    if k < 0.66:
        return "abort", rng.randint(0, 30)
    if k < 0.76:
        return "fork", rng.randint(0, 30), rng.randint(1, 20)
    name, values = rng.choice(
        [
            ("max_num_seqs", range(1, 7)),
            ("max_num_batched_tokens", range(1, 65)),
            ("policy", POLICIES),
            ("order", ORDERS),
            ("victim", VICTIMS),
            ("enable_chunked_prefill", [False, True]),
            ("reserve_full_isl", [False, True]),
        ]
    )
    return "knob", name, rng.choice(values)


def random_config(rng):
    allocator = rng.choice([*ALLOCATORS, "paged", "paged", "paged"])
    paged = allocator == "paged"
    block_size = rng.choice([1, 2, 3, 4, 8])
    return EngineConfig(
        max_num_seqs=rng.randint(1, 6),
        max_num_batched_tokens=rng.randint(1, 64),
        block_size=block_size,
        num_blocks=-(-MAX_LEN // block_size) + 1 + rng.randint(0, 12),
        max_model_len=MAX_LEN,
        batching=rng.choice(["static", "continuous", "continuous", "continuous"]),
        policy=rng.choice(POLICIES),
        long_prefill_token_threshold=rng.choice([0, 0, 1, 5]),
        enable_prefix_caching=paged and rng.random() < 0.6,
        preemption=rng.choice(PREEMPTIONS) if paged else "recompute",
        num_host_blocks=rng.randint(0, 12),
        victim=rng.choice(VICTIMS),
        order=rng.choice(ORDERS),
        reserve_full_isl=rng.random() < 0.5,
        skip_blocked_head=rng.random() < 0.5,
        allocator=allocator,
        compaction=rng.random() < 0.5,
        check_invariants=True,
    )


def test_ten_thousand_random_steps_with_every_kind_of_event():
    steps, seen = 0, set()
    for seed in range(120):
        rng = Random(seed)
        plan = [(random_move(rng), rng.randint(0, 3)) for _ in range(40)]
        engine = play(random_config(rng), plan)
        steps += engine.num_steps
        seen |= set(engine.log.as_array()[:, 0].tolist())
    assert steps >= 10_000
    assert seen == {int(kind) for kind in Kind}


FIELDS = [
    f for f in EngineConfig.__dataclass_fields__ if f not in ("check_invariants",)
]  # fmt: skip


def check_log(engine, sent):
    """The log agrees with what was computed: tokens, and every submitted request finishes once."""
    rows = engine.log.as_array().tolist()
    count = {kind: sum(1 for row in rows if row[0] == kind) for kind in Kind}
    assert count[Kind.STEP] == count[Kind.STEP_END] == engine.num_steps
    submitted = [r for r in sent if r.index >= 0]
    assert count[Kind.SUBMIT] == count[Kind.FINISH] == len(submitted)
    assert count[Kind.TOKEN] == sum(r.num_output_tokens for r in submitted)
    computed = sum(row[2] for row in rows if row[0] == Kind.SCHEDULED)
    assert computed == engine.executor.num_tokens


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    plan=st.lists(st.tuples(prompts, st.integers(1, 30)), min_size=1, max_size=20), data=st.data()
)
def test_without_a_cache_nothing_is_kept_and_the_tokens_are_the_same(plan, data):
    engine = make_engine(
        use_kv_cache=False,
        enable_prefix_caching=False,
        max_model_len=MAX_LEN,
        max_num_seqs=data.draw(st.integers(1, 4)),
        max_num_batched_tokens=data.draw(st.integers(MAX_LEN, 90)),
    )
    sent = []
    for prompt, max_tokens in plan:
        perform(engine, ("add", prompt, max_tokens, 0, 1), sent)
    for _ in range(5_000):
        if not engine.has_work:
            break
        step(engine)
    for request in sent:
        tokens = alone(request.prompt_token_ids, request.sampling_params.max_tokens)
        assert request.output_token_ids == tokens[: MAX_LEN - request.num_prompt_tokens]


@settings(max_examples=40, deadline=None)
@given(lengths=st.lists(st.integers(1, 30), min_size=2, max_size=12), data=st.data())
def test_nobody_starves_under_fcfs(lengths, data):
    """First tokens come in the order of arrival, whatever the lengths are."""
    engine = make_engine(
        max_num_seqs=data.draw(st.integers(1, 4)),
        max_num_batched_tokens=data.draw(st.integers(1, 40)),
        num_blocks=12, block_size=4, max_model_len=MAX_LEN,
    )  # fmt: skip
    sent = []
    for i, n in enumerate(lengths):
        perform(engine, ("add", [i] * n, 12, 0, 1), sent)
    first = {}
    while engine.has_work:
        for request, _, _ in engine.step().tokens:
            first.setdefault(request.index, engine.num_steps)
    steps = [first[r.index] for r in sent]
    assert steps == sorted(steps)


def test_bad_config_is_refused():
    for bad in [{"block_size": 0}, {"policy": "lifo"}, {"num_blocks": 1}, {"block_size": 1.5}]:
        with pytest.raises(ConfigError):
            EngineConfig(**bad)
    with pytest.raises(ConfigError, match="prefix"):
        EngineConfig(allocator="contiguous-max")
    assert FakeClock().now() == 0
