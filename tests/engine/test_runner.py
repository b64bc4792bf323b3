"""`EngineRunner`: one thread, many callers; nothing is lost, nobody waits for ever."""

import asyncio
import threading
import time

import pytest
from helpers import CheckingExecutor, alone, make_engine

from tinyvllm_lab.engine.config import EngineConfig
from tinyvllm_lab.engine.runner import EngineRunner
from tinyvllm_lab.engine.sampling_params import SamplingParams
from tinyvllm_lab.errors import ConfigError, EngineError, KnobRefused, RequestRefused

LONG = SamplingParams(max_tokens=1500)


@pytest.fixture
def runner():
    made = EngineRunner(make_engine(check_invariants=False))
    yield made
    made.stop()
    assert engine_threads() == 0


def engine_threads():
    return sum(t.name == "engine" for t in threading.enumerate())


def wait_for(condition, seconds=10.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.002)


def test_streams_from_many_threads_get_their_own_tokens(runner):
    runner.start()
    results = {}

    def customer(i):
        stream = runner.add([i, i + 1], SamplingParams(max_tokens=20))
        results[i] = [output.token_id for output in stream]

    threads = [threading.Thread(target=customer, args=(i,)) for i in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert results == {i: alone([i, i + 1], 20) for i in range(12)}


def test_step_pause_start(runner):
    stream = runner.add([1, 2], SamplingParams(max_tokens=30))
    runner.step(3)
    assert runner.join(10)
    assert (runner.engine.num_steps, runner.state) == (3, "paused")
    runner.step()
    runner.join(10)
    assert runner.engine.num_steps == 4
    runner.start()
    assert len(list(stream)) == 30
    assert runner.join(10)
    assert runner.state == "running"


def test_join_returns_as_soon_as_the_asked_for_steps_have_ended(runner):
    seen = []
    runner.listeners.append(seen.append)
    runner.add([1], LONG)
    begun = time.monotonic()
    runner.step(5)
    assert runner.join(60)
    assert len(seen) == 5
    assert time.monotonic() - begun < 30


def test_pause_and_knobs_act_within_a_step(runner):
    runner.pace = 200.0
    runner.add([1], LONG)
    runner.start()
    wait_for(lambda: runner.engine.num_steps > 2)
    runner.pause()
    time.sleep(0.05)
    steps = runner.engine.num_steps
    time.sleep(0.05)
    assert runner.engine.num_steps == steps
    runner.set_knob("max_num_seqs", 3)
    runner.step()
    runner.join(10)
    assert runner.engine.config.max_num_seqs == 3
    with pytest.raises(KnobRefused):
        runner.set_knob("block_size", 4)
    with pytest.raises(ConfigError):
        runner.set_knob("max_num_seqs", 0)


def test_an_aborted_stream_ends(runner):
    runner.start()
    stream = runner.add([1], LONG)
    runner.abort(stream.request.request_id)
    assert list(stream)[-1].finish_reason == "abort"


def test_done_lets_the_event_loop_go_on(runner):
    runner.add([1], SamplingParams(max_tokens=50))
    runner.start()

    async def wait():
        await asyncio.wait_for(runner.done(), 10)

    # On a thread of its own: the browser tests leave a running event loop on this one.
    waiting = threading.Thread(target=asyncio.run, args=(wait(),))
    waiting.start()
    waiting.join(20)
    assert not runner.engine.has_work


def test_stop_ends_everything_and_is_final():
    runner = EngineRunner(make_engine(check_invariants=False))
    stream = runner.add([1], LONG)
    runner.start()
    wait_for(lambda: runner.engine.num_steps > 2)
    runner.stop()
    runner.stop()
    assert list(stream)[-1].finish_reason == "abort"
    assert runner.engine.scheduler.memory.num_used == 0
    assert engine_threads() == 0
    for act in (runner.start, runner.step, lambda: runner.add([1])):
        with pytest.raises(EngineError, match="stopped"):
            act()


def test_stop_before_start_needs_no_thread():
    runner = EngineRunner(make_engine())
    stream = runner.add([1], LONG)
    runner.stop()
    assert list(stream)[-1].finish_reason == "abort"


class Broken(CheckingExecutor):
    fails_at = 3

    def execute(self, plan):
        if plan.step == self.fails_at:
            raise MemoryError("no room for logits")
        return super().execute(plan)


def test_a_failing_executor_ends_its_batch_only_and_the_error_is_kept():
    runner = EngineRunner(make_engine(Broken(EngineConfig())))
    with runner:
        lost = runner.add([1, 2], SamplingParams(max_tokens=30))
        assert list(lost)[-1].finish_reason == "error"
        assert runner.join(10)
        assert runner.state == "running"
        assert isinstance(runner.error, EngineError)
        assert "MemoryError: no room for logits" in runner.traceback
        later = runner.add([1, 2], SamplingParams(max_tokens=4))
        assert [o.token_id for o in later] == alone([1, 2], 4)
        assert runner.engine.scheduler.memory.num_used == 0


def test_a_listener_sees_every_step_and_its_error_is_kept():
    seen = []
    runner = EngineRunner(make_engine(), listeners=[lambda output: seen.append(output.plan.step)])
    with runner:
        list(runner.add([1], SamplingParams(max_tokens=5)))
        runner.join(10)
        assert seen == list(range(5))

        def broken(output):
            raise ValueError("a panel's bug")

        runner.listeners.append(broken)
        runner.add([1], SamplingParams(max_tokens=5))
        wait_for(lambda: runner.state == "failed")
        assert "a panel's bug" in runner.traceback


def test_a_refused_request_is_an_exception_for_its_caller_only(runner):
    runner.start()
    with pytest.raises(RequestRefused):
        runner.add([], SamplingParams(max_tokens=5))
    assert len(list(runner.add([1], SamplingParams(max_tokens=5)))) == 5


class Two:
    """A feed of two requests, the second far in the future."""

    def __init__(self):
        self.times = [0.0, 50.0]
        self.finished = []

    def before_step(self, engine):
        while self.times and self.times[0] <= engine.clock.now():
            engine.add_request([1], SamplingParams(max_tokens=3), arrival_time=self.times.pop(0))

    def after_step(self, engine, output):
        self.finished += [r.request_id for r in output.finished]

    def next_time(self):
        return self.times[0] if self.times else None


def test_a_feed_is_played_to_its_end_and_idle_virtual_time_is_jumped_over():
    feed = Two()
    engine = make_engine()
    with EngineRunner(engine, feed) as runner:
        assert runner.join(10)
    assert len(feed.finished) == 2
    assert engine.clock.now() >= 50.0


def test_those_who_wait_are_served_after_a_failed_step():
    with EngineRunner(make_engine(Broken(EngineConfig()), max_num_seqs=1)) as runner:
        first = runner.add([1, 2], SamplingParams(max_tokens=30))
        second = runner.add([3, 4], SamplingParams(max_tokens=5))
        assert list(first)[-1].finish_reason == "error"
        assert [o.token_id for o in second] == alone([3, 4], 5)


def test_a_knob_that_comes_too_late_is_kept_as_the_error(runner):
    runner.engine.config = EngineConfig(max_num_batched_tokens=16)
    runner.engine.scheduler.configure(runner.engine.config)
    runner.add([1] * 30, SamplingParams(max_tokens=4))
    runner.step()
    runner.join(10)
    runner.set_knob("enable_chunked_prefill", False)
    runner.start()
    wait_for(lambda: runner.error is not None)
    assert isinstance(runner.error, KnobRefused)
    assert runner.join(10)


def test_each_sample_has_its_stream(runner):
    stream = runner.add([1, 2], SamplingParams(max_tokens=6, n=3))
    runner.start()
    for one in (stream, *stream.others):
        assert [o.token_id for o in one] == alone([1, 2], 6)
    assert len(stream.others) == 2
