"""Writing into the paged cache and copying blocks: bit for bit, and nothing else is touched."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from ops_harness import DTYPES, by_name, kernel_and_twin, randn, run_checked

from tinyvllm_lab.errors import KernelError
from tinyvllm_lab.kernels.ops import OPS

pytestmark = pytest.mark.needs("cxx")
each_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=by_name)

# (num_kv_heads, head_dim, block_size); the last two have rows that are no whole packs
SHAPES = [(2, 32, 16), (1, 64, 1), (8, 128, 8), (2, 64, 32), (1, 5, 3), (3, 7, 4)]
each_shape = pytest.mark.parametrize("shape", SHAPES, ids=by_name)


def bits(tensor):
    """Comparable although most of a poisoned cache is NaN."""
    return tensor.view(torch.int32 if tensor.dtype == torch.float32 else torch.int16)


def caches(shape, dtype, num_blocks=9):
    kv_heads, head_dim, block_size = shape
    k_cache = randn(num_blocks, block_size, kv_heads, head_dim, dtype=dtype, seed=5)
    return k_cache, torch.full_like(k_cache, torch.nan)


@each_dtype
@pytest.mark.parametrize("version", ["naive", "row", None])
@each_shape
def test_reshape_and_cache(shape, version, dtype):
    kv_heads, head_dim, block_size = shape
    slots = [4 * block_size, 8 * block_size + block_size - 1, -1, 2, 0]
    k, v = (randn(5, kv_heads, head_dim, dtype=dtype, seed=s) for s in (1, 2))
    for write in kernel_and_twin("reshape_and_cache", version):
        k_cache, v_cache = caches(shape, dtype)
        wanted = k_cache.clone(), v_cache.clone()
        for token, slot in enumerate(slots):
            if slot >= 0:
                wanted[0][slot // block_size, slot % block_size] = k[token]
                wanted[1][slot // block_size, slot % block_size] = v[token]
        write(k, v, k_cache, v_cache, torch.tensor(slots))
        assert torch.equal(bits(k_cache), bits(wanted[0]))
        assert torch.equal(bits(v_cache), bits(wanted[1]))


@each_dtype
@pytest.mark.parametrize("version", ["naive", None])
@each_shape
def test_copy_blocks(shape, version, dtype):
    pairs = torch.tensor([[3, 0], [8, 1], [3, 2]])  # one source may have several targets
    for copy in kernel_and_twin("copy_blocks", version):
        k_cache, v_cache = caches(shape, dtype)
        v_cache[3] = 1.5
        wanted = k_cache.clone(), v_cache.clone()
        for cache in wanted:
            for source, target in pairs.tolist():
                cache[target] = cache[source]
        copy(k_cache, v_cache, pairs)
        assert torch.equal(bits(k_cache), bits(wanted[0]))
        assert torch.equal(bits(v_cache), bits(wanted[1]))


@settings(max_examples=20)
@given(data=st.data(), dtype=st.sampled_from(DTYPES))
def test_what_was_written_is_read_back(data, dtype):
    shape = data.draw(st.tuples(st.integers(1, 4), st.integers(1, 40), st.integers(1, 33)))
    kv_heads, head_dim, block_size = shape
    slots = data.draw(st.lists(st.integers(0, 9 * block_size - 1), unique=True, max_size=40))
    k_cache, v_cache = caches(shape, dtype)
    k, v = (randn(len(slots), kv_heads, head_dim, dtype=dtype, seed=s) for s in (1, 2))
    run_checked("reshape_and_cache", k, v, k_cache, v_cache, torch.tensor(slots).long())
    assert torch.equal(k_cache.flatten(0, 1)[slots], k)
    assert torch.equal(v_cache.flatten(0, 1)[slots], v)


def test_no_tokens_and_no_pairs_launch_nothing():
    k_cache, v_cache = caches((2, 32, 16), torch.float32)
    none, no_slots = torch.empty(0, 2, 32), torch.empty(0, dtype=torch.int64)
    work = OPS["reshape_and_cache"].work(none, none, k_cache, v_cache, no_slots)
    assert work.launches == ()
    no_pairs = torch.empty(0, 2, dtype=torch.int64)
    assert OPS["copy_blocks"].work(k_cache, v_cache, no_pairs).launches == ()


def test_wrong_tensors_are_refused_by_name():
    k_cache, v_cache = caches((2, 32, 16), torch.float32)
    k, slots = torch.zeros(3, 2, 32), torch.zeros(3, dtype=torch.int64)
    write, copy = OPS["reshape_and_cache"].work, OPS["copy_blocks"].work
    with pytest.raises(KernelError, match="v has shape"):
        write(k, k[:2], k_cache, v_cache, slots)
    with pytest.raises(KernelError, match=r"slot_mapping is .*int32"):
        write(k, k, k_cache, v_cache, slots.int())
    with pytest.raises(KernelError, match="bfloat16"):
        write(k, k, k_cache, v_cache.bfloat16(), slots)
    with pytest.raises(KernelError, match="pairs has shape"):
        copy(k_cache, v_cache, torch.zeros(4, 3, dtype=torch.int64))
