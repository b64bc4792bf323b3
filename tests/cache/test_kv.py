"""The KV tensors: every copy against the same copies done one by one in Python."""

from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tinyvllm_lab.cache.kv import ContiguousKV, PagedKV

LAYERS, BLOCKS, SIZE, HEADS, DIM = 2, 6, 3, 2, 4


def paged(num_host_blocks=4):
    kv = PagedKV(LAYERS, BLOCKS, SIZE, HEADS, DIM, num_host_blocks=num_host_blocks)
    for i, tensor in enumerate((kv.key, kv.value, kv.host_key, kv.host_value)):
        tensor.copy_(torch.arange(tensor.numel()).view(tensor.shape) + 10_000 * i)
    return kv


def contiguous(num_slots=12):
    kv = ContiguousKV(LAYERS, num_slots, HEADS, DIM)
    for i, tensor in enumerate((kv.key, kv.value)):
        tensor.copy_(torch.arange(tensor.numel()).view(tensor.shape) + 10_000 * i)
    return kv


BLOCK_IDS = st.integers(0, BLOCKS - 1)


@given(st.lists(st.tuples(BLOCK_IDS, BLOCK_IDS), max_size=8))
def test_block_copies_are_as_if_done_one_after_the_other(pairs):
    kv, expected = paged(), paged()
    kv.copy_blocks(pairs)
    for source, target in pairs:
        for tensor in (expected.key, expected.value):
            tensor[:, target] = tensor[:, source].clone()
    assert torch.equal(kv.key, expected.key)
    assert torch.equal(kv.value, expected.value)


@given(st.permutations(range(BLOCKS)), st.permutations(range(4)), st.integers(0, 4))
def test_what_is_swapped_out_comes_back(blocks, hosts, count):
    kv, before = paged(), paged()
    kv.swap_out(list(zip(blocks[:count], hosts[:count], strict=True)))
    kv.key.zero_()
    kv.value.zero_()
    targets = list(reversed(blocks))[:count]
    kv.swap_in(list(zip(hosts[:count], targets, strict=True)))
    for block, target in zip(blocks[:count], targets, strict=True):
        assert torch.equal(kv.key[:, target], before.key[:, block])
        assert torch.equal(kv.value[:, target], before.value[:, block])
    untouched = [block for block in range(BLOCKS) if block not in targets]
    assert not kv.key[:, untouched].any()


MOVES = st.tuples(st.integers(0, 11), st.integers(0, 11), st.integers(1, 12)).filter(
    lambda move: max(move[:2]) + move[2] <= 12
)


@given(st.lists(MOVES, max_size=5))
def test_regions_move_over_each_other_and_themselves(moves):
    kv, expected = contiguous(), contiguous()
    kv.move(moves)
    for old, new, length in moves:
        for tensor in (expected.key, expected.value):
            tensor[:, new : new + length] = tensor[:, old : old + length].clone()
    assert torch.equal(kv.key, expected.key)
    assert torch.equal(kv.value, expected.value)


@pytest.mark.parametrize("kv", [paged(), contiguous(BLOCKS * SIZE)], ids=["paged", "contiguous"])
def test_a_token_is_read_back_from_its_slot(kv):
    slots = torch.tensor([4, 17, 9])
    k, v = torch.randn(3, HEADS, DIM), torch.randn(3, HEADS, DIM)
    other_layer = kv.key[0].clone()
    kv.write(1, slots, k, v)
    keys, values = kv.read(1, slots.flip(0)[None])
    assert keys.shape == (1, 3, HEADS, DIM)
    assert torch.equal(keys[0], k.flip(0))
    assert torch.equal(values[0], v.flip(0))
    assert torch.equal(kv.key[0], other_layer)


def test_slots_follow_the_block_table_and_then_the_null_block():
    holders = [SimpleNamespace(block_table=table) for table in ([5, 2], [1], [4, 3, 2])]
    table = paged().slot_table(holders, 5)
    assert table.tolist() == [[15, 16, 17, 6, 7], [3, 4, 5, 0, 1], [12, 13, 14, 9, 10]]


def test_slots_follow_the_region_and_stay_inside():
    holders = [SimpleNamespace(region=region) for region in ((2, 4), (9, 2))]
    assert contiguous().slot_table(holders, 4).tolist() == [[2, 3, 4, 5], [9, 10, 11, 11]]


def test_bytes_are_those_of_keys_and_values():
    assert paged().num_bytes == 2 * LAYERS * BLOCKS * SIZE * HEADS * DIM * 4
    assert contiguous().num_bytes == 2 * LAYERS * 12 * HEADS * DIM * 4
