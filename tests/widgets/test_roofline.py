"""The roofline: the browser's arithmetic is the simulator's."""

import json
import shutil
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tinyvllm_lab.errors import ConfigError
from tinyvllm_lab.simulate.cost import CostModel
from tinyvllm_lab.simulate.hardware import find_hardware, hardware_table
from tinyvllm_lab.simulate.models import find_model, model_names
from tinyvllm_lab.widgets import Roofline
from tinyvllm_lab.widgets.esm import STATIC
from tinyvllm_lab.widgets.roofline import DTYPES, rate_text


def test_one_decode_of_the_1b_does_one_flop_a_byte_and_waits_for_memory():
    """2 FLOPs for each weight of 2 bytes, by hand; a long prompt is limited by arithmetic."""
    points = Roofline(batch=1, context=1).points
    weights = find_model("llama-3.2-1b").num_parameters
    assert points["decode"].intensity == pytest.approx(1.0, rel=0.01)
    assert points["decode"].flops == pytest.approx(2 * weights, rel=0.01)
    assert points["decode"].seconds == pytest.approx(2 * weights / (600e9 * 0.75), rel=0.01)
    points = Roofline(batch=8, context=4096).points
    assert (points["decode"].bound, points["prefill"].bound) == ("memory", "compute")
    assert Roofline(batch=1024, context=131072).points["decode"].fits is False


def test_the_seconds_are_those_of_the_cost_model_without_overhead():
    cost = CostModel("NVIDIA L4", "llama-3.1-8b").decode_step(32, 2000)
    point = Roofline("llama-3.1-8b", "NVIDIA L4", batch=32, context=2000).points["decode"]
    assert point.seconds == pytest.approx(cost.total_s - cost.overhead_s)
    assert point.intensity == cost.intensity


choices = st.tuples(
    st.sampled_from(model_names()), st.sampled_from([h.name for h in hardware_table()]),
    st.sampled_from(DTYPES), st.integers(1, 1024), st.integers(1, 131072),
)  # fmt: skip


@pytest.mark.needs("node")
@settings(max_examples=4, deadline=None)
@given(st.lists(choices, min_size=60, max_size=60))
def test_the_browser_computes_the_same_and_nothing_is_above_the_roof(picks):
    made = [Roofline(*pick) for pick in picks]
    rates = [1e9, 2.5e10, 9.99e11, 1.25e14, 1e15, 1e16]
    script = (
        f'import {{ points, rateText }} from "{(STATIC / "roofline.js").as_uri()}";'
        "import fs from 'node:fs';"
        "const { tables, choices, rates } = JSON.parse(fs.readFileSync(0));"
        "console.log(JSON.stringify([choices.map((c) => points(c, tables)), rates.map(rateText)]));"
    )
    given_ = json.dumps(
        {"tables": made[0].tables, "choices": [w.choice for w in made], "rates": rates}
    )
    command = [shutil.which("node"), "--input-type=module", "-e", script]
    done = subprocess.run(command, input=given_, capture_output=True, text=True, check=True)
    theirs, texts = json.loads(done.stdout)
    assert texts == [rate_text(rate) for rate in rates]
    for widget, found in zip(made, theirs, strict=True):
        hardware = find_hardware(widget.choice["gpu"])
        for name, point in widget.points.items():
            expected = vars(point).copy()
            assert found[name].pop("bound") == expected.pop("bound")
            assert found[name] == pytest.approx(expected, rel=1e-9)
            roof = min(hardware.flops("bfloat16"), hardware.bandwidth * point.intensity)
            assert point.rate <= roof


def test_it_carries_a_picture_and_refuses_what_it_does_not_know():
    data, _ = Roofline()._repr_mimebundle_()
    assert "image/png" in data
    assert data["text/plain"].endswith("decode: memory, prefill: compute)")
    bad = ({"model": "gpt"}, {"gpu": "abacus"}, {"dtype": "int3"}, {"batch": 0}, {"size": "x"})
    for choice in bad:
        with pytest.raises(ConfigError):
            Roofline(**choice)
