"""The forward pass against transformers' `LlamaForCausalLM`, on random models of every shape."""

import json

import pytest
import torch
from llama_oracle import ours
from llama_oracle import random_hf_model as hf
from llama_shapes import LLAMA3_ROPE, LLAMA32_1B, LLAMA32_3B, SMALL, SMOLLM2_135M
from safetensors.torch import load_file, save_file
from transformers import LlamaForCausalLM

from tinyvllm_lab.errors import ConfigError, ModelError, SafetensorsError
from tinyvllm_lab.model.config import ModelConfig
from tinyvllm_lab.model.layers import CausalAttention, fused_causal_attention, rms_norm
from tinyvllm_lab.model.llama import LlamaModel, TorchOps
from tinyvllm_lab.model.weights import weight_shapes
from tinyvllm_lab.paths import assets_dir

F32_TOLERANCE = 1e-4
# Logits here are about N(0, 1). bfloat16 has 8 significant bits, so one rounding of a logit of 4 is
# 0.016 off; theirs and ours round at different places (RoPE and softmax: float32 here).
BF16_TOLERANCE = 0.1
TINY = assets_dir() / "models" / "tiny"

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _no_grad():
    with torch.no_grad():
        yield


def tokens(model: LlamaModel, count: int, first_position: int = 0):
    generator = torch.Generator().manual_seed(count)
    token_ids = torch.randint(0, model.config.vocab_size, (count,), generator=generator)
    return token_ids, torch.arange(first_position, first_position + count)


def their_logits(hf_model, token_ids, positions):
    out = hf_model(token_ids[None], position_ids=positions[None], use_cache=False)
    return out.logits[0].float()


def compare(hf_model, count=12, first_position=0, tolerance=F32_TOLERANCE):
    model = ours(hf_model)
    token_ids, positions = tokens(model, count, first_position)
    logits = model.forward(token_ids, positions, CausalAttention([count]))
    theirs = their_logits(hf_model, token_ids, positions)
    assert logits.dtype == torch.float32
    assert theirs.std() > 0.5, "the oracle's logits must not be near zero"
    torch.testing.assert_close(logits, theirs, atol=tolerance, rtol=0)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({}, id="gqa-3:1"),
        pytest.param({"num_key_value_heads": 6}, id="mha"),
        pytest.param({"num_key_value_heads": 1}, id="mqa"),
        pytest.param({"tie_word_embeddings": False}, id="untied"),
        pytest.param({"head_dim": 16}, id="wide-heads"),
        pytest.param({"head_dim": None}, id="head-dim-absent"),
        pytest.param({"rope_scaling": {"rope_type": "linear", "factor": 4.0}}, id="rope-linear"),
        pytest.param({"rope_scaling": LLAMA3_ROPE}, id="rope-llama3"),
        pytest.param({"rms_norm_eps": 0.1}, id="large-eps"),
    ],
)
@pytest.mark.parametrize("first_position", [0, 9000, 30000])
def test_small_models_equal_transformers(change, first_position):
    compare(hf(SMALL | change), 40, first_position)


@pytest.mark.parametrize(
    ("config", "layers"),
    [
        pytest.param(LLAMA32_1B, 2, id="llama-3.2-1b"),
        pytest.param(LLAMA32_3B, 1, id="llama-3.2-3b"),
        pytest.param(SMOLLM2_135M, 4, id="smollm2-135m"),
    ],
)
def test_exact_shapes_equal_transformers_in_f32_and_bf16(config, layers):
    hf_model = hf(config | {"num_hidden_layers": layers})
    compare(hf_model)
    if config["max_position_embeddings"] > 8192:
        compare(hf_model, first_position=100_000)
    _compare_bf16(hf_model)


