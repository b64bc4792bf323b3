"""Our scheduler against vLLM 0.33.0's own decisions, recorded step by step."""

import json
from pathlib import Path

import pytest

from tinyvllm_lab.engine.replay import differences, replay
from tinyvllm_lab.errors import ConfigError

TRACES = sorted((Path(__file__).parents[1] / "data" / "vllm_traces").glob("*.json"))


def load(path):
    return json.loads(path.read_text())


def test_all_traces_are_here():
    assert len(TRACES) == 63


@pytest.mark.parametrize("path", TRACES, ids=lambda p: p.stem)
def test_every_field_of_every_step_is_as_recorded(path):
    trace = load(path)
    assert differences(trace["trajectory"], replay(trace)) == []


def test_a_difference_is_reported():
    trace = load(TRACES[0])
    trace["trajectory"][1]["free"] += 1
    (line,) = differences(trace["trajectory"], replay(trace))
    assert line.startswith("step 1, free:")


@pytest.mark.parametrize(
    "workload",
    [
        {},
        {"config": {}},
        {"config": {}, "requests": [{}]},
        {"config": {"block_size": 0}, "requests": []},
    ],
)
def test_bad_workload_is_a_typed_error(workload):
    with pytest.raises(ConfigError):
        replay(workload)
