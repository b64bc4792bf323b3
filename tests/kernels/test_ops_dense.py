"""Embedding, norms, RoPE, SwiGLU, softmax, matrix products: each version against float64.

Shapes: 1, odd, a whole number of packs and warps, and longer than a block's 1,024 threads. Every
version meets every type and every kind of width; not every product of them.
"""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from ops_harness import (
    DTYPES,
    assert_close,
    by_name,
    kernel_and_twin,
    randn,
    run_checked,
)

from tinyvllm_lab.model.config import RopeConfig
from tinyvllm_lab.model.layers import inverse_frequencies, rope_tables

pytestmark = pytest.mark.needs("cxx")
each_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=by_name)

ROWS_AND_WIDTHS = [(1, 1), (3, 33), (2, 256), (2, 1027), (1, 8204)]
each_row_shape = pytest.mark.parametrize("shape", ROWS_AND_WIDTHS, ids=by_name)


def versions(*names: str):
    """The lower rungs by name, and the top one (None), for which the twin is compared too."""
    return pytest.mark.parametrize("version", [*names, None])


# ---- embedding ----------------------------------------------------------------------------------
@each_dtype
@versions("naive", "row")
@pytest.mark.parametrize("dim", [1, 33, 256, 1028])
def test_embedding_copies_rows(dim, version, dtype):
    table = randn(50, dim, dtype=dtype)
    ids = torch.tensor([3, 49, 0, 3, -1, 50])
    for embed in kernel_and_twin("embedding", version):
        out = embed(ids, table)
        assert torch.equal(out[:4], table[ids[:4]])
        assert torch.equal(out[4:], torch.zeros(2, dim, dtype=dtype))  # ids outside the table


# ---- RMSNorm ------------------------------------------------------------------------------------
def rms_norm_oracle(x, weight, eps):
    x, weight = x.double(), weight.double()
    return x / (x.square().mean(dim=-1, keepdim=True) + eps).sqrt() * weight


@each_dtype
@versions("naive", "tree", "warp")
@each_row_shape
def test_rms_norm(shape, version, dtype):
    x, weight = randn(*shape, dtype=dtype), randn(shape[1], dtype=dtype, seed=1)
    for norm in kernel_and_twin("rms_norm", version):
        assert_close(norm(x, weight, 1e-5), rms_norm_oracle(x, weight, 1e-5))


@each_dtype
@each_row_shape
def test_add_rms_norm_adds_in_place_and_norms_what_it_stored(shape, dtype):
    x, weight = randn(*shape, dtype=dtype), randn(shape[1], dtype=dtype, seed=1)
    for norm in kernel_and_twin("add_rms_norm"):
        residual = randn(*shape, dtype=dtype, seed=2)
        total = (x.double() + residual.double()).to(dtype)
        out, kept = norm(x, residual, weight, 1e-5)
        assert kept is residual
        assert torch.equal(residual, total)
        assert_close(out, rms_norm_oracle(total, weight, 1e-5))


def test_rms_norm_of_odd_addresses_and_more_dimensions():
    x = randn(2 * 3 * 40 + 1)[1:].view(2, 3, 40)  # no row starts at a multiple of 16 bytes
    weight = randn(41)[1:]
    assert_close(run_checked("rms_norm", x, weight, 1e-5), rms_norm_oracle(x, weight, 1e-5))


@settings(max_examples=15)
@given(rows=st.integers(1, 5), width=st.integers(1, 300), dtype=st.sampled_from(DTYPES))
def test_rms_norm_of_any_shape(rows, width, dtype):
    x, weight = randn(rows, width, dtype=dtype), randn(width, dtype=dtype, seed=1)
    assert_close(run_checked("rms_norm", x, weight, 1e-6), rms_norm_oracle(x, weight, 1e-6))


# ---- RoPE ---------------------------------------------------------------------------------------
LLAMA3 = RopeConfig(
    rope_type="llama3",
    theta=500_000.0,
    factor=32.0,
    low_freq_factor=1.0,
    high_freq_factor=4.0,
    original_max_position_embeddings=8192,
)


def rope_oracle(x, cos, sin):
    """Each pair (i, i + head_dim / 2) is a complex number, turned by its angle."""
    a, b = x.double().chunk(2, dim=-1)
    turned = torch.complex(a, b) * torch.complex(cos.double(), sin.double())[:, None]
    return torch.cat((turned.real, turned.imag), dim=-1)


@each_dtype
@versions("naive", "fused")
@pytest.mark.parametrize(
    "heads", [(1, 1, 32), (4, 4, 64), (4, 1, 128), (8, 1, 64), (3, 1, 6)], ids=by_name
)
def test_rope_turns_queries_and_keys_by_llama3_angles(heads, version, dtype):
    q_heads, k_heads, head_dim = heads
    positions = torch.tensor([0, 1, 700, 8191, 5])
    cos, sin = rope_tables(torch.arange(8192), inverse_frequencies(head_dim, LLAMA3))
    for rope in kernel_and_twin("rope", version):
        q, k = randn(5, q_heads, head_dim, dtype=dtype), randn(5, k_heads, head_dim, dtype=dtype)
        wanted = [rope_oracle(x, cos[positions], sin[positions]) for x in (q, k)]
        turned_q, turned_k = rope(q, k, cos, sin, positions)
        assert turned_q is q
        assert turned_k is k
        # A small result of two large products keeps their rounding, hence the larger atol.
        assert_close(q, wanted[0], atol=2e-5)
        assert_close(k, wanted[1], atol=2e-5)


