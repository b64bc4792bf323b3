"""The browser's replayer holds the same state as Python, at every step, in both directions."""

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest

from tinyvllm_lab.engine.config import EngineConfig
from tinyvllm_lab.engine.events import Kind, Phase, Reason
from tinyvllm_lab.engine.history import History
from tinyvllm_lab.engine.log import EventLog
from tinyvllm_lab.engine.storage import save
from tinyvllm_lab.simulate.presets import airport, chat
from tinyvllm_lab.simulate.run import simulate

sys.path.append(str(Path(__file__).parents[1] / "engine"))
from toy_engine import ToyEngine

HERE = Path(__file__).parent
STATIC = HERE.parents[1] / "tinyvllm_lab" / "widgets" / "static"
pytestmark = pytest.mark.needs("node")


def node(*arguments) -> str:
    run = subprocess.run(
        ["node", *map(str, arguments)], capture_output=True, text=True, timeout=120
    )
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout


def check_equal(log: EventLog, folder: Path) -> str:
    save(log, folder / "run.tvt")
    history = History(log)
    steps = range(log.first_step - 1, log.num_steps)
    write_states(history, steps, folder)
    return node(HERE / "js" / "equal_state.mjs", folder)


def write_states(history: History, steps, folder: Path) -> None:
    # One at a time: `as_dict` shows the state's own tables, which move on.
    states = [f"[{step},{json.dumps(history.at(step).as_dict())}]" for step in steps]
    (folder / "states.json").write_text(f"[{','.join(states)}]")


@pytest.mark.parametrize("regions", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_the_state_is_pythons_on_random_runs(seed, regions, tmp_path):
    toy = ToyEngine(seed, regions=regions).run(150)
    assert "equal: 151 steps" in check_equal(toy.log, tmp_path)


@pytest.mark.parametrize(
    "knobs",
    [
        {"preemption": "recompute"},
        {"preemption": "swap", "num_host_blocks": 32},
        {"allocator": "contiguous-first-fit", "enable_prefix_caching": False},
        {"batching": "static", "enable_prefix_caching": False},
    ],
)
def test_the_state_is_pythons_on_runs_of_the_engine(knobs, tmp_path):
    config = EngineConfig(max_num_seqs=6, num_blocks=80, max_num_batched_tokens=2048, **knobs)
    workload = chat(18, system_tokens=32, think_s=0.1, seed=5)
    log = simulate(workload, config=config).log
    assert log.num_steps > 50
    check_equal(log, tmp_path)


def test_keyframes_and_a_log_that_dropped_its_oldest_steps(tmp_path):
    log = EventLog(capacity=20_000)
    config = EngineConfig(max_num_seqs=8, num_blocks=600, max_model_len=4096)
    simulate(airport(160, seed=1), config=config, log=log)
    assert log.first_step > 0
    kept = log.kept()
    assert len(kept.rows) > 15_000
    # Every state of so long a log is a big file: the last steps will do, and Node walks them all.
    out = check_equal_sample(log, tmp_path)
    assert "1 keyframes" not in out


def check_equal_sample(log: EventLog, folder: Path) -> str:
    save(log, folder / "run.tvt")
    history, rng = History(log), random.Random(0)
    steps = {rng.randrange(log.first_step - 1, log.num_steps) for _ in range(60)}
    write_states(history, sorted({*steps, log.num_steps - 1}), folder)
    return node(HERE / "js" / "equal_state.mjs", folder)


def test_the_vocabularies_are_one():
    kinds, phases = json.loads(
        node(
            "--input-type=module",
            "-e",
            f"import {{KIND, PHASE, PHASE_WORDS, REASON_WORDS}} from '{STATIC}/events.js';"
            "console.log(JSON.stringify([KIND, [PHASE, PHASE_WORDS, REASON_WORDS]]))",
        )
    )
    assert kinds == {kind.name: int(kind) for kind in Kind}
    assert phases[0] == {phase.name: int(phase) for phase in Phase}
    assert phases[1] == [phase.name.lower() for phase in Phase]
    assert phases[2] == [reason.name.lower() for reason in Reason]
