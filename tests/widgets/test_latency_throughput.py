"""The explorer without a browser: what it sends, whose numbers they are, and when it stops."""

import base64
import io
import json
import shutil
import subprocess
import threading

import numpy as np
import pytest
from PIL import Image

from tinyvllm_lab.engine.metrics import SLO
from tinyvllm_lab.errors import ConfigError
from tinyvllm_lab.simulate import CostModel, simulate
from tinyvllm_lab.simulate.sweep import LOADS
from tinyvllm_lab.widgets import Airport, LatencyThroughput
from tinyvllm_lab.widgets.esm import STATIC
from tinyvllm_lab.widgets.load_curve import ORDER, config_of, workload_of

SMALL = {"max_num_seqs": 8, "prompt": 64, "answer": 8}


class Listening(LatencyThroughput):
    """Keeps what it sends; a page has answered."""

    _has_page = True

    def __init__(self, *args, **kwargs):
        self.sent = []
        super().__init__(*args, **kwargs)

    def send(self, content, buffers=None):
        self.sent.append(content)


@pytest.fixture(scope="module")
def explorer():
    made = Listening(**SMALL)
    assert made.wait()
    yield made
    made.close()


def sweeps():
    return [thread for thread in threading.enumerate() if thread.name == "sweep"]


def test_every_rate_is_sent_once_the_capacity_first(explorer):
    begin, capacity, *points, end = explorer.sent[:13]
    assert (begin["k"], begin["keep"], begin["curve"]["points"]) == ("begin", False, [])
    assert capacity["capacity"]["requests"] == explorer.sweep.capacity.requests_per_s
    assert [message["point"]["place"] for message in points] == list(ORDER)
    assert sorted(ORDER) == list(range(len(LOADS)))
    assert end["done"]
    assert max(len(json.dumps(message)) for message in explorer.sent) < 6000


def test_no_thread_is_left_when_there_is_nothing_to_compute(explorer):
    assert not sweeps()


def test_a_point_is_a_run_that_a_panel_shows(explorer):
    capacity = explorer.sweep.capacity.requests_per_s
    for place in (0, 4, -1):
        run, point = explorer.run(place), explorer.sweep.points[place]
        assert point.run is run
        assert point.rate == pytest.approx(LOADS[place] * capacity)
        again = simulate(run.workload, run.config).metrics()
        assert again.requests == run.metrics().requests
    assert Airport(explorer.run(2)).feed.event_log is explorer.run(2).log
    assert explorer.selected is None
    explorer.selected_place = 3
    assert explorer.selected is explorer.run(3)
    with pytest.raises(ConfigError, match="no rate 10"):
        explorer.run(10)


@pytest.mark.needs("node")
def test_the_browser_reads_the_same_from_the_points(explorer):
    limits = [(ttft, tpot) for ttft in (10, 30, 200, 2000) for tpot in (2, 7, 8, 500)]
    choices = [
        {"latency": latency, "percentile": p, "throughput": "tokens", "ttft_ms": a, "tpot_ms": b}
        for a, b in limits for latency in ("ttft", "tpot", "e2e") for p in ("p50", "p95", "p99")
    ]  # fmt: skip
    script = (
        f'import * as curves from "{(STATIC / "load_curves.js").as_uri()}";'
        "import fs from 'node:fs'; const { points, choices } = JSON.parse(fs.readFileSync(0));"
        "console.log(JSON.stringify(choices.map((c) => [points.map((p) => "
        "[curves.latencyOf(p, c), curves.attainment(p, c), curves.goodput(p, c)]), "
        "curves.best(points, c)?.place ?? null, curves.saturation(points)?.place ?? null])));"
    )
    given = json.dumps({"points": explorer.curve.page()["points"], "choices": choices})
    command = [shutil.which("node"), "--input-type=module", "-e", script]
    done = subprocess.run(command, input=given, capture_output=True, text=True, check=True)
    places = {id(point): place for place, point in enumerate(explorer.sweep.points)}
    for choice, (rows, best, grows) in zip(choices, json.loads(done.stdout), strict=True):
        slo = SLO(ttft=choice["ttft_ms"] / 1e3, tpot=choice["tpot_ms"] / 1e3)
        for point, (latency, share, good) in zip(explorer.sweep.points, rows, strict=True):
            of = getattr(point.latency(choice["latency"]), choice["percentile"])
            assert latency == pytest.approx(1e6 * of, abs=1.01)
            assert share == point.attainment(slo)
            assert good == pytest.approx(point.goodput(slo))
        found = explorer.sweep.best(slo, int(choice["percentile"][1:]) / 100)
        assert best == (None if found is None else places[id(found)])
        assert grows == places[id(explorer.sweep.saturation)]


def test_a_knob_keeps_the_curve_before_it_and_limits_compute_nothing():
    explorer = Listening(**SMALL)
    explorer.wait()
    first, sent = explorer.curve, len(explorer.sent)
    explorer.turn(ttft_ms=500, tpot_ms=10, percentile="p50", latency="e2e", throughput="requests")
    assert explorer.wait()
    assert explorer.curve is first
    assert len(explorer.sent) == sent
    explorer.turn(max_num_seqs=4)
    assert explorer.wait()
    assert explorer.former is first
    assert explorer.curve.knobs["max_num_seqs"] == 4
    assert explorer.run(0).config.max_num_seqs == 4
    assert explorer.curves["former"]["number"] == first.number
    assert explorer.sweep.capacity.requests_per_s < first.capacity.requests_per_s
    explorer.close()


