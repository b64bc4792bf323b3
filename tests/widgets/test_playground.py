"""The playground without a browser: knobs reach the engine, live or with a new run."""

import time
from dataclasses import replace

import numpy as np
import pytest
from ipywidgets import Dropdown

from tinyvllm_lab.engine.config import EngineConfig, field_specs
from tinyvllm_lab.engine.events import Kind
from tinyvllm_lab.engine.recordings import recorded_run, recorded_runs
from tinyvllm_lab.engine.storage import from_bytes, load
from tinyvllm_lab.engine.varint import decode
from tinyvllm_lab.errors import ConfigError
from tinyvllm_lab.simulate.arrivals import Poisson
from tinyvllm_lab.simulate.presets import chat
from tinyvllm_lab.simulate.workloads import Workload, WorkloadRequest
from tinyvllm_lab.widgets import Playground, PlaygroundSettings, WorkloadKnobs
from tinyvllm_lab.widgets.knobs import GROUPS

SMALL = PlaygroundSettings(
    workload=WorkloadKnobs(num_requests=12), config=EngineConfig(max_num_seqs=4, num_blocks=129)
)


@pytest.fixture
def playground():
    made = Playground(SMALL)
    yield made
    made.close()


def turn(playground, name, value):
    playground.knobs[name].value = value
    assert playground.wait()


def wait_for(condition):
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


def finished(log):
    return int((log.as_array()[:, 0] == int(Kind.FINISH)).sum())


def test_every_knob_of_the_engine_has_a_control_with_its_help(playground):
    specs = {spec.name: spec for spec in field_specs()}
    shown = {name for names in GROUPS.values() for name in names}
    assert shown == specs.keys() - {"check_invariants"}
    for name in shown:
        control = playground.knobs[name]
        assert specs[name].help in control.tooltip
        assert ("restarts" in control.tooltip) == (not specs[name].live)
        assert control.value == getattr(SMALL.config, name)
        if specs[name].choices:
            assert isinstance(control, Dropdown)


def test_it_opens_with_a_whole_run(playground):
    assert finished(playground.feed.event_log) == 12
    assert playground.runner is None


def test_a_knob_at_rest_makes_the_whole_run_again_with_the_same_seed(playground):
    before = playground.feed.event_log
    turn(playground, "max_num_seqs", 2)
    after = playground.feed.event_log
    assert after is not before
    assert finished(after) == 12
    assert after.config.max_num_seqs == 2
    assert [r["prompt_tokens"] for r in after.requests.values()] == [
        r["prompt_tokens"] for r in before.requests.values()
    ]
    turn(playground, "max_num_seqs", 4)
    assert playground.feed.event_log.as_array()[:, 0].tolist() == before.as_array()[:, 0].tolist()


def test_run_pause_step_and_a_live_knob(playground):
    playground.pace.value = 60.0
    playground.buttons["Run"].click()
    assert playground.wait()
    runner = playground.runner
    wait_for(lambda: runner.engine.num_steps > 3)
    turn(playground, "max_num_seqs", 7)
    wait_for(lambda: runner.engine.config.max_num_seqs == 7)
    assert playground.runner is runner
    playground.buttons["Pause"].click()
    assert playground.wait()
    wait_for(lambda: runner.state == "paused")
    time.sleep(0.05)
    steps = runner.engine.num_steps
    playground.buttons["Step"].click()
    assert playground.wait()
    wait_for(lambda: runner.engine.num_steps == steps + 1)
    playground.buttons["Run"].click()
    playground.pace.value = None
    assert playground.wait()
    assert runner.join(20)
    assert finished(playground.feed.event_log) == 12


def test_a_knob_that_needs_a_restart_restarts_and_says_so(playground):
    playground.buttons["Run"].click()
    assert playground.wait()
    first = playground.runner
    turn(playground, "block_size", 32)
    assert "restarted, same seed" in playground.status.value
    assert playground.runner is not first
    assert playground.runner.engine.config.block_size == 32
    wait_for(lambda: first.state == "stopped")


