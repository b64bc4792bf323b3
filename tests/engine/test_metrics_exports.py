"""Frames and Prometheus text say what `RunMetrics` says."""

import subprocess
import sys

import numpy as np
import pytest
from real_run import real_run
from test_metrics import by_hand

from tinyvllm_lab.engine.log import EventLog
from tinyvllm_lab.engine.metrics import SLO, compute_metrics
from tinyvllm_lab.engine.metrics_frames import request_frame, step_frame
from tinyvllm_lab.engine.prometheus import prometheus_text

parser = pytest.importorskip("prometheus_client.parser")


def parse(text):
    """Sample name -> labels -> value, by the official client's parser."""
    samples = {}
    for family in parser.text_string_to_metric_families(text):
        for sample in family.samples:
            labels = tuple(sorted((k, v) for k, v in sample.labels.items() if k != "model_name"))
            assert "model_name" in sample.labels
            samples.setdefault(sample.name, {})[labels] = sample.value
    return samples


def test_a_frame_of_requests():
    run = compute_metrics(real_run(2).log)
    frame = request_frame(run)
    assert list(frame.index) == [r.number for r in run.requests]
    for name in ("ttft", "tpot", "e2e", "queue_time", "finish"):
        expected = [getattr(r, name) for r in run.requests]
        np.testing.assert_array_equal(frame[name], np.array(expected, np.float64))
    assert frame["output_tokens"].sum() == run.output_tokens
    assert set(frame["reason"]) <= {"stop", "length", "abort", "timeout"}


def test_a_frame_of_steps():
    run = compute_metrics(real_run(2).log)
    frame = step_frame(run)
    assert list(frame.index) == list(range(len(run.steps.number)))
    assert (frame["kv_reserved"] - frame["kv_used"] == frame["kv_internal"]).all()
    assert frame["duration_us"].sum() == run.steps.duration_us.sum()


def test_frames_of_an_empty_log():
    run = compute_metrics(EventLog())
    assert request_frame(run).empty
    assert step_frame(run).empty


def test_prometheus_by_hand():
    samples = parse(prometheus_text(compute_metrics(by_hand(), SLO(ttft=0.0015)), "tiny"))

    def value(name, **labels):
        return samples[f"tinyvllm:{name}"][tuple(sorted(labels.items()))]

    assert value("num_preemptions_total") == 1
    assert value("generation_tokens_total") == 5
    assert value("prompt_tokens_total") == 10
    assert value("prefix_cache_queries_total") == 14
    assert value("prefix_cache_hits_total") == 4
    assert value("request_success_total", finished_reason="abort") == 1
    assert value("request_success_total", finished_reason="error") == 0
    assert value("num_requests_running") == 1
    assert value("num_requests_waiting") == 1
    assert value("kv_cache_usage_perc") == pytest.approx(0.2)
    assert value("goodput_requests_per_second") == pytest.approx(125)
    # TTFT: 1.1 ms and 2 ms.
    assert value("time_to_first_token_seconds_bucket", le="0.001") == 0
    assert value("time_to_first_token_seconds_bucket", le="0.005") == 2
    assert value("time_to_first_token_seconds_count") == 2
    assert value("time_to_first_token_seconds_sum") == pytest.approx(0.0031)
    assert value("inter_token_latency_seconds_bucket", le="+Inf") == 3
    # Steps of 5, 6, 1 and 3 tokens: a value on a bound belongs to the bucket.
    assert value("iteration_tokens_total_bucket", le="1.0") == 1
    assert value("iteration_tokens_total_bucket", le="8.0") == 4


def test_prometheus_buckets_of_a_real_run():
    run = compute_metrics(real_run(4).log)
    samples = parse(prometheus_text(run, prefix="vllm"))
    for name, values in [
        ("inter_token_latency_seconds", run.gaps),
        ("time_to_first_token_seconds", [r.ttft for r in run.requests if r.ttft is not None]),
        ("e2e_request_latency_seconds", [r.e2e for r in run.requests if r.e2e is not None]),
        ("iteration_tokens_total", run.steps.computed_tokens),
    ]:
        for ((_, bound),), count in samples[f"vllm:{name}_bucket"].items():
            assert count == sum(value <= float(bound) for value in values), (name, bound)


def test_labels_are_escaped():
    text = prometheus_text(compute_metrics(EventLog()), 'a "b"\\\nc')
    families = list(parser.text_string_to_metric_families(text))
    names = {s.labels["model_name"] for family in families for s in family.samples}
    assert names == {'a "b"\\\nc'}


def test_nothing_heavy_is_imported():
    code = (
        "import sys, tinyvllm_lab.engine.metrics, tinyvllm_lab.engine.metrics_frames\n"
        "import tinyvllm_lab.engine.prometheus, tinyvllm_lab.engine.storage\n"
        "import tinyvllm_lab.engine.history\n"
        "print([m for m in ('torch', 'pandas', 'plotly') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
