"""The engine's front desk: what is refused at the door, knobs, deadlines."""

import pytest
from helpers import FakeClock, make_engine, run

from tinyvllm_lab.engine.config import field_specs
from tinyvllm_lab.engine.events import Kind, Reason
from tinyvllm_lab.engine.sampling_params import SamplingParams
from tinyvllm_lab.errors import (
    ConfigError,
    KnobRefused,
    RequestRefused,
)


def params(max_tokens, **more):
    return SamplingParams(max_tokens=max_tokens, **more)


def kinds(engine):
    return [Kind(k) for k in engine.log.as_array()[:, 0].tolist()]


# -------------------------------------------------------------------------- door


@pytest.mark.parametrize(
    ("prompt", "more", "match"),
    [
        ([], {}, "empty prompt"),
        ([-1], {}, "-1"),
        ([1, 100], {}, "100"),
        ([1.5], {}, "not a list of token ids"),
        (None, {}, "not a list of token ids"),
        ("text", {}, "no tokenizer"),
        ([1] * 64, {}, "max_model_len"),
        ([1], {"stop_token_ids": (100,)}, "stop_token_ids"),
        ([1], {"logit_bias": {100: 1.0}}, "logit_bias"),
    ],
)
def test_what_can_never_run_is_refused_by_name_and_logged(prompt, more, match):
    engine = make_engine(max_model_len=64, engine={"vocab_size": 100})
    good = engine.add_request([1, 2, 3], params(4))
    with pytest.raises(RequestRefused, match=match) as caught:
        engine.add_request(prompt, params(4, **more), request_id="mine")
    assert "'mine'" in caught.value.what
    run(engine)
    assert good.num_output_tokens == 4
    assert engine.scheduler.memory.num_used == 0


def test_a_refusal_stands_in_the_log():
    engine = make_engine(max_model_len=64)
    with pytest.raises(RequestRefused):
        engine.add_request([1] * 64, params(4), request_id="long")
    run(engine)
    (row,) = [row for row in engine.log.as_array().tolist() if row[0] == Kind.REJECT]
    assert engine.log.requests[row[1]]["id"] == "long"


def test_a_name_is_free_again_when_its_request_has_ended():
    engine = make_engine()
    engine.add_request([1], params(2), request_id="a")
    with pytest.raises(RequestRefused, match="'a'"):
        engine.add_request([1], params(2), request_id="a")
    run(engine)
    engine.add_request([1], params(2), request_id="a")
    run(engine)


def test_without_chunks_a_sequence_must_fit_into_a_step():
    engine = make_engine(enable_chunked_prefill=False, max_num_batched_tokens=20)
    engine.add_request([1] * 10, params(11))
    with pytest.raises(RequestRefused, match="step may compute 20"):
        engine.add_request([1] * 10, params(12))
    run(engine)


@pytest.mark.parametrize(
    "more",
    [{"cache_salt": 5}, {"timeout_s": float("nan")}, {"timeout_s": "x"}, {"priority": "high"}],
)
def test_details_of_the_wrong_kind_are_refused_and_the_others_go_on(more):
    engine = make_engine()
    good = engine.add_request([1] * 20, params(4), timeout_s=1e9)
    with pytest.raises(RequestRefused):
        engine.add_request([1] * 20, params(4), **more)
    run(engine)
    assert good.num_output_tokens == 4


def test_a_refused_twin_takes_no_deadline_to_the_living():
    clock = FakeClock()
    engine = make_engine(clock=clock)
    living = engine.add_request([1], params(4), request_id="A")
    with pytest.raises(RequestRefused):
        engine.add_request([1], params(4), request_id="A", timeout_s=0.05)
    clock.time = 1.0
    run(engine)
    assert living.finish_reason is Reason.LENGTH


def test_names_that_the_engine_finds_are_free():
    engine = make_engine()
    engine.add_request([1], params(4), request_id="request-0")
    assert engine.add_request([1], params(4)).request_id == "request-1"


def test_deadlines_of_ended_requests_do_not_pile_up():
    engine = make_engine(check_invariants=False)
    for _ in range(500):
        engine.add_request([1], params(1), timeout_s=1e6)
        run(engine)
    assert len(engine._deadlines) < 100


# ------------------------------------------------------------------------- knobs


def test_a_knob_acts_at_the_top_of_the_next_step_and_is_logged():
    engine = make_engine(max_num_seqs=1)
    for _ in range(3):
        engine.add_request([1, 2], params(9))
    engine.step()
    engine.set_knob("max_num_seqs", 3)
    assert engine.config.max_num_seqs == 1
    engine.step()
    assert len(engine.scheduler.running) == 3
    (row,) = [row for row in engine.log.as_array().tolist() if row[0] == Kind.KNOB]
    assert [engine.log.knob_values[i] for i in row[1:]] == ["max_num_seqs", 1, 3]


def test_fewer_seats_drain():
    engine = make_engine(max_num_seqs=4)
    for i in range(8):
        engine.add_request([1, 2], params(3 + i))
    engine.step()
    engine.set_knob("max_num_seqs", 2)
    counts = []
    while engine.has_work:
        engine.step()
        counts.append(len(engine.scheduler.running))
    assert counts[0] == 4
    assert max(counts[counts.index(2) :]) == 2


def test_a_new_policy_sorts_those_who_wait():
    engine = make_engine(max_num_seqs=1)
    first = engine.add_request([1], params(9))
    engine.step()
    slow = engine.add_request([1], params(8), priority=5)
    urgent = engine.add_request([1], params(8), priority=1)
    engine.step()
    engine.set_knob("policy", "priority")
    run(engine)
    rows = engine.log.as_array().tolist()
    ends = [row[1] for row in rows if row[0] == Kind.FINISH]
    assert ends == [first.index, urgent.index, slow.index]


@pytest.mark.parametrize("spec", [s for s in field_specs() if not s.live], ids=lambda s: s.name)
def test_what_cannot_change_is_refused_with_the_reason(spec):
    engine = make_engine()
    with pytest.raises(KnobRefused, match=spec.name):
        engine.set_knob(spec.name, spec.default)
    with pytest.raises(KnobRefused):
        engine.set_knob("no_such_knob", 1)
    with pytest.raises(ConfigError):
        engine.set_knob("max_num_seqs", 0)


def test_a_knob_that_would_shut_requests_out_is_refused_and_the_rest_go_on():
    engine = make_engine(max_num_batched_tokens=16)
    request = engine.add_request([1] * 30, params(4))
    engine.step()
    engine.set_knob("enable_chunked_prefill", False)
    (refusal,) = engine.step().refused
    assert request.request_id in refusal.what
    run(engine)
    assert request.num_output_tokens == 4


# --------------------------------------------------------------------- deadlines


def test_a_request_times_out_wherever_it_is():
    clock = FakeClock()
    engine = make_engine(clock=clock, max_num_seqs=1)
    running = engine.add_request([1], params(90), timeout_s=5.0)
    waiting = engine.add_request([1], params(90), timeout_s=5.0)
    patient = engine.add_request([1], params(3), timeout_s=500.0)
    engine.step()
    clock.time = 5.0
    ended = engine.step().finished
    assert ended == [running, waiting]
    assert {r.finish_reason for r in ended} == {Reason.TIMEOUT}
    run(engine)
    assert patient.finish_reason is Reason.LENGTH
    assert engine.scheduler.memory.num_used == 0