def _compare_bf16(hf_model):
    token_ids, positions = tokens(ours(hf_model), 12)
    exact = their_logits(hf_model, token_ids, positions)
    theirs = their_logits(hf_model.to(torch.bfloat16), token_ids, positions)
    model = ours(hf_model)
    logits = model.forward(token_ids, positions, CausalAttention([12], fused_causal_attention))
    torch.testing.assert_close(logits, theirs, atol=BF16_TOLERANCE, rtol=0)
    best, chosen = theirs.max(dim=-1).values, logits.argmax(dim=-1, keepdim=True)
    assert (best - theirs.gather(1, chosen)[:, 0]).max() <= BF16_TOLERANCE
    # Not only near theirs: as near to the truth as theirs.
    assert (logits - exact).abs().mean() <= 1.1 * (theirs - exact).abs().mean()


def test_a_ragged_batch_is_its_sequences_one_by_one():
    model = ours(hf(SMALL))
    lens = [5, 1, 9]
    token_ids = torch.arange(15)
    positions = torch.cat([torch.arange(n) for n in lens])
    together = model.forward(token_ids, positions, CausalAttention(lens))
    parts = (t.split(lens) for t in (token_ids, positions, together))
    for ids, where, logits in zip(*parts, strict=True):
        alone = model.forward(ids, where, CausalAttention([len(ids)]))
        torch.testing.assert_close(logits, alone, atol=1e-5, rtol=0)


def test_logits_are_computed_for_the_wanted_rows_only():
    model = ours(hf(SMALL))
    token_ids, positions = tokens(model, 10)
    every = model.forward(token_ids, positions, CausalAttention([10]))
    rows = torch.tensor([9, 2])
    some = model.forward(token_ids, positions, CausalAttention([10]), rows)
    torch.testing.assert_close(some, every[rows], atol=1e-5, rtol=0)
    none = model.forward(token_ids, positions, CausalAttention([10]), rows[:0])
    assert none.shape == (0, model.config.vocab_size)


@pytest.mark.parametrize("form", ["transformers-4", "transformers-5"])
@pytest.mark.parametrize("rope_scaling", [None, LLAMA3_ROPE, {"type": "linear", "factor": 2.0}])
def test_a_folder_loads_in_both_config_forms(tmp_path, form, rope_scaling):
    config = SMALL | {"rope_scaling": rope_scaling}
    hf_model = hf(config)
    hf_model.save_pretrained(tmp_path, max_shard_size="20KB")
    assert (tmp_path / "model.safetensors.index.json").exists()
    if form == "transformers-4":
        (tmp_path / "config.json").write_text(json.dumps(config))
    model = LlamaModel.from_dir(tmp_path)
    token_ids, positions = tokens(model, 20, first_position=9000)
    logits = model.forward(token_ids, positions, CausalAttention([20]))
    theirs = their_logits(hf_model, token_ids, positions)
    torch.testing.assert_close(logits, theirs, atol=F32_TOLERANCE, rtol=0)


def test_the_shipped_model_equals_transformers():
    hf_model = LlamaForCausalLM.from_pretrained(TINY, dtype=torch.float32).eval()
    model = LlamaModel.from_dir(TINY, dtype="float32")
    token_ids, positions = tokens(model, 100)
    logits = model.forward(token_ids, positions, CausalAttention([100]))
    theirs = their_logits(hf_model, token_ids, positions)
    torch.testing.assert_close(logits, theirs, atol=F32_TOLERANCE, rtol=0)


def test_weights_stay_in_the_mapped_file_unless_another_dtype_is_asked_for():
    stored = load_file(TINY / "model.safetensors")
    mapped = LlamaModel.from_dir(TINY)
    assert mapped.dtype == torch.bfloat16
    assert mapped.lm_head is mapped.embed_tokens
    assert torch.equal(mapped.layers[3].up_proj, stored["model.layers.3.mlp.up_proj.weight"])
    converted = LlamaModel.from_dir(TINY, dtype=torch.float32)
    assert converted.dtype == torch.float32
    assert torch.equal(converted.layers[3].up_proj, mapped.layers[3].up_proj.float())


def test_models_of_the_same_seed_are_equal():
    config = ModelConfig.from_dicts(SMALL)
    a, b, c = (LlamaModel.random(config, seed) for seed in (1, 1, 2))
    assert torch.equal(a.layers[0].q_proj, b.layers[0].q_proj)
    assert not torch.equal(a.layers[0].q_proj, c.layers[0].q_proj)