@versions("naive", "fused")
def test_rope_without_positions_takes_row_i_for_token_i(version):
    cos, sin = rope_tables(torch.tensor([9, 2, 4]), inverse_frequencies(32, LLAMA3))
    for rope in kernel_and_twin("rope", version):
        q, k = randn(3, 2, 32), randn(3, 1, 32)
        wanted = rope_oracle(q, cos, sin), rope_oracle(k, cos, sin)
        rope(q, k, cos, sin)
        assert_close(q, wanted[0])
        assert_close(k, wanted[1])


# ---- SwiGLU -------------------------------------------------------------------------------------
@each_dtype
@versions("naive", "fused")
@pytest.mark.parametrize("shape", [(1, 1), (3, 33), (1, 1024), (5, 1027)], ids=by_name)
def test_silu_mul(shape, version, dtype):
    gate, up = 3 * randn(*shape, dtype=dtype), randn(*shape, dtype=dtype, seed=1)
    wanted = gate.double() * torch.sigmoid(gate.double()) * up.double()
    for silu_mul in kernel_and_twin("silu_mul", version):
        # The naive pair of kernels rounds its intermediate result to bfloat16 as well.
        assert_close(silu_mul(gate, up), wanted, **({"rtol": 2**-7} if version == "naive" else {}))


def test_silu_mul_of_huge_gates_is_finite():
    gate = torch.tensor([-200.0, -88.8, 0.0, 88.8, 200.0])
    wanted = torch.tensor([0.0, 0.0, 0.0, 88.8, 200.0], dtype=torch.float64)
    assert_close(run_checked("silu_mul", gate, torch.ones(5)), wanted)


# ---- softmax ------------------------------------------------------------------------------------
@each_dtype
@versions("naive", "tree")
@each_row_shape
def test_softmax(shape, version, dtype):
    x = 5 * randn(*shape, dtype=dtype)
    for softmax in kernel_and_twin("softmax", version):
        assert_close(softmax(x), x.double().softmax(dim=-1))


@versions("naive", "tree")
def test_softmax_of_extreme_and_masked_rows(version):
    x = torch.tensor([[1e4, 1e4, -1e4], [-torch.inf, 0.0, -torch.inf], [-3e38, -3e38, -torch.inf]])
    for softmax in kernel_and_twin("softmax", version):
        assert_close(softmax(x), x.double().softmax(dim=-1))


# ---- matrix products ----------------------------------------------------------------------------
@each_dtype
@versions("naive", "tiled")
@pytest.mark.parametrize(
    "sizes", [(1, 1, 1), (5, 17, 33), (16, 64, 48), (70, 67, 130), (2, 3, 1100)], ids=by_name
)
def test_matmul(sizes, version, dtype):
    m, n, k = sizes
    a, weight = randn(m, k, dtype=dtype), (randn(n, k, seed=1) / k**0.5).to(dtype)
    for matmul in kernel_and_twin("matmul", version):
        assert_close(matmul(a, weight), a.double() @ weight.double().T)


@each_dtype
@versions("naive", "warp")
@pytest.mark.parametrize("sizes", [(1, 1, 1), (1, 33, 31), (2, 5, 256), (1, 3, 4100)], ids=by_name)
def test_gemv(sizes, version, dtype):
    rows, n, k = sizes
    x, weight = randn(rows, k, dtype=dtype), (randn(n, k, seed=1) / k**0.5).to(dtype)
    for gemv in kernel_and_twin("gemv", version):
        assert_close(gemv(x, weight), x.double() @ weight.double().T)


# ---- nothing to do ------------------------------------------------------------------------------
def test_empty_tensors_launch_nothing():
    none, some = torch.empty(0, 8), torch.empty(3, 0)
    weight = torch.ones(8)
    assert run_checked("embedding", torch.empty(0, dtype=torch.int64), none).shape == (0, 8)
    assert run_checked("rms_norm", none, weight, 1e-5).shape == (0, 8)
    assert run_checked("add_rms_norm", none, none.clone(), weight, 1e-5)[0].shape == (0, 8)
    assert run_checked("softmax", some).shape == (3, 0)
    assert run_checked("silu_mul", some, some).shape == (3, 0)
    assert run_checked("matmul", none, torch.empty(4, 8)).shape == (0, 4)
    assert run_checked("gemv", none, torch.empty(4, 8)).shape == (0, 4)
    q, k = torch.empty(0, 2, 8), torch.empty(0, 1, 8)
    assert run_checked("rope", q, k, torch.empty(0, 4), torch.empty(0, 4))[0].shape == q.shape


@versions("naive", "tiled")
def test_an_empty_inner_dimension_gives_zeros(version):
    for matmul in kernel_and_twin("matmul", version):
        assert torch.equal(matmul(torch.empty(2, 0), torch.empty(3, 0)), torch.zeros(2, 3))
