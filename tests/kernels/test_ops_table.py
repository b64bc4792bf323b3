"""`op_functions`: the kernels, the twins or a learner's own functions, all called the same way."""

import inspect

import pytest
import torch
from ops_harness import randn

from tinyvllm_lab.errors import KernelError
from tinyvllm_lab.kernels import reference
from tinyvllm_lab.kernels.ops import OPS, KernelRunner, op_functions
from tinyvllm_lab.model.config import ModelConfig, RopeConfig
from tinyvllm_lab.model.layers import CausalAttention
from tinyvllm_lab.model.llama import LlamaModel

ENGINE_OPS = [
    "embedding", "rms_norm", "rope", "silu_mul", "reshape_and_cache", "paged_attention",
    "prefill_attention", "copy_blocks", "argmax", "sample_top_k_top_p",
]  # fmt: skip


def test_every_operation_of_the_engine_has_a_kernel_and_a_twin():
    assert set(ENGINE_OPS) <= set(OPS)
    for name, op in OPS.items():
        assert op.twin is getattr(reference, name)
        work, twin = (inspect.signature(f).parameters.values() for f in (op.work, op.twin))
        assert [p for p in work if p.kind is not p.KEYWORD_ONLY] == list(twin), name


def test_the_twins_are_the_torch_back_end():
    assert op_functions("torch") == {name: op.twin for name, op in OPS.items()}


def test_a_mapping_replaces_some_of_the_twins():
    def mine(gate, up):
        return gate + up

    functions = op_functions({"silu_mul": mine, "rmsnorm": mine})  # "rmsnorm": the file's name
    assert functions.pop("silu_mul") is functions.pop("rms_norm") is mine
    assert functions == {n: op.twin for n, op in OPS.items() if n not in ("silu_mul", "rms_norm")}


@pytest.mark.parametrize(
    ("kernels", "words"),
    [
        ("tpu", "no back end 'tpu'"),
        ({"softmin": print}, "No operation is called 'softmin'"),
        ({"rope": 3}, "kernel for 'rope' is 3"),
    ],
)
def test_unknown_names_are_refused(kernels, words):
    with pytest.raises(KernelError, match=words):
        op_functions(kernels)


@pytest.mark.needs("cxx")
def test_versions_and_errors_reach_the_caller():
    rms_norm = op_functions("cpu")["rms_norm"]
    x, weight = randn(3, 40), randn(40, seed=1)
    torch.testing.assert_close(rms_norm(x, weight, 1e-5, version="tree"), rms_norm(x, weight, 1e-5))
    assert "root mean square" in rms_norm.__doc__
    with pytest.raises(KernelError, match="weight has shape"):
        rms_norm(x, weight[:39], 1e-5)
    with pytest.raises(KernelError, match="x is a list"):
        rms_norm([1.0], weight, 1e-5)
    with pytest.raises(KernelError, match="not contiguous"):
        rms_norm(randn(40, 3).T, weight, 1e-5)


@pytest.mark.needs("cxx")
def test_a_checked_runner_reports_a_bug():
    cos, sin = torch.ones(4, 16), torch.zeros(4, 16)
    rope = KernelRunner("cpu", checked=True).function("rope")
    q, k = randn(2, 2, 32), randn(2, 1, 32)
    rope(q, k, cos, sin, torch.tensor([0, 3]))
    with pytest.raises(KernelError, match="out-of-bounds read"):
        rope(q, k, cos, sin, torch.tensor([0, 4]))  # the tables have rows 0 to 3


# ---- a whole model on the kernels ---------------------------------------------------------------
SMALL = ModelConfig(
    vocab_size=97,
    hidden_size=64,
    intermediate_size=96,
    num_layers=2,
    num_heads=4,
    num_kv_heads=2,
    head_dim=32,
    max_position_embeddings=256,
    rope=RopeConfig(theta=10_000.0),
)


class PagedKernels:
    """An attention backend of one sequence, in blocks 5, 1, 3 and 2 of the paged cache."""

    def __init__(self, ops):
        self.ops, self.block_size, self.cached = ops, 8, 0
        shape = (SMALL.num_layers, 6, self.block_size, SMALL.num_kv_heads, SMALL.head_dim)
        self.key, self.value = torch.full(shape, torch.nan), torch.full(shape, torch.nan)
        self.block_table = torch.tensor([[5, 1, 3, 2]], dtype=torch.int32)

    def attend(self, layer, q, k, v):
        position = torch.arange(self.cached, self.cached + len(q))
        block = self.block_table[0, position // self.block_size].long()
        slots = block * self.block_size + position % self.block_size
        cache = self.key[layer], self.value[layer]
        self.ops["reshape_and_cache"](k, v, *cache, slots)
        seq_lens = torch.tensor([self.cached + len(q)], dtype=torch.int32)
        scale = SMALL.head_dim**-0.5
        if len(q) == 1:
            return self.ops["paged_attention"](q, *cache, self.block_table, seq_lens, scale)
        starts = torch.tensor([0, len(q)], dtype=torch.int32)
        return self.ops["prefill_attention"](q, *cache, self.block_table, seq_lens, starts, scale)


@pytest.mark.needs("cxx")
@torch.no_grad()
def test_a_model_on_kernels_writes_the_same_tokens_as_on_torch():
    torch_model = LlamaModel.random(SMALL, seed=3)
    ops = op_functions("cpu")
    replaced = {name: ops[name] for name in ("embedding", "rms_norm", "rope", "silu_mul")}
    kernel_model = torch_model.with_ops(torch_model.ops.with_kernels(replaced))
    paged, tokens = PagedKernels(ops), [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5]
    chunks = [tokens[:4], tokens[4:]]  # a first chunk, a chunk with context, then decodes
    for _ in range(16):
        for chunk in chunks:
            positions = torch.arange(paged.cached, paged.cached + len(chunk))
            logits = kernel_model.forward(torch.tensor(chunk), positions, paged)
            paged.cached += len(chunk)
        expected = torch_model.forward(
            torch.tensor(tokens), torch.arange(len(tokens)), CausalAttention([len(tokens)])
        )
        torch.testing.assert_close(logits[-1], expected[-1], rtol=1e-4, atol=1e-4)
        token = ops["argmax"](logits[-1:]).item()
        assert token == expected[-1].argmax()
        tokens.append(token)
        chunks = [[token]]
