"""The recorded runs are what their script makes, and what their panels say of them."""

import runpy

import numpy as np
import pytest

from tinyvllm_lab import recorded_run, recorded_runs
from tinyvllm_lab.engine.events import Kind, Phase
from tinyvllm_lab.engine.history import History
from tinyvllm_lab.engine.storage import to_bytes
from tinyvllm_lab.errors import LogError
from tinyvllm_lab.paths import assets_dir
from tinyvllm_lab.widgets.moment import Moment

FOLDER = assets_dir() / "runs"
SCRIPT = runpy.run_path(str(FOLDER / "make_runs.py"))
MEASURED = ["eight_prompts"]
SIMULATED = [name for name in SCRIPT["RUNS"] if name not in MEASURED]


def count(log, kind: Kind) -> int:
    return int((log.as_array()[:, 0] == int(kind)).sum())


def test_the_folder_has_the_runs_of_the_script_and_each_is_small() -> None:
    assert set(recorded_runs()) == set(SCRIPT["RUNS"])
    assert {path.suffix for path in FOLDER.iterdir() if path.is_file()} == {".tvt", ".py"}
    for name, about in recorded_runs().items():
        assert about.endswith(".")
        assert "\n" not in about
        assert (FOLDER / f"{name}.tvt").stat().st_size < 64 * 1024


@pytest.mark.parametrize("name", SIMULATED)
def test_a_simulated_run_is_made_again_event_for_event(name) -> None:
    made = SCRIPT["make_run"](name)
    stored = recorded_run(name)
    assert np.array_equal(made.as_array(), stored.as_array())
    assert to_bytes(made) == to_bytes(stored)


def test_the_measured_run_is_made_again_but_for_its_times() -> None:
    made, stored = SCRIPT["make_run"]("eight_prompts"), recorded_run("eight_prompts")
    rows = [log.as_array().copy() for log in (made, stored)]
    for events in rows:
        events[events[:, 0] == int(Kind.STEP), 3] = 0
        events[events[:, 0] == int(Kind.STEP_END), 1:] = 0
    assert np.array_equal(*rows)
    assert made.texts == stored.texts
    assert [r["prompt"] for r in stored.requests.values()] == list(SCRIPT["QUESTIONS"])


@pytest.mark.parametrize("name", SCRIPT["RUNS"])
def test_a_replay_holds_the_invariants_and_ends_empty(name) -> None:
    log = recorded_run(name)
    history = History(log)
    assert not [step for step in range(log.num_steps) if history.at(step).check()]
    last = history.at(log.num_steps - 1)
    assert not last.slots
    assert not last.waiting
    assert sum(last.finished.values()) == len(log.requests)


@pytest.mark.parametrize("name", SCRIPT["RUNS"])
def test_it_says_where_its_times_come_from(name) -> None:
    word, sentence = Moment.of(recorded_run(name), 0).source_words
    assert word == ("measured" if name in MEASURED else "simulated")
    assert ("another machine" if name in MEASURED else "NVIDIA A10G") in sentence


def test_each_shows_what_it_is_there_for() -> None:
    logs = {name: recorded_run(name) for name in recorded_runs()}
    assert logs["static"].num_steps > 1.5 * logs["continuous"].num_steps
    assert count(logs["prefix_sharing"], Kind.BLOCK_SHARE) > 500
    assert count(logs["preemption"], Kind.PREEMPT) >= 5
    assert count(logs["preemption"], Kind.BLOCK_EVICT) >= 100
    assert count(logs["first_fit"], Kind.REGION_MOVE) >= 50
    rows = logs["chunked_prefill"].as_array()
    prefills = rows[(rows[:, 0] == int(Kind.SCHEDULED)) & (rows[:, 3] == int(Phase.PREFILL))]
    assert np.unique(prefills[:, 1], return_counts=True)[1].max() >= 5, "a prompt in five chunks"
    assert any(request["id"].endswith(".2") for request in logs["chat"].requests.values())


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(LogError, match=r"'lunch'[\s\S]*one of chat, "):
        recorded_run("lunch")
