"""The state rebuilt from the log, against the requests and the pool of the engine that wrote it."""

import pytest
from real_run import real_run

from tinyvllm_lab.engine.history import History

MODES = {
    "recompute": {},
    "swap": {"preemption": "swap"},
    "priority": {"policy": "priority"},
    "static": {"batching": "static"},
    "prefill-first": {"order": "prefill-first", "victim": "most-blocks"},
    "contiguous-max": {
        "allocator": "contiguous-max", "enable_prefix_caching": False, "num_blocks": 120,
    },
    "first-fit": {"allocator": "contiguous-first-fit", "enable_prefix_caching": False},
    "compaction": {
        "allocator": "contiguous-best-fit", "enable_prefix_caching": False, "compaction": True,
    },
    "no cache": {
        "use_kv_cache": False, "enable_prefix_caching": False, "max_num_batched_tokens": 600,
    },
}  # fmt: skip


def of_engine(engine) -> dict:
    scheduler = engine.scheduler
    alive = {r.index: r for r in scheduler.requests()}
    memory = scheduler.memory
    pool = getattr(memory, "pool", None)
    cached = engine.config.use_kv_cache
    return {
        "status": {i: r.status for i, r in alive.items()},
        "slots": {r.seq_slot: r.index for r in scheduler.running},
        "waiting": sorted(r.index for r in scheduler.waiting),
        "tables": {i: r.block_table[:] for i, r in alive.items()},
        "host": {i: r.swapped_blocks[:] for i, r in alive.items()},
        "regions": {i: r.region for i, r in alive.items()},
        "computed": {i: r.num_computed_tokens for i, r in alive.items()} if cached else None,
        "outputs": {i: r.num_output_tokens for i, r in alive.items()},
        "preemptions": {i: r.num_preemptions for i, r in alive.items()},
        "refs": {b: n for b, n in enumerate(pool.ref_counts) if n and b} if pool else {},
        "hashed": [b for b, h in enumerate(pool.hashes) if h is not None] if pool else [],
    }


def of_state(state, cached: bool) -> dict:
    alive = {i: r for i, r in state.requests.items() if r.status.value != "finished"}
    return {
        "status": {i: r.status for i, r in alive.items()},
        "slots": state.slots,
        "waiting": sorted(state.waiting),
        "tables": {i: r.table for i, r in alive.items()},
        "host": {i: r.host_blocks for i, r in alive.items()},
        "regions": {i: r.region for i, r in alive.items()},
        "computed": {i: r.num_computed for i, r in alive.items()} if cached else None,
        "outputs": {i: r.num_output for i, r in alive.items()},
        "preemptions": {i: r.num_preemptions for i, r in alive.items()},
        "refs": state.ref_counts,
        "hashed": sorted(state.cached),
    }


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("seed", [1, 2])
def test_the_log_tells_the_whole_state(mode, seed):
    truths = []
    engine = real_run(seed, after_step=lambda e: truths.append(of_engine(e)), **MODES[mode])
    history = History(engine.log, every=500)
    steps = range(engine.log.num_steps)
    for step in [*steps, *reversed(steps)]:
        state = history.at(step)
        assert of_state(state, engine.config.use_kv_cache) == truths[step], step
        assert state.check() == []
