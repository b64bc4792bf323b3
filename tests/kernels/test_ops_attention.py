"""Paged attention, decode and prefill: each version against float64, over poisoned caches.

Every GQA group size meets every head size, block size, version and type, on short ragged batches;
contexts of 4,097 tokens are tried with one shape for every version and type.
"""

from itertools import product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from ops_harness import DTYPES, assert_close, by_name, kernel_and_twin, run_checked
from paged_cases import attention_oracle, paged

from tinyvllm_lab.errors import KernelError
from tinyvllm_lab.kernels.ops import OPS

pytestmark = pytest.mark.needs("cxx")
each_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=by_name)
each_version = pytest.mark.parametrize("version", ["naive", "warp", None])

# (query heads per KV head, head_dim, block_size)
SHAPES = list(product([1, 4, 8], [32, 64, 128], [1, 8, 16, 32]))
each_shape = pytest.mark.parametrize("shape", SHAPES, ids=by_name)


def decode(attend, case, **options):
    tensors = (case.q, case.k_cache, case.v_cache, case.block_table, case.seq_lens)
    return attend(*tensors, case.scale, **options)


def starts_of(query_lens):
    return torch.tensor([0, *query_lens]).cumsum(0).int()


def prefill(attend, case, query_lens):
    tensors = (case.q, case.k_cache, case.v_cache, case.block_table, case.seq_lens)
    return attend(*tensors, starts_of(query_lens), case.scale)


# ---- decode -------------------------------------------------------------------------------------
@each_dtype
@each_version
@each_shape
def test_decode(shape, version, dtype):
    case = paged([1, 16, 0, 37, 130], *shape, dtype)
    wanted = attention_oracle(case, [1] * 5)  # of the empty sequence: zeros
    for attend in kernel_and_twin("paged_attention", version):
        assert_close(decode(attend, case), wanted)


@each_dtype
@each_version
def test_decode_of_long_ragged_contexts(version, dtype):
    case = paged([4097, 512, 1, 1025, 513], 4, 64, 16, dtype)
    wanted = attention_oracle(case, [1] * 5)
    for attend in kernel_and_twin("paged_attention", version):
        assert_close(decode(attend, case), wanted)


@each_dtype
@pytest.mark.parametrize("partition_size", [1, 7, 16, 129, 4096])
def test_partitions_of_any_size_merge_to_the_same(partition_size, dtype):
    case = paged([130, 1, 0, 16, 129], 4, 64, 16, dtype)
    wanted = attention_oracle(case, [1] * 5)
    for max_seq_len in 130, None:
        options = {"partition_size": partition_size, "max_seq_len": max_seq_len}
        out = decode(lambda *args, o=options: run_checked("paged_attention", *args, **o), case)
        assert_close(out, wanted)


def test_more_query_heads_than_a_block_has_warps():
    case = paged([70, 3], 20, 32, 8, torch.float32, kv_heads=1)
    for attend in kernel_and_twin("paged_attention"):
        assert_close(decode(attend, case), attention_oracle(case, [1, 1]))


def test_a_cache_at_an_odd_address_is_read_without_packs():
    case = paged([40, 9], 4, 64, 16, torch.float32)
    for name in "k_cache", "v_cache":
        cache = getattr(case, name)
        shifted = torch.empty(cache.numel() + 1)[1:].view(cache.shape)
        setattr(case, name, shifted.copy_(cache))
    for op, run in (
        ("paged_attention", decode),
        ("prefill_attention", lambda a, c: prefill(a, c, [1, 1])),
    ):
        assert_close(run(kernel_and_twin(op)[0], case), attention_oracle(case, [1, 1]))


@settings(max_examples=15)
@given(
    lengths=st.lists(st.integers(0, 90), min_size=1, max_size=4).filter(any),
    group=st.sampled_from([1, 2, 3, 5]),
    block_size=st.integers(1, 40),
    dtype=st.sampled_from(DTYPES),
    partition_size=st.sampled_from([8, 33, 512]),
)
def test_decode_of_any_batch(lengths, group, block_size, dtype, partition_size):
    case = paged(lengths, group, 32, block_size, dtype, kv_heads=1)
    out = decode(
        lambda *args: run_checked("paged_attention", *args, partition_size=partition_size), case
    )
    assert_close(out, attention_oracle(case, [1] * len(lengths)))


