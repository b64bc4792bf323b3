"""The event log against a plain list of tuples."""

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinyvllm_lab.engine.events import Kind
from tinyvllm_lab.engine.log import EventLog
from tinyvllm_lab.errors import ConfigError, EngineError

INT64 = st.integers(-(2**63), 2**63 - 1)
EVENT = st.tuples(st.sampled_from([*map(int, Kind), 200]), INT64, INT64, INT64)


@given(st.lists(st.lists(EVENT, max_size=30), max_size=12))
def test_flushed_events_are_the_appended_ones(batches):
    log, expected = EventLog(), []
    buffer = log.buffer
    for batch in batches:
        for event in batch:
            buffer += event
        log.flush()
        expected += batch
    assert log.buffer is buffer
    assert not buffer
    assert list(map(tuple, log.as_array().tolist())) == expected
    assert log.num_events == len(expected)
    assert log.num_steps == sum(event[0] == Kind.STEP for event in expected)


@given(st.lists(EVENT, max_size=60))
def test_an_event_belongs_to_the_last_step_before_it(events):
    log = EventLog()
    for event in events:
        log.buffer += event
    log.flush()
    step, seen = -1, {}
    for number, event in enumerate(events):
        step += event[0] == Kind.STEP
        assert log.step_of(number) == max(step, 0)
        seen.setdefault(max(step, 0), []).append(number)
    for number in range(log.num_steps):
        assert list(log.step_range(number)) == seen[number]
        assert [event.number for event in log.events(number)] == seen[number]


def test_a_view_survives_the_growth_of_the_log():
    log = EventLog()
    log.buffer += (Kind.STEP, 1, 2, 3)
    log.flush()
    view = log.as_array()
    for number in range(5000):
        log.buffer += (Kind.TOKEN, number, 0, 0)
    log.flush()
    assert view.tolist() == [[Kind.STEP, 1, 2, 3]]
    with pytest.raises(ValueError, match="read-only"):
        view[0, 0] = 7


@pytest.mark.parametrize("broken", [(1, 2), (1, 2, 3, "x"), (1, 2, 3, 2**63), (1, None, 0, 0)])
def test_a_broken_event_is_refused_and_nothing_is_lost(broken):
    log = EventLog()
    log.buffer += (Kind.STEP, 0, 0, 0)
    log.buffer += broken
    with pytest.raises(EngineError, match="buffer is broken"):
        log.flush()
    assert log.num_events == 0
    assert log.buffer == [Kind.STEP, 0, 0, 0, *broken]


def test_events_read_like_sentences():
    log = EventLog()
    log.buffer += (Kind.STEP, 0, 0, 0)
    log.buffer += (Kind.FINISH, 4, 1, 2)
    log.buffer += (Kind.SCHEDULED, 4, 16, 9)
    log.buffer += (99, 1, 2, 3)
    log.flush()
    texts = [str(event) for event in log.events(0)]
    assert texts[1:] == [
        "FINISH request=4 reason=length seq_slot=2",
        "SCHEDULED request=4 tokens=16 phase=9",
        "kind 99 a=1 b=2 c=3",
    ]
    with pytest.raises(IndexError, match="step 1 is not in the log"):
        log.step_range(1)


def test_knob_values_keep_their_types():
    log = EventLog()
    values = ["fcfs", 1, 1.0, True, 0, False, "fcfs", 1]
    assert [log.intern_knob(value) for value in values] == [0, 1, 2, 3, 4, 5, 0, 1]
    assert [type(value) for value in log.knob_values] == [str, int, float, bool, int, bool]


def test_an_empty_log_is_not_mistaken_for_none():
    assert EventLog()


def test_other_threads_read_while_the_engine_writes():
    log, problems, done = EventLog(capacity=500), [], threading.Event()

    def read():
        while not done.is_set():
            kept = log.kept()
            numbers = kept.rows[:, 1]
            if len(numbers) and (
                numbers[0] != kept.first_event or (numbers[1:] != numbers[:-1] + 1).any()
            ):
                problems.append(numbers)
            if kept.oldest.position != kept.first_event:
                problems.append(kept.oldest.position)

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    number = 0
    for _ in range(1500):
        for kind in (Kind.STEP, Kind.STEP_END, Kind.STEP_END):
            log.buffer += (kind, number, 0, 0)  # the first integer is the event's number
            number += 1
        log.flush()
    done.set()
    for reader in readers:
        reader.join()
    assert problems == []


@pytest.mark.parametrize("capacity", [0, -1])
def test_a_ring_needs_room(capacity):
    with pytest.raises(ConfigError, match="capacity"):
        EventLog(capacity=capacity)