def test_the_last_value_of_a_dragged_slider_wins():
    explorer = Listening(**SMALL)
    explorer.wait()
    first = explorer.curve
    with explorer._state:  # as if the worker were busy meanwhile
        for seats in (16, 12, 9, 7, 6, 5):
            explorer.turn(max_num_seqs=seats)
    assert explorer.wait()
    assert explorer.curve.knobs["max_num_seqs"] == 5
    assert len(explorer.curve.points) == len(LOADS)
    assert explorer.former is first
    done = [message for message in explorer.sent if message.get("done")]
    assert len(done) == 2
    explorer.close()


def test_closing_stops_the_sweep_within_a_step():
    explorer = Listening(max_num_seqs=256, answer=512)
    explorer.close()
    explorer.close()
    assert explorer.wait(5.0)
    assert not sweeps()
    assert not explorer.curve.done
    sent = len(explorer.sent)
    explorer.choice = {**explorer.choice, "max_num_seqs": 3}
    assert explorer.wait(1.0)
    assert len(explorer.sent) == sent
    with pytest.raises(ConfigError, match="closed"):
        explorer.run(0)


def test_before_a_page_answers_its_model_has_all_that_there_is():
    explorer = LatencyThroughput(**SMALL)
    explorer.wait()
    assert explorer.opening == explorer.curves
    assert explorer.opening["curve"]["done"]
    explorer._handle_custom_msg({"k": "ready"}, [])
    explorer.turn(max_num_seqs=4)
    explorer.wait()
    assert explorer.opening["curve"]["knobs"]["max_num_seqs"] == 8
    explorer.close()


def test_a_page_that_comes_late_gets_everything(explorer):
    explorer.sent.clear()
    explorer._handle_custom_msg({"k": "ready"}, [])
    (message,) = explorer.sent
    assert message["k"] == "all"
    assert message["curve"] == explorer.curve.page()
    assert len(message["curve"]["points"]) == len(LOADS)


def test_a_knob_that_cannot_be_is_shown_or_refused_and_the_next_one_works():
    explorer = Listening(**SMALL)
    explorer.choice = {**explorer.choice, "model": "llama-3.1-70b"}
    assert explorer.wait()
    assert "does not fit NVIDIA A10G" in explorer.curve.error
    assert explorer.curve.traceback == ""
    assert Image.open(io.BytesIO(explorer.still())).width == 1520
    with pytest.raises(ConfigError, match="does not fit"):
        explorer.run(0)
    with pytest.raises(ConfigError, match="no knob 'colour'"):
        explorer.turn(colour=3)
    explorer.turn(model="llama-3.2-1b")
    assert explorer.run(0).log is not None
    explorer.close()


@pytest.mark.parametrize(
    "bad",
    [
        {"model": "gpt"}, {"gpu": "abacus"}, {"max_num_seqs": 0}, {"max_num_seqs": 257},
        {"max_num_seqs": 8.0}, {"max_num_seqs": True}, {"max_num_batched_tokens": 63},
        {"prompt": 3000}, {"answer": 1}, {"long_prompts": -1}, {"latency": "itl"},
        {"percentile": "p90"}, {"throughput": "bytes"}, {"ttft_ms": 0}, {"tpot_ms": 1000},
        {"size": "x"}, {"model": "llama-3.1-70b"},
    ],
)  # fmt: skip
def test_what_is_wrong_is_refused_by_name(bad):
    with pytest.raises(ConfigError):
        LatencyThroughput(**bad)
    assert not sweeps()


def test_more_blocks_would_change_nothing_and_fewer_would_where_memory_is_short():
    knobs = {
        "model": "llama-3.1-8b", "gpu": "NVIDIA L4", "max_num_seqs": 32, "prompt": 1024,
        "answer": 64, "long_prompts": 50, "max_num_batched_tokens": 2048,
    }  # fmt: skip
    cost, workload = CostModel("NVIDIA L4", "llama-3.1-8b"), workload_of(knobs)
    assert config_of(cost, workload, knobs).num_blocks == cost.num_kv_blocks()
    few = {**knobs, "prompt": 64, "long_prompts": 0, "max_num_seqs": 4}
    config = config_of(cost, workload_of(few), few)
    assert config.num_blocks < cost.num_kv_blocks()
    assert simulate(workload_of(few), config, cost_model=cost).metrics().preemptions == 0


def test_a_knob_of_the_workload_leaves_the_other_draws_alone():
    knobs = {
        "model": "llama-3.2-1b", "gpu": "NVIDIA A10G", "max_num_seqs": 8, "prompt": 100,
        "answer": 50, "long_prompts": 0,
    }  # fmt: skip
    plain, mixed = workload_of(knobs), workload_of({**knobs, "long_prompts": 25})
    ratio = np.array([
        len(b.prompt_token_ids) / len(a.prompt_token_ids) for a, b in zip(plain, mixed, strict=True)
    ])  # fmt: skip
    assert set(ratio.tolist()) == {1.0, 8.0}
    assert 0.15 < (ratio > 1).mean() < 0.35
    assert [r.max_tokens for r in plain] == [r.max_tokens for r in mixed]
    assert np.median([len(r.prompt_token_ids) for r in plain]) == pytest.approx(100, rel=0.15)
    assert len(workload_of({**knobs, "max_num_seqs": 100})) == 400


def test_it_carries_a_picture_and_a_page_without_a_kernel(explorer, tmp_path):
    data, _ = explorer._repr_mimebundle_()
    picture = Image.open(io.BytesIO(base64.b64decode(data["image/png"])))
    assert picture.width == 1520
    assert len(data["image/png"]) < 150_000
    assert "(model='llama-3.2-1b', gpu='NVIDIA A10G', max_num_seqs=8" in data["text/plain"]
    text = explorer.save_html(tmp_path / "page.html").read_text()
    assert "http" not in text.replace("http://www.w3.org/2000/svg", "")
    assert '"latency_throughput"' in text
    assert len(text) < 200_000
