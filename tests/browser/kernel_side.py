"""What the tests ask the kernel: the engine's own state, under the ids that the page knows.

The kernels of the tests' JupyterLab find this module on their path.
"""

from collections import Counter
from typing import Any

from ipywidgets import widget_serialization

from tinyvllm_lab.engine.events import Kind
from tinyvllm_lab.engine.history import History
from tinyvllm_lab.engine.sampling_params import SamplingParams
from tinyvllm_lab.widgets.feed import RunFeed
from tinyvllm_lab.widgets.kernel_xray_still import thread_states as xray_states

MOST_S = 60.0


def widget(model_id: str) -> Any:
    """The widget with this model id."""
    return widget_serialization["from_json"](f"IPY_MODEL_{model_id}", None)


def about(model_id: str) -> dict[str, Any]:
    """The kind of a widget, and the ids of the runs that it shows."""
    found = widget(model_id)
    feeds = [feed.feed_id for feed in getattr(found, "shown_feeds", list)()]
    return {"kind": type(found).__name__, "feeds": feeds}


def _feed(model_id: str, feed_id: str) -> RunFeed:
    return next(feed for feed in widget(model_id).shown_feeds() if feed.feed_id == feed_id)


def states(model_id: str, feed_id: str, steps: list[int]) -> list[dict[str, Any]]:
    """The engine's state after each of these steps, as its log has it."""
    log = _feed(model_id, feed_id).event_log
    history = History(log)
    return [_picture(history.at(step), log.config.num_blocks or 1) for step in steps]


def _picture(state: Any, num_blocks: int) -> dict[str, Any]:
    blocks = Counter(state.block_state(block) for block in range(1, num_blocks))  # 0: null block
    return {
        "slots": {str(slot): request for slot, request in state.slots.items()},
        "waiting": state.waiting,
        "blocks": {name: blocks[name] for name in ("used", "cached", "free")},
    }


def first_finish(model_id: str, feed_id: str) -> int | None:
    """The first step after the oldest one in which a request ends."""
    log = _feed(model_id, feed_id).event_log
    rows = log.as_array()
    ends = [log.first_event + int(i) for i in (rows[:, 0] == int(Kind.FINISH)).nonzero()[0]]
    return next((step for step in map(log.step_of, ends) if step > log.first_step), None)


def keep_busy(model_id: str, feed_id: str) -> None:
    """Give a live engine a request that lasts longer than a test needs to pause it."""
    runner = _feed(model_id, feed_id).runner
    assert runner is not None
    runner.pace = runner.pace or 20.0
    runner.add([5, 6, 7, 8], SamplingParams(max_tokens=400, ignore_eos=True))


def step_and_rest(model_id: str, feed_id: str) -> int:
    """One more step of a paused engine, to its end; the number of this step."""
    runner = _feed(model_id, feed_id).runner
    assert runner is not None
    runner.step()
    assert runner.join(MOST_S)
    return last_step(model_id, feed_id)


def last_step(model_id: str, feed_id: str) -> int:
    """The newest step of the run."""
    return _feed(model_id, feed_id).event_log.num_steps - 1


def stopped_at(model_id: str, feed_id: str) -> int:
    """The last step of an engine that was told to stop, when it is over."""
    runner = _feed(model_id, feed_id).runner
    assert runner is not None
    runner.stop(MOST_S)
    return last_step(model_id, feed_id)


def engine_now(model_id: str, feed_id: str) -> dict[str, Any]:
    """What a resting engine's scheduler and allocator hold, without the log."""
    runner = _feed(model_id, feed_id).runner
    assert runner is not None
    scheduler: Any = runner.engine.scheduler
    return {
        "slots": {str(request.seq_slot): request.index for request in scheduler.running},
        "waiting": sorted(request.index for request in scheduler.waiting),
        "used": scheduler.memory.num_used,
    }


def thread_states(model_id: str, run: int, ticks: list[int]) -> list[dict[str, Any]]:
    """How many threads are in which state, at steps of one launch of a kernel x-ray."""
    shown = widget(model_id)._shown[run]
    words = {"barrier": "waiting", "idle": "idle", "done": "done"}
    counts = [
        Counter(words.get(state, "active") for state in xray_states(shown, tick)) for tick in ticks
    ]
    return [{"ticks": shown.timeline.ticks, "counts": count} for count in counts]
