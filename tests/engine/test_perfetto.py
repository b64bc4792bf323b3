"""Traces follow the Trace Event Format, and tell the run."""

import gzip
import json

import pytest
from real_run import real_run
from test_metrics import by_hand

from tinyvllm_lab.engine.events import Kind
from tinyvllm_lab.engine.log import EventLog
from tinyvllm_lab.engine.metrics import compute_metrics
from tinyvllm_lab.engine.perfetto import ENGINE, SEATS, save_trace, trace


def slices(events, pid, name=None):
    found = [e for e in events if e["ph"] == "X" and e["pid"] == pid]
    return [e for e in found if name is None or e["name"] == name]


def test_a_trace_by_hand():
    events = trace(by_hand())["traceEvents"]
    (first, again) = sorted(slices(events, SEATS, "zero"), key=lambda e: e["ts"])
    assert (first["tid"], first["ts"], first["dur"]) == (0, 1000, 3000)
    assert first["args"] == {
        "hit_tokens": 0, "resumed": False, "left": "preempted", "swapped": False,
    }  # fmt: skip
    assert (again["ts"], again["dur"]) == (6000, 3000)
    assert again["args"] == {"hit_tokens": 4, "resumed": True, "left": "length"}
    (one,) = slices(events, SEATS, "one")
    assert (one["tid"], one["ts"], one["dur"]) == (1, 2000, 3000)
    (recompute,) = slices(events, SEATS, "recompute")
    assert recompute["args"] == {"tokens": 3, "steps": 1}
    instants = [(e["name"], e["ts"]) for e in events if e["ph"] == "i"]
    assert instants == [("refuse request-3", 2000), ("preempt zero", 4000)]
    waiting = [e for e in events if e["ph"] == "C" and e["name"] == "waiting requests"]
    assert [(e["ts"], e["args"]["waiting"]) for e in waiting] == [
        (1000, 0), (2000, 0), (4000, 1), (6000, 1),
    ]  # fmt: skip
    threads = [e["args"]["name"] for e in events if e["name"] == "thread_name"]
    assert threads == ["seat 0", "seat 1", "steps"]


@pytest.mark.parametrize("seed", range(3))
def test_slices_of_a_thread_nest(seed):
    events = trace(real_run(seed, preemption="swap").log)["traceEvents"]
    for seat in {e["tid"] for e in slices(events, SEATS)}:
        open_ends = []
        mine = [e for e in slices(events, SEATS) if e["tid"] == seat]
        for event in sorted(mine, key=lambda e: (e["ts"], -e["dur"])):
            while open_ends and open_ends[-1] <= event["ts"]:
                open_ends.pop()
            end = event["ts"] + event["dur"]
            assert event["dur"] >= 0
            assert not open_ends or end <= open_ends[-1]
            assert len(open_ends) < 2
            open_ends.append(end)


def test_the_trace_counts_what_the_log_counts():
    log = real_run(1).log
    events = trace(log)["traceEvents"]
    rows = log.as_array()
    run = compute_metrics(log)
    phases = [e for p in ("prefill", "decode", "recompute") for e in slices(events, SEATS, p)]
    assert sum(e["args"]["tokens"] for e in phases) == rows[rows[:, 0] == Kind.SCHEDULED, 2].sum()
    steps = slices(events, ENGINE, "step")
    assert [e["dur"] for e in steps] == run.steps.duration_us.tolist()
    assert sum(e["args"]["tokens"] for e in steps) == sum(run.computed_tokens.values())


def test_a_trace_of_a_ring_begins_with_those_who_sit_already():
    log = real_run(1, capacity=400).log
    assert log.first_step > 0
    events = trace(log)["traceEvents"]
    begin = min(e["ts"] for e in slices(events, ENGINE))
    assert {e["tid"] for e in slices(events, SEATS) if e["ts"] == begin} >= set(
        log.oldest_state().slots
    )


def test_traces_are_saved(tmp_path):
    log = by_hand()
    plain = json.loads(save_trace(log, tmp_path / "run.json").read_bytes())
    packed = json.loads(gzip.decompress(save_trace(log, tmp_path / "run.json.gz").read_bytes()))
    assert plain == packed == json.loads(json.dumps(trace(log)))


def test_a_trace_of_an_empty_log():
    assert all(e["ph"] == "M" for e in trace(EventLog())["traceEvents"])