def test_memory_without_blocks_switches_off_what_needs_them(playground):
    turn(playground, "allocator", "contiguous-first-fit")
    assert playground.settings.config.enable_prefix_caching is False
    assert playground.knobs["enable_prefix_caching"].value is False
    assert finished(playground.feed.event_log) == 12
    turn(playground, "enable_prefix_caching", True)
    assert "cannot share prefixes" in playground.status.value
    assert playground.knobs["enable_prefix_caching"].value is False


def test_a_recorded_run_is_chosen_from_a_menu(playground):
    playground.buttons["Run"].click()
    assert playground.wait()
    first = playground.runner
    assert [name for _, name in playground.recorded.options] == ["", *recorded_runs()]
    playground.recorded.value = "preemption"
    assert playground.feed.event_log.num_steps == recorded_run("preemption").num_steps
    assert recorded_runs()["preemption"] in playground.status.value
    assert playground.recorded.value == ""
    assert not playground.is_live
    wait_for(lambda: first.state == "stopped")


def test_save_and_load(playground, tmp_path):
    path = tmp_path / "run.tvt"
    playground.path.value = str(path)
    playground.file_buttons["save"].click()
    saved = playground.feed.event_log
    turn(playground, "max_num_seqs", 2)
    playground.file_buttons["load"].click()
    assert (playground.feed.event_log.as_array() == saved.as_array()).all()
    assert (load(path).as_array() == saved.as_array()).all()
    playground.path.value = str(tmp_path / "nothing.tvt")
    playground.file_buttons["load"].click()
    assert "nothing.tvt" in playground.status.value


def test_the_code_makes_the_same_run(playground):
    turn(playground, "max_num_seqs", 3)
    turn(playground, "long_answers", 60)
    playground.file_buttons["code"].click()
    names = {}
    exec(playground.code.value, names)
    assert names["settings"] == playground.settings
    runner = names["runner"]
    assert runner.join(20)
    log = playground.feed.event_log
    assert runner.engine.log.as_array()[:, :2].tolist() == log.as_array()[:, :2].tolist()
    runner.stop()


def requests_of(log):
    return [r["id"] for r in log.requests.values()]


def test_a_fixed_workload_comes_as_a_list_or_from_a_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    requests = [WorkloadRequest(f"r{i}", 0.01 * i, (5, 6, 7 + i), 8) for i in range(9)]
    workload = Workload("rush", tuple(requests))
    workload.save("rush.jsonl")
    for given in (requests, workload, "rush.jsonl", tmp_path / "rush.jsonl"):
        playground = Playground(replace(SMALL, workload=given))
        assert playground.wait()
        assert requests_of(playground.feed.event_log) == [r.request_id for r in requests]
        assert playground.seed.disabled
        turn(playground, "max_num_seqs", 2)
        assert finished(playground.feed.event_log) == 9
        playground.file_buttons["code"].click()
        names = {}
        exec(playground.code.value.partition("runner =")[0], names)
        assert names["settings"].fixed_workload.requests == workload.requests
        assert names["settings"].config == playground.settings.config
        playground.close()


def test_a_preset_is_a_ready_workload_and_has_no_mix(playground):
    turn(playground, "num_requests", 30)
    turn(playground, "preset", "chat")
    expected = chat(30, Poisson(SMALL.knobs.rate_per_s), seed=SMALL.seed)
    assert sorted(requests_of(playground.feed.event_log)) == sorted(
        r.request_id for r in expected.requests
    )
    assert playground.knobs["long_prompts"].disabled
    playground.knobs["engine"].value = "tiny"
    assert "cannot serve the preset" in playground.status.value
    assert playground.knobs["engine"].value == "simulated"
    turn(playground, "preset", "mix")
    assert not playground.knobs["long_prompts"].disabled
    playground.knobs["engine"].value = "tiny"
    assert playground.knobs["hardware"].disabled
    assert playground.knobs["preset"].disabled
    assert not playground.knobs["long_prompts"].disabled


