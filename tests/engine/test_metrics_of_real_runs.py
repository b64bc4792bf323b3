"""Metrics of real runs against a slow recomputation, event by event, and against the requests."""

from collections import defaultdict

import numpy as np
import pytest
from real_run import real_run
from test_state_of_real_runs import MODES

from tinyvllm_lab.engine.events import Kind, Reason
from tinyvllm_lab.engine.history import History
from tinyvllm_lab.engine.metrics import compute_metrics


def slowly(log) -> dict:
    """Times and counts of each request, by reading one event after the other."""
    found = defaultdict(lambda: defaultdict(list))
    for step in range(log.num_steps):
        events = list(log.events(step))
        start = next(e.c for e in events if e.kind == Kind.STEP)
        end = next(e.a for e in events if e.kind == Kind.STEP_END)
        for event in events:
            if event.kind == Kind.TOKEN:
                found[event.a]["tokens"].append(end)
            elif event.kind in (Kind.ADMIT, Kind.RESUME):
                found[event.a]["seats"].append(start)
                came_back(found[event.a], start)
                found[event.a]["hits" if event.kind == Kind.ADMIT else "rehits"].append(event.c)
            elif event.kind == Kind.FORK and event.c >= 0:
                found[event.b]["seats"].append(end)
            elif event.kind == Kind.PREEMPT:
                found[event.a]["lost"].append(start)
            elif event.kind == Kind.SCHEDULED and event.c == 2:
                found[event.a]["again"].append(event.b)
            elif event.kind == Kind.FINISH:
                at_top = event.b in (Reason.ABORT, Reason.TIMEOUT)
                found[event.a]["end"] = [start if at_top else end, event.b]
                came_back(found[event.a], start)
    return found


def came_back(seen, now: int) -> None:
    if len(seen["lost"]) > len(seen["waits"]):
        seen["waits"].append(now - seen["lost"][-1])


@pytest.mark.parametrize("mode", MODES)
def test_requests_and_gaps(mode):
    log = real_run(7, **MODES[mode]).log
    run = compute_metrics(log)
    truth = slowly(log)
    gaps = []
    for request in run.requests:
        seen = truth[request.number]
        arrival = log.requests[request.number]["arrival_us"]
        tokens = seen["tokens"]
        gaps += np.diff(tokens).tolist()
        assert request.arrival == arrival / 1e6
        assert request.admitted == (seen["seats"][0] / 1e6 if seen["seats"] else None)
        assert request.output_tokens == len(tokens)
        assert request.ttft == (pytest.approx((tokens[0] - arrival) / 1e6) if tokens else None)
        if len(tokens) > 1:
            assert request.tpot == pytest.approx(np.mean(np.diff(tokens)) / 1e6)
        assert request.finish == seen["end"][0] / 1e6
        assert request.reason == seen["end"][1]
        assert request.recomputed_tokens == sum(seen["again"])
        assert (request.hit_tokens, request.resumed_hit_tokens) == (
            sum(seen["hits"]), sum(seen["rehits"]),
        )  # fmt: skip
        assert request.preemptions == len(seen["lost"])
        assert request.preempted_time == pytest.approx(sum(seen["waits"]) / 1e6)
    assert len(run.requests) == len(log.requests)
    assert sorted(run.gaps) == pytest.approx(sorted(g / 1e6 for g in gaps))
    assert run.output_tokens == sum(len(seen["tokens"]) for seen in truth.values())


def slots_at(state, block_size: int, capacity: int) -> tuple[int, int, int]:
    """Reserved, used and external token slots of a state, block by block and slot by slot."""
    seated = [state.requests[i] for i in state.running]
    fill: dict[int, int] = {}
    for record in seated:
        for i, block in enumerate(record.table):
            tokens = min(max(record.num_computed - i * block_size, 0), block_size)
            fill[block] = max(fill.get(block, 0), tokens)
    regions = [r.region for r in state.requests.values() if r.region]
    in_regions = sum(length for _, length in regions)
    reserved = len(fill) * block_size + in_regions
    used = sum(fill.values()) + sum(r.num_computed for r in seated if r.region)
    free = np.ones(capacity, bool)
    for start, length in regions:
        free[start : start + length] = False
    edges = np.flatnonzero(np.diff(np.concatenate([[0], free.astype(int), [0]])))
    holes = edges[1::2] - edges[::2]
    return reserved, used, int(holes.sum() - holes.max(initial=0)) if regions else 0


@pytest.mark.parametrize("mode", [m for m in MODES if m != "no cache"])
def test_kv_memory(mode):
    engine = real_run(3, **MODES[mode])
    log, columns = engine.log, compute_metrics(engine.log).kv.columns
    history = History(log)
    contiguous = "contiguous" in engine.config.allocator
    for step in range(log.num_steps):
        moment = next(
            e.number for e in log.events(step) if e.kind in (Kind.TOKEN, Kind.FORK, Kind.STEP_END)
        )
        state = history.seek(moment)
        reserved, used, external = slots_at(state, engine.config.block_size, columns.capacity)
        assert columns.reserved[step] == reserved, step
        assert columns.used[step] == used, step
        assert columns.external[step] == (external if contiguous else 0), step


def test_without_a_cache_there_is_no_kv_memory():
    kv = compute_metrics(real_run(3, **MODES["no cache"]).log).kv
    assert (kv.capacity, kv.peak_reserved, kv.columns.used.max()) == (0, 0, 0)


def test_a_ring_has_the_metrics_of_its_newest_steps():
    whole = real_run(5, 60).log
    ring = real_run(5, 60, capacity=whole.num_events // 2).log
    assert ring.first_step > 0
    full, part = compute_metrics(whole), compute_metrics(ring)
    for name in ("reserved", "used", "internal", "external"):
        expected = getattr(full.kv.columns, name)[ring.first_step :]
        assert getattr(part.kv.columns, name).tolist() == expected.tolist(), name
    for name in ("number", "start_us", "end_us", "waiting", "batch_size", "seats", "output_tokens"):
        expected = getattr(full.steps, name)[ring.first_step :]
        assert getattr(part.steps, name).tolist() == expected.tolist(), name
    known = {r.number for r in part.requests}
    assert known
    for request in full.requests:
        if request.number in known:
            assert request in part.requests
