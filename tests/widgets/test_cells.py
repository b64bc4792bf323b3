"""Running a notebook cell again closes its old panels and stops the engines that it had made."""

import time

import pytest

from tinyvllm_lab.engine.log import EventLog
from tinyvllm_lab.widgets import Airport, BlockMap, LatencyThroughput, RunFeed, cells


class FakeRunner:
    """As much of a runner as a feed needs."""

    def __init__(self):
        self.engine = type("Engine", (), {"log": EventLog(), "tokenizer": None, "requests": {}})()
        self.listeners, self.state, self.error, self.traceback, self.pace = (
            [],
            "paused",
            None,
            "",
            None,
        )
        self.stopped = False

    def stop(self):
        self.state, self.stopped = "stopped", True


@pytest.fixture
def cell(monkeypatch):
    """`with`-less: `cell("a")` begins an execution of cell a, and ends the one before."""
    count = iter(range(100))
    monkeypatch.setattr(cells, "_cells", {})

    def begin(name):
        cells.after_cell()
        here = (name, str(next(count)))
        monkeypatch.setattr(cells, "_running_cell", lambda: here)

    yield begin
    cells.after_cell()


def is_open(panel):
    return panel.comm is not None


def wait_stopped(runner):
    deadline = time.monotonic() + 5
    while not runner.stopped and time.monotonic() < deadline:
        time.sleep(0.01)
    return runner.stopped


def test_a_new_run_stops_the_old_one(cell):
    cell("a")
    old = FakeRunner()
    first = Airport(old)
    cell("a")
    new = FakeRunner()
    second = Airport(new)
    cells.after_cell()
    assert not is_open(first)
    assert is_open(second)
    assert first.feed.is_closed
    assert wait_stopped(old)
    assert not new.stopped
    second.feed.close()


def test_the_same_run_goes_on(cell):
    cell("a")
    runner = FakeRunner()
    first = Airport(runner)
    cell("a")
    second = Airport(runner)
    cells.after_cell()
    assert not is_open(first)
    assert second.feed is first.feed
    assert not second.feed.is_closed
    assert not runner.stopped
    second.feed.close()


def test_a_cell_that_only_looks_stops_nothing(cell):
    cell("a")
    runner = FakeRunner()
    first = Airport(runner)
    cell("b")
    look = BlockMap(runner)
    cell("b")
    again = BlockMap(runner)
    cells.after_cell()
    assert not is_open(look)
    assert is_open(first)
    assert is_open(again)
    assert not runner.stopped
    first.feed.close()


def test_outside_a_notebook_nothing_is_noted(monkeypatch):
    monkeypatch.setattr(cells, "_cells", {})
    panel = Airport(EventLog())
    assert cells._cells == {}
    assert RunFeed.of(panel.feed) is panel.feed


def test_an_explorer_computes_no_more_when_its_cell_runs_again(cell):
    cell("a")
    old = LatencyThroughput(max_num_seqs=256, answer=512)
    cell("a")
    new = LatencyThroughput(max_num_seqs=8, prompt=64, answer=8)
    assert old.wait(10)
    assert not is_open(old)
    assert not old.curve.done
    assert new.wait()
    assert new.curve.done
    new.close()
