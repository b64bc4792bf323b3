"""Checkpoints in one and in many files."""

import json
import os

import pytest
import torch
from safetensors.torch import save_file

from tinyvllm_lab.errors import SafetensorsError
from tinyvllm_lab.model.safetensors import open_checkpoint

ONE, TWO = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"


@pytest.fixture
def sharded(tmp_path):
    """A folder of two shards: a and b in the first, c in the second."""
    save_file({"a": torch.ones(2), "b": torch.zeros(3)}, tmp_path / ONE)
    save_file({"c": torch.full((2, 2), 7.0)}, tmp_path / TWO)
    write_index(tmp_path, {"a": ONE, "b": ONE, "c": TWO})
    return tmp_path


def write_index(folder, weight_map):
    index = weight_map if isinstance(weight_map, bytes) else json.dumps({"weight_map": weight_map})
    path = folder / "model.safetensors.index.json"
    path.write_bytes(index if isinstance(index, bytes) else index.encode())


def open_handles(folder):
    if not os.path.exists("/proc/self/fd"):
        return 0
    links = (f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd"))
    return sum(os.path.realpath(link).startswith(str(folder)) for link in links)


def test_a_sharded_checkpoint_is_one_mapping(sharded):
    with open_checkpoint(sharded) as checkpoint:
        assert dict(checkpoint.items()).keys() == {"a", "b", "c"}
        assert torch.equal(checkpoint["c"], torch.full((2, 2), 7.0))
        assert checkpoint.info("b").shape == (3,)
        assert len(checkpoint.raw("b")) == 12
        assert checkpoint.num_bytes == 4 * (2 + 3 + 4)
        assert len(checkpoint.files) == 2
        assert checkpoint.get("d") is None
        with pytest.raises(KeyError):
            checkpoint["d"]
    assert open_handles(sharded) == 0


def test_shards_written_by_transformers_read_back(tmp_path):
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        vocab_size=64, hidden_size=32, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=48,
    )  # fmt: skip
    model = transformers.LlamaForCausalLM(config)
    model.save_pretrained(tmp_path, max_shard_size="20KB")
    with open_checkpoint(tmp_path) as checkpoint:
        assert len(checkpoint.files) > 1
        theirs = model.state_dict()
        assert set(checkpoint) == set(theirs)
        assert all(torch.equal(checkpoint[name], theirs[name]) for name in theirs)


def test_a_single_file_is_preferred_to_an_index(sharded):
    save_file({"a": torch.full((2,), 3.0)}, sharded / "model.safetensors")
    assert list(open_checkpoint(sharded)) == ["a"]


def test_shards_may_lie_in_a_folder_below_and_behind_links(sharded, tmp_path_factory):
    blobs = tmp_path_factory.mktemp("blobs")
    (sharded / "below").mkdir()
    os.rename(sharded / ONE, blobs / "one")
    os.symlink(blobs / "one", sharded / "below" / ONE)
    write_index(sharded, {"a": f"below/{ONE}", "c": TWO})
    assert set(open_checkpoint(sharded)) == {"a", "c"}


@pytest.mark.parametrize(
    "name",
    ["../x.safetensors", "below/../../x", "/etc/passwd", "..", "C:\\x", "C:x", "\\\\host\\x",
     "..\\x", "", 3, None, ["x"]],
)  # fmt: skip
def test_an_index_may_not_lead_out_of_its_folder(name, sharded):
    write_index(sharded, {"a": ONE, "evil": name})
    with pytest.raises(SafetensorsError, match=r"index\.json: tensor 'evil'"):
        open_checkpoint(sharded)
    assert open_handles(sharded) == 0


@pytest.mark.parametrize(
    "weight_map",
    [
        {"a": ONE, "c": ONE},
        {"a": "absent.safetensors"},
        {"a": "nul\0.safetensors"},
        {"a": "."},
        b"[]",
        b"{}",
        b'{"weight_map": []}',
        b"{",
        b"",
        b"\xff",
        b"[" * 100_000,
        b'{"weight_map": {"a": "x", "a": "y"}}',
        b'{"weight_map": {"a": "\\ud800"}}',
    ],
)
def test_a_damaged_index_is_an_error_and_leaves_nothing_open(weight_map, sharded):
    write_index(sharded, weight_map)
    with pytest.raises(SafetensorsError):
        open_checkpoint(sharded)
    assert open_handles(sharded) == 0


def test_a_damaged_shard_closes_the_others(sharded):
    (sharded / TWO).write_bytes(b"\0" * 8)
    with pytest.raises(SafetensorsError, match=TWO):
        open_checkpoint(sharded)
    assert open_handles(sharded) == 0


def test_a_folder_without_weights_says_what_it_needs(tmp_path):
    with pytest.raises(SafetensorsError, match=r"model\.safetensors or model\.safetensors\.index"):
        open_checkpoint(tmp_path)