# ---- prefill ------------------------------------------------------------------------------------
# (queries, context with them): a first chunk, later chunks, a decode, nothing to do, exact tiles
CHUNKS = [(5, 5), (7, 40), (1, 33), (0, 10), (32, 64), (1, 1), (35, 35)]


@each_dtype
@each_version
@each_shape
def test_prefill_of_a_ragged_batch(shape, version, dtype):
    query_lens = [n for n, _ in CHUNKS]
    case = paged([length for _, length in CHUNKS], *shape, dtype, sum(query_lens), kv_heads=1)
    wanted = attention_oracle(case, query_lens)
    for attend in kernel_and_twin("prefill_attention", version):
        assert_close(prefill(attend, case, query_lens), wanted)


@each_dtype
@each_version
def test_prefill_of_chunks_of_a_long_context(version, dtype):
    query_lens = [3, 33, 1, 100]
    case = paged([4097, 1057, 512, 100], 4, 64, 16, dtype, sum(query_lens), kv_heads=1)
    wanted = attention_oracle(case, query_lens)
    for attend in kernel_and_twin("prefill_attention", version):
        assert_close(prefill(attend, case, query_lens), wanted)


def test_prefill_of_one_query_each_is_decode():
    case = paged([130, 1, 16, 77], 4, 64, 16, torch.float32)
    by_prefill = prefill(kernel_and_twin("prefill_attention")[0], case, [1] * 4)
    by_decode = decode(kernel_and_twin("paged_attention")[0], case)
    torch.testing.assert_close(by_prefill, by_decode, rtol=1e-5, atol=1e-6)


@settings(max_examples=15)
@given(
    chunks=st.lists(st.tuples(st.integers(0, 70), st.integers(0, 50)), min_size=1, max_size=4),
    block_size=st.integers(1, 40),
    dtype=st.sampled_from(DTYPES),
)
def test_prefill_of_any_batch(chunks, block_size, dtype):
    query_lens = [n for n, _ in chunks]
    lengths = [n + context for n, context in chunks]
    if not sum(query_lens):
        return
    case = paged(lengths, 2, 32, block_size, dtype, sum(query_lens), kv_heads=1)
    out = prefill(kernel_and_twin("prefill_attention")[0], case, query_lens)
    assert_close(out, attention_oracle(case, query_lens))


# ---- what cannot be computed --------------------------------------------------------------------
def test_no_sequences_launch_nothing():
    case = paged([3], 1, 32, 8, torch.float32)
    case.q, case.block_table, case.seq_lens = case.q[:0], case.block_table[:0], case.seq_lens[:0]
    assert decode(OPS["paged_attention"].work, case).launches == ()
    assert prefill(OPS["prefill_attention"].work, case, []).launches == ()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda c: setattr(c, "q", c.q[..., :24].contiguous()), "head_dim"),
        (lambda c: setattr(c, "q", c.q[:, :3].contiguous()), "query heads"),
        (lambda c: setattr(c, "seq_lens", c.seq_lens.long()), "int64"),
        (lambda c: setattr(c, "block_table", c.block_table[:1]), "num_seqs"),
        (lambda c: setattr(c, "q", c.q.double()), "float64"),
    ],
)
def test_wrong_tensors_are_refused_by_name(change, words):
    case = paged([3, 4], 2, 32, 8, torch.float32)
    change(case)
    with pytest.raises(KernelError, match=words):
        decode(OPS["paged_attention"].work, case)


def test_a_head_size_without_an_instance_is_refused():
    case = paged([3], 1, 48, 8, torch.float32)
    with pytest.raises(KernelError, match="head_dim is 48"):
        decode(OPS["paged_attention"].work, case)