def sent(playground, monkeypatch):
    """What goes to the page from now on."""
    messages = []
    monkeypatch.setattr(
        playground.feed, "send", lambda content, buffers=None: messages.append((content, buffers))
    )
    return messages


def test_a_long_run_is_shown_in_parts_that_make_the_whole(playground, monkeypatch):
    messages = sent(playground, monkeypatch)
    for name in ("FIRST_SLICE_S", "SLICE_S", "SHORT_S"):
        monkeypatch.setattr(f"tinyvllm_lab.widgets.playground.{name}", 0.0)
    turn(playground, "max_num_seqs", 3)
    kinds = [content["k"] for content, _ in messages]
    assert kinds[0] == "run"
    assert kinds[-1] == "w"
    assert kinds.count("e") > 5
    assert not messages[0][0]["whole"]
    rows = [from_bytes(messages[0][1][0]).as_array()]
    rows += [decode(b[0]).reshape(-1, 4) for c, b in messages if c["k"] == "e"]
    log = playground.feed.event_log
    assert np.concatenate(rows).tolist() == log.as_array().tolist()
    assert finished(log) == 12


def test_a_newer_order_drops_the_rest_of_a_run_and_a_loaded_run_stays(playground, monkeypatch):
    turn(playground, "num_requests", 400)
    log = playground.feed.event_log
    for name in ("FIRST_SLICE_S", "SHORT_S"):
        monkeypatch.setattr(f"tinyvllm_lab.widgets.playground.{name}", 0.0)
    playground.knobs["max_num_seqs"].value = 2
    wait_for(lambda: playground.feed.event_log is not log)
    dropped = playground.feed.event_log
    playground.knobs["max_num_seqs"].value = 6
    assert playground.wait()
    assert playground.feed.event_log.config.max_num_seqs == 6
    assert finished(playground.feed.event_log) == 400
    assert finished(dropped) < 400
    playground.knobs["max_num_seqs"].value = 5
    playground.show_recorded("preemption")
    assert playground.wait()
    assert playground.feed.event_log.num_steps == recorded_run("preemption").num_steps
    assert not playground.feed.is_growing


def test_an_error_is_told_and_ends_what_was_being_computed(playground, monkeypatch):
    def breaks(*_):
        raise ValueError("planted")

    messages = sent(playground, monkeypatch)
    for name in ("FIRST_SLICE_S", "SLICE_S", "SHORT_S"):
        monkeypatch.setattr(f"tinyvllm_lab.widgets.playground.{name}", 0.0)
    monkeypatch.setattr(playground.feed, "flush", breaks)
    monkeypatch.setattr(playground.feed, "settle", lambda: messages.append(({"k": "w"}, None)))
    turn(playground, "max_num_seqs", 3)
    assert [content["k"] for content, _ in messages][-2:] == ["w", "s"]
    assert "planted" in messages[-1][0]["error"]


def test_real_tokens_on_the_shipped_model():
    knobs = WorkloadKnobs(num_requests=2, rate_per_s=50.0, long_answers=0, hang_ups=0)
    runner = PlaygroundSettings(engine="tiny", workload=knobs).make_runner()
    with runner:
        assert runner.join(60)
    assert runner.error is None
    assert finished(runner.engine.log) == 2
    assert runner.engine.log.texts


def test_bad_settings_are_refused():
    with pytest.raises(ConfigError, match="num_requests"):
        WorkloadKnobs(num_requests=0)
    with pytest.raises(ConfigError, match="engine"):
        PlaygroundSettings(engine="warp")
    with pytest.raises(ConfigError, match="preset"):
        WorkloadKnobs(preset="rush")
    with pytest.raises(ConfigError, match=r"nothing\.jsonl"):
        PlaygroundSettings(workload="nothing.jsonl")
    with pytest.raises(ConfigError, match="list of WorkloadRequest"):
        PlaygroundSettings(workload=[1, 2])
    settings = PlaygroundSettings("tiny", workload=[WorkloadRequest("a", 0.0, (10**6,), 3)])
    with pytest.raises(ConfigError, match="1000000"):
        settings.make_runner()
