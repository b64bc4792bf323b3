"""The parts of a layer against transformers' own functions and against float64, loop by loop."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

from tinyvllm_lab.model.config import RopeConfig
from tinyvllm_lab.model.layers import (
    apply_rope,
    batched_decode_attention,
    causal_attention,
    causal_mask,
    fused_causal_attention,
    inverse_frequencies,
    rms_norm,
    rope_tables,
    silu_mul,
)

torch.set_num_threads(1)


def random(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def attention_in_loops(q, k, v):
    """Every query, head and key one by one, in float64."""
    queries, heads, head_dim = q.shape
    context, kv_heads, _ = k.shape
    q, k, v = q.double(), k.double(), v.double()
    out = torch.zeros(queries, heads, head_dim, dtype=torch.float64)
    for i in range(queries):
        visible = context - queries + i + 1
        for head in range(heads):
            kv_head = head // (heads // kv_heads)
            scores = [float(q[i, head] @ k[j, kv_head]) / head_dim**0.5 for j in range(visible)]
            weights = [math.exp(score - max(scores)) for score in scores]
            for j, weight in enumerate(weights):
                out[i, head] += weight / sum(weights) * v[j, kv_head]
    return out


@given(
    queries=st.integers(1, 9),
    before=st.integers(0, 9),
    kv_heads=st.integers(1, 3),
    group=st.integers(1, 4),
)
def test_attention_equals_loops_in_float64(queries, before, kv_heads, group):
    q = random(queries, kv_heads * group, 8, seed=1)
    k, v = (random(queries + before, kv_heads, 8, seed=seed) for seed in (2, 3))
    expected = attention_in_loops(q, k, v).float()
    torch.testing.assert_close(causal_attention(q, k, v), expected, atol=1e-5, rtol=0)
    torch.testing.assert_close(fused_causal_attention(q, k, v), expected, atol=1e-5, rtol=0)


@given(st.lists(st.integers(1, 20), min_size=1, max_size=6), st.integers(1, 3))
def test_batched_decode_equals_each_sequence_alone(contexts, group):
    longest = max(contexts)
    q = random(len(contexts), 2 * group, 8, seed=1)
    k, v = (random(len(contexts), longest, 2, 8, seed=seed) for seed in (2, 3))
    is_padding = torch.arange(longest) >= torch.tensor(contexts)[:, None]
    mask = torch.zeros(is_padding.shape).masked_fill(is_padding, -math.inf)
    together = batched_decode_attention(q, k, v, mask)
    for i, context in enumerate(contexts):
        alone = causal_attention(q[i : i + 1], k[i, :context], v[i, :context])
        torch.testing.assert_close(together[i : i + 1], alone, atol=1e-5, rtol=0)


def test_the_mask_hides_the_future_only():
    mask = causal_mask(2, 4, torch.float32)
    assert mask.tolist() == [[0, 0, 0, -math.inf], [0, 0, 0, 0]]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e18])
def test_rms_norm_equals_float64(dtype, scale):
    x, weight = (random(5, 64) * scale).to(dtype), random(64, seed=1).to(dtype)
    x64 = x.double()
    expected = x64 / (x64.square().mean(-1, keepdim=True) + 1e-5).sqrt() * weight.double()
    out = rms_norm(x, weight, 1e-5)
    assert out.dtype == dtype
    tolerance = 1e-5 if dtype is torch.float32 else 2**-7
    torch.testing.assert_close(out.double(), expected, atol=tolerance, rtol=tolerance)


def test_silu_mul_equals_float64():
    gate, up = random(4, 9), random(4, 9, seed=1)
    expected = gate.double() / (1 + (-gate.double()).exp()) * up.double()
    torch.testing.assert_close(silu_mul(gate, up).double(), expected, atol=1e-6, rtol=0)


@pytest.mark.parametrize(
    ("rope", "parameters"),
    [
        (RopeConfig(10000.0), {"rope_type": "default", "rope_theta": 10000.0}),
        (
            RopeConfig(10000.0, "linear", factor=8.0),
            {"rope_type": "linear", "rope_theta": 10000.0, "factor": 8.0},
        ),
        (
            RopeConfig(500000.0, "llama3", 32.0, 1.0, 4.0, 8192),
            {
                "rope_type": "llama3",
                "rope_theta": 500000.0,
                "factor": 32.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 8192,
            },
        ),
    ],
    ids=["none", "linear", "llama3"],
)
@pytest.mark.parametrize("head_dim", [8, 64, 128])
def test_frequencies_equal_transformers(rope, parameters, head_dim):
    config = LlamaConfig(
        head_dim=head_dim, rope_parameters=parameters, max_position_embeddings=131072
    )
    if rope.rope_type == "none":
        expected = 1.0 / (rope.theta ** (torch.arange(0, head_dim, 2) / head_dim))
    else:
        expected, _ = ROPE_INIT_FUNCTIONS[rope.rope_type](config, torch.device("cpu"))
    torch.testing.assert_close(inverse_frequencies(head_dim, rope), expected, atol=0, rtol=1e-6)


def test_llama3_scaling_keeps_fast_pairs_and_slows_the_slowest_by_the_factor():
    rope = RopeConfig(500000.0, "llama3", 32.0, 1.0, 4.0, 8192)
    ratio = inverse_frequencies(64, RopeConfig(500000.0)) / inverse_frequencies(64, rope)
    assert ratio[0] == 1.0
    assert ratio[-1] == 32.0
    assert (ratio.diff() >= 0).all()


def test_turning_equals_transformers():
    q, k = random(7, 4, 16), random(7, 2, 16, seed=1)
    positions = torch.tensor([0, 1, 2, 500, 9000, 50000, 131071])
    cos, sin = rope_tables(positions, inverse_frequencies(16, RopeConfig()))
    both = [torch.cat((table, table), dim=-1) for table in (cos, sin)]
    theirs = apply_rotary_pos_emb(q, k, *both, unsqueeze_dim=1)
    for ours, expected in zip((q, k), theirs, strict=True):
        torch.testing.assert_close(apply_rope(ours, cos, sin), expected, atol=1e-6, rtol=0)


def test_scores_depend_on_distance_only():
    q, k = random(1, 1, 16), random(1, 1, 16, seed=1)
    frequencies = inverse_frequencies(16, RopeConfig())

    def score(query_position, key_position):
        turned = [
            apply_rope(x, *rope_tables(torch.tensor([position]), frequencies))
            for x, position in ((q, query_position), (k, key_position))
        ]
        return float((turned[0] * turned[1]).sum())

    assert score(12, 5) == pytest.approx(score(107, 100), abs=1e-4)
    assert score(12, 5) != pytest.approx(score(12, 6), abs=1e-2)
