"""The KV wallet: the browser's arithmetic is Python's, and Python's is the simulator's."""

import json
import shutil
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tinyvllm_lab.errors import ConfigError
from tinyvllm_lab.simulate.cost import CostModel
from tinyvllm_lab.widgets import KVWallet
from tinyvllm_lab.widgets.esm import STATIC
from tinyvllm_lab.widgets.kv_wallet import DTYPES

MODELS = ("llama-3.2-1b", "llama-3.2-3b", "llama-3.1-8b", "llama-3.1-70b")


def test_the_1b_takes_32_kib_a_token_and_as_many_users_fit_as_the_simulator_has_blocks_for():
    wallet = KVWallet("llama-3.2-1b", "NVIDIA A10G", context=4096).wallet
    assert wallet.token == 32 * 1024
    assert wallet.weights == 1_235_814_400 * 2
    blocks = CostModel("A10G", "llama-3.2-1b").num_kv_blocks()
    assert wallet.fit == pytest.approx(blocks * 16 // 4096, rel=0.03)


choices = st.tuples(
    st.sampled_from(MODELS), st.sampled_from(sorted(DTYPES)), st.integers(1, 131072),
    st.integers(1, 2000),
)  # fmt: skip


@pytest.mark.needs("node")
@settings(max_examples=4, deadline=None)
@given(st.lists(choices, min_size=60, max_size=60))
def test_the_browser_computes_the_same(picks):
    made = [KVWallet(m, "NVIDIA L4", d, context=c, users=u) for m, d, c, u in picks]
    script = (
        f'import {{ wallet }} from "{(STATIC / "kv_wallet.js").as_uri()}";'
        "import fs from 'node:fs'; const { tables, choices } = JSON.parse(fs.readFileSync(0));"
        "console.log(JSON.stringify(choices.map((c) => wallet(c, tables))));"
    )
    given_ = json.dumps({"tables": made[0].tables, "choices": [w.choice for w in made]})
    command = [shutil.which("node"), "--input-type=module", "-e", script]
    done = subprocess.run(command, input=given_, capture_output=True, text=True, check=True)
    for widget, theirs in zip(made, json.loads(done.stdout), strict=True):
        assert theirs == pytest.approx(vars(widget.wallet))


def test_it_carries_a_picture_and_refuses_what_it_does_not_know():
    data, _ = KVWallet()._repr_mimebundle_()
    assert "image/png" in data
    assert "fit" in data["text/plain"]
    for bad in (
        {"model": "gpt"},
        {"gpu": "abacus"},
        {"dtype": "int3"},
        {"users": 0},
        {"size": "x"},
    ):
        with pytest.raises(ConfigError):
            KVWallet(**bad)
