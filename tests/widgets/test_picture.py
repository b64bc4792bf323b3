"""What goes to the browser: exact, small, numbered, and cut where it is too long."""

import gc
import json
import random
import sys
import threading
import time
import weakref
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tinyvllm_lab.engine import varint
from tinyvllm_lab.engine.config import EngineConfig
from tinyvllm_lab.engine.engine import Engine
from tinyvllm_lab.engine.events import Kind
from tinyvllm_lab.engine.history import History
from tinyvllm_lab.engine.log import EventLog
from tinyvllm_lab.engine.runner import EngineRunner
from tinyvllm_lab.engine.storage import from_bytes
from tinyvllm_lab.simulate import CostModel
from tinyvllm_lab.simulate.arrivals import Poisson
from tinyvllm_lab.simulate.executor import SimulatedExecutor, VirtualClock
from tinyvllm_lab.simulate.feed import WorkloadFeed
from tinyvllm_lab.simulate.presets import airport, chat
from tinyvllm_lab.simulate.run import simulate
from tinyvllm_lab.widgets import RunFeed
from tinyvllm_lab.widgets.picture import PictureStream, encode_run

sys.path.append(str(Path(__file__).parents[1] / "engine"))
from toy_engine import ToyEngine


@settings(max_examples=30)
@given(st.integers(0, 99), st.lists(st.integers(1, 30), min_size=1, max_size=12))
def test_the_messages_hold_every_event_once(seed, flushes):
    toy, stream, received = ToyEngine(seed), None, []
    stream = PictureStream(toy.log)
    for number, steps in enumerate(flushes, 1):
        toy.run(steps)
        content, buffer = stream.take()
        assert content["n"] == number
        rows = varint.decode(buffer).reshape(-1, 4)
        assert len(rows) == content["c"]
        received.append(rows)
        assert stream.take() is None
    assert np.array_equal(np.concatenate(received), toy.log.as_array())


@pytest.mark.parametrize("steps_per_flush", [1, 5])
def test_a_message_is_small(steps_per_flush):
    log = simulate(chat(60), hardware="A10G", model="llama-3.2-1b").log
    copy, size, messages = EventLog(log.config), 0, 0
    copy.requests.update(log.requests)
    stream = PictureStream(copy)
    for step in range(log.num_steps):
        numbers = log.step_range(step)
        copy.buffer += log.rows(numbers.start, numbers.stop).ravel().tolist()
        copy.flush()
        if step % steps_per_flush == 0:
            content, buffer = stream.take()
            size += len(json.dumps(content, separators=(",", ":"))) + len(buffer)
            messages += 1
    assert size <= 64 * messages + 16 * stream.next_event


def test_a_stored_run_is_small():
    log = simulate(chat(100)).log
    data, next_event = encode_run(log)
    assert next_event == log.num_events
    assert len(data) <= 2.5 * log.num_events


def test_names_texts_and_knobs_are_sent_once():
    log = EventLog(EngineConfig())
    stream = PictureStream(log)
    log.add_request(0, "zero", prompt_tokens=3, max_tokens=2, arrival_us=5, kind="chat")
    log.texts[7] = " seven"
    knob = log.intern_knob("max_num_seqs")
    log.buffer += (Kind.STEP, 0, 0, 0, Kind.SUBMIT, 0, 3, 2, Kind.TOKEN, 0, 7, 1)
    log.flush()
    first, _ = stream.take()
    assert first["q"] == {0: {"id": "zero", "kind": "chat", "arrival_us": 5}}
    assert first["t"] == {7: " seven"}
    assert first["v"] == ["max_num_seqs"]
    log.buffer += (Kind.STEP, 0, 0, 0, Kind.TOKEN, 0, 7, 2, Kind.KNOB, knob, 0, 0)
    log.flush()
    assert stream.take()[0] == {"k": "e", "n": 2, "c": 3}


def test_of_a_long_run_the_page_gets_the_newest_steps():
    log = simulate(airport(80), config=EngineConfig(max_model_len=4096)).log
    data, next_event = encode_run(log, max_events=2000)
    part = from_bytes(data)
    assert next_event == log.num_events == part.num_events
    assert 1900 < len(part.as_array()) <= 2000
    whole, cut = History(log), History(part)
    for step in (part.first_step - 1, part.first_step, part.first_step + 50, log.num_steps - 1):
        assert cut.at(step) == whole.at(step)
    assert part.first_event == cut.log.oldest_state().position


def slow_runner(pace=400.0):
    config = EngineConfig(max_num_seqs=8, num_blocks=256, max_model_len=4096)
    executor = SimulatedExecutor(CostModel("A10G", "llama-3.2-1b"))
    engine = Engine(config, executor, clock=VirtualClock())
    return EngineRunner(engine, WorkloadFeed(airport(300, Poisson(30.0))), pace=pace)


def sent_by(feed):
    sent = []
    feed.send = lambda content, buffers=None: sent.append((time.monotonic(), content, buffers))
    return sent


def wait_until(condition, seconds=20):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_live_run_is_sent_at_most_thirty_times_a_second_and_complete():
    runner = slow_runner()
    feed = RunFeed(runner)
    sent = sent_by(feed)
    runner.start()
    wait_until(lambda: runner.engine.num_steps > 300)
    runner.pause()
    wait_until(lambda: feed.events_sent == runner.engine.log.num_events)
    events = [(at, c, b) for at, c, b in sent if c["k"] == "e"]
    assert [c["n"] for _, c, _ in events] == [*range(1, len(events) + 1)]
    rows = np.concatenate([varint.decode(b[0]).reshape(-1, 4) for _, _, b in events])
    assert np.array_equal(rows, runner.engine.log.as_array())
    gaps = np.diff([at for at, _, _ in events])
    assert min(gaps) > 0.9 / 30
    wait_until(lambda: sent[-1][1].get("state") == "paused")
    feed.close()
    wait_until(lambda: runner.state == "stopped")


