"""The rebuilt state against a toy engine that knows the truth, and against itself backwards."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from toy_engine import ToyEngine

from tinyvllm_lab.engine.events import Kind, Reason
from tinyvllm_lab.engine.history import History
from tinyvllm_lab.engine.log import EventLog
from tinyvllm_lab.engine.state import EngineState, state_at

SMALL = st.integers(-1, 6)
ANY_EVENT = st.tuples(st.sampled_from([*map(int, Kind), 99]), SMALL, SMALL, SMALL)


def as_truth(state: EngineState) -> dict:
    records = [state.requests[index] for index in sorted(state.requests)]
    return {
        "waiting": state.waiting,
        "slots": state.slots,
        "tables": [r.table for r in records],
        "host": [r.host_blocks for r in records],
        "regions": [r.region for r in records],
        "computed": [r.num_computed for r in records],
        "outputs": [r.num_output for r in records],
        "statuses": [r.status.value for r in records],
        "preemptions": [r.num_preemptions for r in records],
        "refs": state.ref_counts,
        "hashed": sorted(state.cached),
    }


@pytest.mark.parametrize("regions", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_the_state_is_the_truth_at_every_step_forwards_and_backwards(seed, regions):
    toy = ToyEngine(seed, regions=regions).run(150)
    history = History(toy.log, every=100)
    for step in range(150):
        assert as_truth(history.at(step)) == toy.truth[step]
        assert history.state.check() == []
    for step in reversed(range(150)):
        assert as_truth(history.at(step)) == toy.truth[step]
    assert history.at(-1) == EngineState()


def test_jumps_land_where_a_replay_lands():
    toy = ToyEngine(11).run(200)
    history, rng = History(toy.log, every=64), random.Random(0)
    for _ in range(40):
        step = rng.randrange(-1, 200)
        assert history.at(step) == state_at(toy.log, step)
    with pytest.raises(IndexError, match="step 200 is not in the log"):
        history.at(200)


def test_a_growing_log_can_be_walked():
    toy = ToyEngine(5)
    history = History(toy.log, every=32)
    for step in range(60):
        toy.step()
        assert as_truth(history.at(step)) == toy.truth[step]
        assert as_truth(history.at(step // 2)) == toy.truth[step // 2]


@given(st.lists(ANY_EVENT, max_size=40))
def test_any_event_can_be_taken_back_even_nonsense(events):
    state = EngineState(journal=True)
    before = []
    for event in events:
        before.append(state.copy())
        state.apply(*event)
    for expected in reversed(before):
        state.undo()
        assert state == expected
    with pytest.raises(IndexError):
        state.undo()


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 400), st.booleans())
def test_a_ring_holds_the_newest_steps_and_their_states(seed, capacity, regions):
    toy = ToyEngine(seed, regions=regions).run(60)
    ring = EventLog(capacity=capacity)
    for step in range(toy.log.num_steps):
        numbers = toy.log.step_range(step)
        ring.buffer += toy.log.rows(numbers.start, numbers.stop).ravel().tolist()
        ring.flush()
        assert len(ring.as_array()) <= capacity or ring.first_step == ring.num_steps - 1
    assert ring.num_events == toy.log.num_events
    assert ring.num_steps == toy.log.num_steps
    assert ring.as_array().tolist() == toy.log.as_array()[ring.first_event :].tolist()
    for step in range(ring.first_step, ring.num_steps):
        assert ring.step_range(step) == toy.log.step_range(step)
        assert ring.step_of(ring.step_range(step)[-1]) == step
        assert_same_but_for_forgotten(state_at(ring, step), state_at(toy.log, step))
    with pytest.raises(IndexError, match="not in the log"):
        ring.step_range(ring.first_step - 1)


def assert_same_but_for_forgotten(ring: EngineState, full: EngineState) -> None:
    for request in full.requests.keys() - ring.requests.keys():
        full.forget_finished(request)
    assert ring == full


def test_a_history_follows_a_ring():
    toy = ToyEngine(3)
    toy.log.capacity = 300
    history = History(toy.log, every=64)
    for _ in range(120):
        toy.step()
        if toy.rng.random() < 0.3:
            step = toy.rng.randrange(toy.log.first_step, toy.log.num_steps)
            assert_same_but_for_forgotten(state_at(toy.log, step), history.at(step).copy())
    assert toy.log.first_step > 0


def test_a_ring_forgets_requests_that_ended():
    log = EventLog(capacity=4)
    for index in range(50):
        log.add_request(index, f"request-{index}", prompt_tokens=4, max_tokens=1)
        log.buffer += (Kind.STEP, 0, 0, index)
        log.buffer += (Kind.SUBMIT, index, 4, 1)
        log.buffer += (Kind.FINISH, index, Reason.ABORT, -1)
        log.flush()
    assert list(log.requests) == [49]
    assert log.oldest_state().requests == {}
    assert log.oldest_state().finished[Reason.ABORT] == 49


def test_the_queue_is_in_the_order_of_first_come_first_served():
    state = EngineState()
    for request in (0, 1, 2):
        state.apply(Kind.SUBMIT, request, 4, 4)
    for request in (0, 1):
        state.apply(Kind.ADMIT, request, request, 0)
    for request in (1, 0):
        state.apply(Kind.PREEMPT, request, request, 0)
    assert state.waiting == [0, 1, 2]


def test_check_says_what_is_wrong():
    state = EngineState()
    for request in (0, 1):
        state.apply(Kind.SUBMIT, request, 4, 4)
        state.apply(Kind.ADMIT, request, 0, 0)  # both in seat 0
        state.apply(Kind.REGION_ALLOC, request, 10 * request, 16)
    state.apply(Kind.BLOCK_ALLOC, 7, 0, 0)
    state.apply(Kind.BLOCK_FREE, 7, 1, 0)  # freed in the name of another request
    state.apply(Kind.FINISH, 1, Reason.STOP, 0)
    problems = "\n".join(state.check())
    assert "block 7 has 0 references, but 1 entries" in problems
    assert "request 0 is running, seat 0" in problems
    assert "request 1 has ended and still holds KV memory" in problems
    assert "the regions of requests 0 and 1 overlap" in problems


def test_block_states():
    state = EngineState()
    state.apply(Kind.SUBMIT, 0, 4, 4)
    assert state.block_state(3) == "free"
    state.apply(Kind.BLOCK_ALLOC, 3, 0, 0)
    state.apply(Kind.BLOCK_CACHE, 3, 0, 0)
    assert state.block_state(3) == "used"
    state.apply(Kind.BLOCK_FREE, 3, 0, 1)
    assert state.block_state(3) == "cached"
    state.apply(Kind.BLOCK_EVICT, 3, 0, 0)
    assert state.block_state(3) == "free"
