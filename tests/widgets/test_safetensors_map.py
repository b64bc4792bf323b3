"""The Safetensors map: every byte of a file, as the official library reads its header."""

import json
import shutil
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.numpy import save, save_file

from tinyvllm_lab.errors import ConfigError, SafetensorsError
from tinyvllm_lab.paths import assets_dir
from tinyvllm_lab.widgets import SafetensorsMap
from tinyvllm_lab.widgets.esm import STATIC, bundle
from tinyvllm_lab.widgets.safetensors_map import bytes_text, kind_of
from tinyvllm_lab.widgets.still import INNER_WIDTH

TINY = assets_dir() / "models" / "tiny"


@pytest.fixture
def path(tmp_path):
    tensors = {
        "model.embed_tokens.weight": np.zeros((50, 8), np.float32),
        "model.layers.0.self_attn.q_proj.weight": np.zeros((8, 8), np.float16),
        "model.layers.0.mlp.up_proj.weight": np.zeros((20, 8), np.float16),
        "model.norm.weight": np.zeros(8, np.float32),
        "empty": np.zeros((0, 3), np.int8),
    }
    save_file(tensors, tmp_path / "model.safetensors")
    return tmp_path / "model.safetensors"


def test_the_parts_are_what_the_library_finds(path):
    shown = SafetensorsMap(path)
    header, *tensors = shown.parts
    data = path.read_bytes()
    assert header["end"] == 8 + int.from_bytes(data[:8], "little")
    assert (tensors[-1]["end"], header["begin"]) == (len(data), 0)
    entries = json.loads(data[8 : header["end"]])
    with safe_open(path, "numpy") as library:
        assert {part["name"] for part in tensors} == set(library.keys())
        for part in tensors:
            read = library.get_slice(part["name"])
            assert (part["shape"], part["dtype"]) == (read.get_shape(), read.get_dtype())
            offsets = [part["begin"] - header["end"], part["end"] - header["end"]]
            assert offsets == entries[part["name"]]["data_offsets"]


sizes = st.lists(st.integers(0, 3000), min_size=1, max_size=60)


@given(sizes)
def test_the_pieces_cover_every_line_once(tmp_path_factory, lengths):
    path = tmp_path_factory.mktemp("map") / "a.safetensors"
    path.write_bytes(save({f"t{i}": np.zeros(n, np.uint8) for i, n in enumerate(lengths)}))
    shown = SafetensorsMap(path)
    lines = [sum(w for _, on, _, w in shown.pieces if on == line) for line in range(12)]
    lines = [width for width in lines if width]
    # What is too small to see is wider than it is, by less than 1.6 px.
    assert all(INNER_WIDTH - 0.01 <= width <= INNER_WIDTH + 1.6 * 62 for width in lines[:-1])
    assert all(0 <= x <= x + w <= INNER_WIDTH + 1e-6 for _, _, x, w in shown.pieces)
    seen = {part for part, *_ in shown.pieces}
    assert seen == {i for i, part in enumerate(shown.parts) if part["end"] > part["begin"]}


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("model.embed_tokens.weight", "embedding"),
        ("lm_head.weight", "embedding"),
        ("model.layers.3.self_attn.o_proj.weight", "attention"),
        ("model.layers.3.mlp.gate_proj.weight", "mlp"),
        ("model.layers.3.post_attention_layernorm.weight", "norm"),
        ("model.layers.3.self_attn.q_norm.weight", "norm"),
        ("rope.inv_freq", "other"),
    ],
)
def test_kinds_by_name(name, kind):
    assert kind_of(name) == kind


@pytest.mark.needs("node")
def test_the_browser_writes_bytes_and_entries_the_same_way(path):
    counts = [0, 1, 1023, 1024, 1536, 102399, 2**20, 2**30 + 2**29, 2**43]
    shown = SafetensorsMap(path)
    script = (
        f'import {{ bytesText }} from "{(STATIC / "calculator.js").as_uri()}";'
        f'import {{ partText }} from "{(STATIC / "safetensors_map.js").as_uri()}";'
        "import fs from 'node:fs'; const { counts, parts } = JSON.parse(fs.readFileSync(0));"
        "console.log(JSON.stringify([counts.map(bytesText),"
        " parts.map((p) => partText(p, parts[0].end))]));"
    )
    command = [shutil.which("node"), "--input-type=module", "-e", script]
    given_ = json.dumps({"counts": counts, "parts": shown.parts})
    done = subprocess.run(command, input=given_, capture_output=True, text=True, check=True)
    texts, entries = json.loads(done.stdout)
    assert texts == [bytes_text(count) for count in counts]
    begin = shown.parts[0]["end"]
    assert entries[1] == (
        f"model.embed_tokens.weight: F32, shape [50, 8], 1.6 KiB; bytes {begin} to "
        f"{begin + 1599:,} of the file, data_offsets [0, 1600]"
    )
    assert "import " not in [line[:7] for line in bundle("safetensors_map").splitlines()]


def test_the_shipped_model_has_a_picture_and_no_torch_is_needed():
    data, _ = SafetensorsMap(TINY)._repr_mimebundle_()
    assert "image/png" in data
    assert data["text/plain"] == "SafetensorsMap(74 tensors)"
    code = (
        "import sys; from tinyvllm_lab.widgets import SafetensorsMap;"
        f"SafetensorsMap({str(TINY)!r}).still(); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_what_is_wrong_is_refused(path):
    with pytest.raises(ConfigError):
        SafetensorsMap(path, size="huge")
    with pytest.raises(SafetensorsError):
        SafetensorsMap(path.with_name("none.safetensors"))
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(SafetensorsError):
        SafetensorsMap(path)