def test_a_page_that_missed_a_message_gets_the_whole_run():
    runner = slow_runner()
    feed = RunFeed(runner)
    sent = sent_by(feed)
    runner.step(40)
    wait_until(lambda: feed.events_sent > 0 and runner.engine.num_steps == 40)
    wait_until(lambda: feed.events_sent == runner.engine.log.num_events)
    feed._on_message(feed, {"k": "ready"}, [])
    assert {"k": "n", "n": feed.messages_sent} in [c for _, c, _ in sent]
    feed._on_message(feed, {"k": "again"}, [])
    content, buffers = sent[-1][1:]
    assert (content["k"], content["n"], content["run"]) == ("run", feed.messages_sent + 1, 0)
    assert content["live"]
    assert np.array_equal(from_bytes(buffers[0]).as_array(), runner.engine.log.as_array())
    runner.step(1)
    wait_until(lambda: sent[-1][1]["k"] == "e")
    assert sent[-1][1]["n"] == content["n"] + 1
    feed.close()


def test_buttons_act_and_an_error_is_shown():
    runner = slow_runner()
    feed = RunFeed(runner)
    sent = sent_by(feed)

    def press(what, value=None):
        feed._on_message(feed, {"k": "do", "do": what, "v": value}, [])

    press("start")
    wait_until(lambda: runner.state == "running" and runner.engine.num_steps > 3)
    press("pause")
    assert runner.state == "paused"
    press("pace", 20)
    assert runner.pace == 20
    done = runner.engine.num_steps
    press("step")
    wait_until(lambda: runner.engine.num_steps > done)

    def broken(output):
        raise ValueError("the listener is broken")

    runner.listeners.append(broken)
    press("step")
    wait_until(lambda: any(c.get("state") == "failed" for _, c, _ in sent))
    status = sent[-1][1]
    assert status["error"] == "ValueError: the listener is broken"
    assert "in broken" in status["traceback"]
    press("stop")
    wait_until(lambda: runner.state == "stopped")
    press("start")
    assert "was stopped" in sent[-1][1]["error"]
    feed.close()


def test_the_step_in_which_an_engine_is_stopped_arrives():
    runner = slow_runner()
    feed = RunFeed(runner)
    sent = sent_by(feed)
    computes, goes_on, execute = (
        threading.Event(),
        threading.Event(),
        runner.engine.executor.execute,
    )

    def slow(plan):
        computes.set()
        goes_on.wait(20)
        return execute(plan)

    runner.engine.executor.execute = slow
    runner.start()
    assert computes.wait(20)
    feed._on_message(feed, {"k": "do", "do": "stop"}, [])
    wait_until(lambda: any(c.get("state") == "stopped" for _, c, _ in sent))
    goes_on.set()
    wait_until(lambda: not runner._thread.is_alive())
    assert runner.engine.log.num_events > 0
    wait_until(lambda: feed.events_sent == runner.engine.log.num_events)


def test_a_closed_feed_does_not_keep_its_engine():
    runner = slow_runner()
    feed = RunFeed(runner)
    runner.start()
    wait_until(lambda: feed.messages_sent > 3)
    engine = weakref.ref(runner.engine)
    feed.close()
    runner = None
    wait_until(lambda: gc.collect() >= 0 and engine() is None)
    assert feed.event_log.num_steps > 0


def test_a_ring_that_forgets_faster_than_the_page_reads():
    log = EventLog(capacity=300)
    toy = ToyEngine(1)
    toy.log = log
    toy.run(5)
    feed = RunFeed(log)
    sent = sent_by(feed)
    toy.run(200)
    feed.flush()
    (_, content, buffers) = sent[-1]
    assert content["k"] == "run"
    assert np.array_equal(from_bytes(buffers[0]).as_array(), log.as_array())
    toy.run(random.Random(0).randint(1, 3))
    feed.flush()
    assert sent[-1][1]["n"] == content["n"] + 1


def test_a_feed_shows_another_run_and_stops_the_one_before():
    first, second = slow_runner(), slow_runner(pace=100.0)
    feed = RunFeed(first)
    sent = sent_by(feed)
    first.start()
    wait_until(lambda: feed.messages_sent > 3)
    feed.show(second)
    (run,) = [c for _, c, _ in sent if c["k"] == "run"]
    assert (run["run"], run["live"], run["pace"]) == (1, True, 100.0)
    wait_until(lambda: first.state == "stopped")
    assert RunFeed.of(second) is feed
    second.step(3)
    wait_until(lambda: second.engine.num_steps == 3 and sent[-1][1]["k"] != "run")
    recorded = simulate(airport(5)).log
    feed.show(recorded)
    wait_until(lambda: second.state == "stopped")
    run = [c for _, c, _ in sent if c["k"] == "run"][-1]
    assert (run["run"], run["live"]) == (2, False)
    assert feed.event_log is recorded
    feed.tell_error(ValueError("no"))
    assert sent[-1][1]["error"] == "ValueError: no"
    feed.close()