def test_an_own_kernel_replaces_an_operation():
    model = ours(hf(SMALL))
    calls = []

    def my_rms_norm(x, weight, eps):
        calls.append(tuple(x.shape))
        return rms_norm(x, weight, eps)

    replaced = model.with_ops(TorchOps().with_kernels({"rms_norm": my_rms_norm}))
    token_ids, positions = tokens(model, 6)
    logits = replaced.forward(token_ids, positions, CausalAttention([6]), torch.tensor([5]))
    assert calls == [(6, 48)] * 6 + [(1, 48)]
    again = model.forward(token_ids, positions, CausalAttention([6]), torch.tensor([5]))
    assert torch.equal(logits, again)
    assert len(calls) == 7, "the model itself keeps its own operations"


@pytest.mark.parametrize("kernels", [{"softmax": rms_norm}, {"rms_norm": "fast"}])
def test_an_unknown_operation_or_no_function_is_refused(kernels):
    with pytest.raises(ConfigError, match=next(iter(kernels))):
        TorchOps().with_kernels(kernels)


def test_attention_for_another_number_of_tokens_is_refused():
    model = ours(hf(SMALL))
    token_ids, positions = tokens(model, 6)
    with pytest.raises(ModelError, match="5 tokens, and got 6"):
        model.forward(token_ids, positions, CausalAttention([2, 3]))


class TestRefusals:
    @pytest.fixture
    def folder(self, tmp_path):
        (tmp_path / "config.json").write_text(json.dumps(SMALL))
        model = LlamaModel.random(ModelConfig.from_dicts(SMALL))
        self.weights = dict(
            zip(weight_shapes(model.config), self._tensors(model), strict=True)
        )  # fmt: skip
        return tmp_path

    def _tensors(self, model):
        yield model.embed_tokens.clone()
        for layer in model.layers:
            yield from (getattr(layer, name).clone() for name in layer.__slots__)
        yield model.norm.clone()

    def load(self, folder):
        save_file(self.weights, folder / "model.safetensors")
        return LlamaModel.from_dir(folder)

    def test_the_weights_as_they_are_load(self, folder):
        assert self.load(folder).dtype == torch.float32

    def test_a_missing_tensor_is_named(self, folder):
        del self.weights["model.layers.1.mlp.up_proj.weight"]
        with pytest.raises(ModelError, match=r"lacks the tensor 'model\.layers\.1\.mlp\.up_proj"):
            self.load(folder)

    def test_a_tensor_that_would_be_ignored_is_named(self, folder):
        self.weights["model.layers.0.self_attn.q_proj.bias"] = torch.zeros(48)
        with pytest.raises(ModelError, match=r"does not use: 'model\.layers\.0\.self_attn\.q_proj"):
            self.load(folder)

    def test_what_follows_from_the_rest_is_ignored(self, folder):
        self.weights["lm_head.weight"] = torch.zeros(97, 48)
        self.weights["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.zeros(4)
        model = self.load(folder)
        assert model.lm_head is model.embed_tokens

    def test_another_shape_is_named(self, folder):
        self.weights["model.norm.weight"] = torch.ones(47)
        with pytest.raises(ModelError, match=r"'model\.norm\.weight' has shape \[47\]"):
            self.load(folder)

    def test_weights_in_integers_are_refused(self, folder):
        self.weights["model.embed_tokens.weight"] = torch.zeros(97, 48, dtype=torch.int8)
        with pytest.raises(ModelError, match="int8"):
            self.load(folder)

    def test_a_folder_without_weights_is_refused(self, folder):
        with pytest.raises(SafetensorsError, match="has no weights"):
            LlamaModel.from_dir(folder)

    def test_mixed_devices_or_dtypes_are_refused(self, folder):
        mixed = self.weights | {"model.norm.weight": torch.ones(48, dtype=torch.bfloat16)}
        with pytest.raises(ModelError, match=r"model\.norm\.weight.*bfloat16"):
            LlamaModel(ModelConfig.from_dicts(SMALL), mixed)
