"""GGUF to Hugging Face's layout: against the weights that went in, and against transformers."""

import json
import sys

import numpy as np
import pytest
import tiny_gguf
import torch
from safetensors.torch import load_file
from tiny_gguf import HEADS, HIDDEN, KV_HEADS, random_weights, write_gguf
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM
from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

from tinyvllm_lab.errors import ModelError
from tinyvllm_lab.model.config import ModelConfig, RopeConfig
from tinyvllm_lab.model.gguf_convert import convert_gguf, unpermute_for_rope
from tinyvllm_lab.model.tokenizer import Tokenizer


@pytest.fixture
def folder(tmp_path):
    """Where the converted model goes."""
    (tmp_path / "model").mkdir()
    return tmp_path / "model"


def transformers_reading(path, folder):
    """The tensors as transformers dequantises and names them, in float32."""
    with torch.device("meta"):
        model = LlamaForCausalLM(LlamaConfig.from_pretrained(folder))
    return load_gguf_checkpoint(path, return_tensors=True, model_to_load=model)["tensors"]


@pytest.mark.parametrize("tied", [True, False])
def test_unquantised_weights_come_back_with_their_names_and_rows(tied, tmp_path, folder):
    weights = random_weights(tied)
    convert_gguf(write_gguf(tmp_path / "x.gguf", weights), folder)
    found = load_file(folder / "model.safetensors")
    assert set(found) == set(weights)
    for name, weight in weights.items():
        assert torch.equal(found[name], torch.from_numpy(weight).to(torch.bfloat16))
    config = ModelConfig.from_dir(folder)
    assert config.tie_word_embeddings is tied
    assert config.num_parameters() == sum(w.size for w in weights.values())


def test_quantised_weights_equal_those_of_transformers(tmp_path, folder):
    weights = random_weights()
    path = write_gguf(tmp_path / "x.gguf", weights, quantised=True)
    convert_gguf(path, folder)
    found, theirs = load_file(folder / "model.safetensors"), transformers_reading(path, folder)
    assert set(found) == set(theirs)
    for name in found:
        assert torch.equal(found[name], theirs[name].to(torch.bfloat16))
        assert torch.allclose(found[name].float(), torch.from_numpy(weights[name]), atol=0.25)


@pytest.mark.parametrize("num_heads", [HEADS, KV_HEADS, 1])
def test_unpermuting_undoes_llama_cpps_order(num_heads):
    weight = np.arange(HIDDEN * 3).reshape(HIDDEN, 3)
    stored = tiny_gguf.permute(weight, num_heads)
    assert np.array_equal(unpermute_for_rope(stored, num_heads), weight)
    # Row 1 of a head's second half is stored as its fourth row: pairs are neighbours there.
    half = HIDDEN // num_heads // 2
    assert np.array_equal(stored[3], weight[half + 1])


def test_the_config_is_read_by_both_sides(tmp_path, folder):
    convert_gguf(write_gguf(tmp_path / "x.gguf", random_weights()), folder)
    assert ModelConfig.from_dir(folder) == ModelConfig(
        vocab_size=len(tiny_gguf.TOKENS), hidden_size=HIDDEN, num_layers=2, num_heads=HEADS,
        num_kv_heads=KV_HEADS, head_dim=HIDDEN // HEADS, intermediate_size=96, rms_norm_eps=1e-5,
        max_position_embeddings=128, tie_word_embeddings=True, dtype="bfloat16", bos_token_id=1,
        eos_token_ids=(2,), rope=RopeConfig(100000.0),
    )  # fmt: skip
    model, problems = LlamaForCausalLM.from_pretrained(folder, output_loading_info=True)
    assert not problems["missing_keys"]
    assert not problems["unexpected_keys"]
    assert model.config.rope_parameters["rope_theta"] == 100000.0


def test_the_tokenizer_takes_digits_alone_and_merges_the_rest(tmp_path, folder):
    convert_gguf(write_gguf(tmp_path / "x.gguf", random_weights()), folder)
    tokenizer = Tokenizer.from_dir(folder)
    pieces = [tokenizer.token_text(i) for i in tokenizer.encode("hell  12é<|im_end|>")]
    # SmolLM's rule takes the digits out first, so that the two spaces before them stay together.
    assert pieces == ["he", "ll", "  ", "1", "2", "\\xc3", "\\xa9", "<|im_end|>"]
    assert tokenizer.is_special(0)
    assert tokenizer.eos_token_id == 2
    assert tokenizer.apply_chat_template([{"role": "user", "content": "he"}]) == (
        "<|im_start|>user\nhe"
    )
    theirs = AutoTokenizer.from_pretrained(folder)
    assert theirs("hell  12é<|im_end|>")["input_ids"] == tokenizer.encode("hell  12é<|im_end|>")
    assert (theirs.eos_token, theirs.pad_token) == ("<|im_end|>", "<|im_end|>")


def test_a_file_cut_anywhere_is_an_error_of_ours(tmp_path, folder):
    content = write_gguf(tmp_path / "x.gguf", random_weights(), quantised=True).read_bytes()
    cut = tmp_path / "cut.gguf"
    for length in [*range(0, 64, 7), *range(64, len(content), len(content) // 40)]:
        cut.write_bytes(content[:length])
        with pytest.raises(ModelError, match=r"cut\.gguf"):
            convert_gguf(cut, folder)
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"architecture": "gemma"}, "holds a gemma"),
        ({"pre": "gpt-2"}, "'gpt-2'"),
        ({"extra": {"rope_freqs.weight": np.ones(4, dtype=np.float32)}}, "rope_freqs"),
        ({"extra": {"blk.0.attn_q.bias": np.ones(64, dtype=np.float32)}}, r"attn_q\.bias"),
    ],
)
def test_what_is_no_plain_llama_is_refused_by_name(options, said, tmp_path, folder):
    path = write_gguf(tmp_path / "x.gguf", random_weights(), **options)
    with pytest.raises(ModelError, match=said):
        convert_gguf(path, folder)


def test_without_the_gguf_package_the_fix_is_named(tmp_path, folder, monkeypatch):
    path = write_gguf(tmp_path / "x.gguf", random_weights())
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(ModelError, match="pip install gguf"):
        convert_gguf(path, folder)


def test_generation_config_ends_where_the_config_does(tmp_path, folder):
    convert_gguf(write_gguf(tmp_path / "x.gguf", random_weights()), folder)
    found = json.loads((folder / "generation_config.json").read_text())
    assert found == {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 2}
