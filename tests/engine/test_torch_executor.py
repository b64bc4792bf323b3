"""The torch executor against the model without a cache: paged = contiguous = recomputed."""

import random
from collections import Counter

import pytest
import torch
from executor_harness import BLOCK, Harness, gqa_model, prompt, reference_logits
from hypothesis import given, settings
from hypothesis import strategies as st

from tinyvllm_lab.engine.config import EngineConfig
from tinyvllm_lab.engine.plan import StepPlan
from tinyvllm_lab.engine.torch_executor import TorchExecutor
from tinyvllm_lab.errors import CacheError, ConfigError, EngineError
from tinyvllm_lab.model.layers import rms_norm

torch.set_num_threads(1)

ALLOCATORS = ("paged", "contiguous-first-fit")


def assert_equal_logits(harness, request, ends):
    """What was sampled after each of `ends` tokens equals the forward pass without a cache."""
    expected = reference_logits(harness.model, request.token_ids)[[end - 1 for end in ends]]
    torch.testing.assert_close(harness.logits(request), expected, atol=2e-5, rtol=0)


@pytest.mark.parametrize("allocator", ALLOCATORS)
@pytest.mark.parametrize("chunk", [1, 3, 7, BLOCK, BLOCK + 1, 100])
@pytest.mark.parametrize("length", [1, BLOCK, BLOCK + 1, 21])
def test_27_chunked_prefill_equals_the_whole_prompt(allocator, chunk, length):
    harness = Harness(allocator=allocator)
    request, ends = harness.add(prompt(length)), []
    while request.num_computed_tokens < length:
        count = min(chunk, length - request.num_computed_tokens)
        harness.step([(request, count)])
        ends.append(request.num_computed_tokens)
    assert_equal_logits(harness, request, ends)
    # Bug idea 28: positions seen by the model are 0..n-1, each once.
    assert harness.seen == list(zip(request.token_ids, range(length), strict=True))


@given(
    lengths=st.lists(st.integers(1, 18), min_size=1, max_size=5),
    allocator=st.sampled_from(ALLOCATORS),
    seed=st.integers(0, 9999),
)
@settings(max_examples=60)
def test_any_ragged_mix_of_chunks_and_decodes_equals_no_cache(lengths, allocator, seed):
    rng = random.Random(seed)
    harness = Harness(allocator=allocator, seed=seed)
    requests = [harness.add(prompt(n, seed=i)) for i, n in enumerate(lengths)]
    ends = [[] for _ in requests]
    while unfinished := [r for r in requests if r.num_computed_tokens < r.num_tokens]:
        work = []
        for request in rng.sample(unfinished, rng.randint(1, len(unfinished))):
            left = request.num_tokens - request.num_computed_tokens
            work.append((request, min(left, rng.choice([1, 1, 2, 5, left]))))
        harness.step(work)
        for request, _ in work:
            ends[request.index].append(request.num_computed_tokens)
    for request in requests:
        assert_equal_logits(harness, request, ends[request.index])
    expected = [pair for r in requests for pair in zip(r.token_ids, range(99), strict=False)]
    assert Counter(harness.seen) == Counter(expected)


@pytest.mark.parametrize("knobs", [{}, {"allocator": ALLOCATORS[1]}, {"use_kv_cache": False}])
def test_greedy_tokens_are_the_same_alone_and_together_with_any_memory(knobs):
    harness = Harness(**knobs)
    together = [harness.add(prompt(n), room=10) for n in (3, 8, 13)]
    harness.generate(together, 10)
    for request in together:
        alone = Harness(use_kv_cache=False)
        single = alone.add(request.prompt_token_ids, room=10)
        alone.generate([single], 10)
        assert request.token_ids == single.token_ids


def test_17_a_block_filled_in_this_step_is_read_by_another_row_of_the_same_step():
    harness = Harness()
    first = harness.add(prompt(11))
    second = harness.add([*prompt(11)[: 2 * BLOCK], 5, 6, 7])
    second.block_table[:2] = first.block_table[:2]
    second.num_computed_tokens = 2 * BLOCK
    harness.step([(second, 3), (first, 11)])
    assert_equal_logits(harness, first, [11])
    assert_equal_logits(harness, second, [11])


def test_a_shared_prefix_decodes_alike():
    harness = Harness()
    first = harness.add(prompt(8))
    harness.step([(first, 8)])
    others = [harness.add([*prompt(8), token]) for token in (1, 2, 3)]
    for other in others:
        other.block_table[:2] = first.block_table
        other.num_computed_tokens = 8
    harness.step([(other, 1) for other in others])
    for other in others:
        assert_equal_logits(harness, other, [9])


def test_copy_on_write_lets_two_samples_go_their_own_ways():
    harness = Harness()
    parent = harness.add([*prompt(6), 1, 2, 3])
    harness.step([(parent, 6)])
    child = harness.add([*prompt(6), 9, 8, 7])
    source, target = parent.block_table[1], child.block_table[1]
    child.block_table[0] = parent.block_table[0]
    child.num_computed_tokens = 6
    harness.step([(parent, 1), (child, 1)], copies=[(source, target)])
    harness.step([(child, 2), (parent, 2)])
    assert_equal_logits(harness, parent, [6, 7, 9])
    assert_equal_logits(harness, child, [7, 9])


def test_swap_out_and_back_into_other_blocks_changes_nothing():
    harness = Harness(preemption="swap", num_host_blocks=8)
    request = harness.add(prompt(11))
    harness.step([(request, 10)])
    old = request.block_table
    harness.step([], swap_out=list(zip(old, (5, 0, 2), strict=True)))
    harness.executor.kv.key[:, old] = 9.0
    harness.executor.kv.value[:, old] = 9.0
    request.block_table = [harness.free.pop() for _ in old]
    back = list(zip((5, 0, 2), request.block_table, strict=True))
    harness.step([(request, 1)], swap_in=back)
    assert_equal_logits(harness, request, [10, 11])


@pytest.mark.parametrize("new_start", [0, 3, 5, 18, 40])
def test_a_region_can_move_over_itself(new_start):
    harness = Harness(allocator=ALLOCATORS[1])
    harness.next_slot = 8
    request = harness.add(prompt(12))
    harness.step([(request, 11)])
    request.region = (new_start, 12)
    harness.step([(request, 1)], moves=[(8, new_start, 12)])
    assert_equal_logits(harness, request, [11, 12])


def test_nobody_writes_the_null_block():
    harness = Harness()
    requests = [harness.add(prompt(n), room=8) for n in (2, 9)]
    harness.generate(requests, 6)
    assert not harness.executor.kv.key[:, 0].any()
    assert not harness.executor.kv.value[:, 0].any()


def test_rows_that_do_not_sample_get_minus_one_and_no_logits():
    harness = Harness()
    a, b, c = (harness.add(prompt(n)) for n in (5, 9, 4))
    token_ids = harness.step([(a, 5), (b, 6), (c, 1)], samples=[True, False, True])
    assert token_ids[1] == -1
    assert token_ids[0] == int(reference_logits(harness.model, prompt(5))[-1].argmax())
    assert set(harness.recorder.logits) == {a.index, c.index}
    assert harness.step([(b, 1)], samples=[False]) == [-1]
    assert harness.counters.sampled == 2


def test_an_empty_plan_computes_nothing():
    harness = Harness()
    assert harness.executor.execute(StepPlan()).token_ids == []
    assert harness.counters.forwards == 0


@pytest.mark.parametrize(("use_kv_cache", "tokens"), [(False, 8256), (True, 128)])
def test_counters_show_the_two_clocks_of_chapter_01(use_kv_cache, tokens):
    harness = Harness(use_kv_cache=use_kv_cache)
    request = harness.add(prompt(1), room=128)
    harness.generate([request], 128)
    assert harness.counters.tokens == tokens
    assert harness.counters.forwards == harness.counters.sampled == 128
    # With a cache each query still looks at all that came before it: "linear" is half the truth.
    if use_kv_cache:
        assert harness.counters.attended == 128 * 129 // 2


def test_one_forward_a_step_whatever_is_in_it():
    harness = Harness()
    requests = [harness.add(prompt(n), room=4) for n in (1, 5, 9, 2)]
    harness.generate(requests, 4)
    assert harness.counters.forwards == 4
    assert harness.counters.tokens == 1 + 5 + 9 + 2 + 3 * 4


def test_without_a_cache_a_chunk_that_samples_nothing_is_not_computed():
    harness = Harness(use_kv_cache=False)
    request = harness.add(prompt(10))
    assert harness.step([(request, 6)], samples=[False]) == [-1]
    assert harness.counters.forwards == 0
    harness.step([(request, 4)])
    assert_equal_logits(harness, request, [10])


def test_own_kernels_are_used():
    calls = []

    def my_rms_norm(x, weight, eps):
        calls.append(len(x))
        return rms_norm(x, weight, eps)

    harness = Harness(kernels={"rmsnorm": my_rms_norm})
    request = harness.add(prompt(5))
    harness.step([(request, 5)])
    assert calls == [5, 5, 5, 5, 1]
    assert_equal_logits(harness, request, [5])


def test_unknown_kernels_are_refused():
    with pytest.raises(ConfigError, match="'metal'"):
        TorchExecutor(gqa_model(), EngineConfig(), kernels="metal")


def test_a_closed_executor_says_so():
    harness = Harness()
    request = harness.add(prompt(3))
    harness.executor.close()
    with pytest.raises(EngineError, match="closed"):
        harness.step([(request, 3)])


def test_a_pool_larger_than_memory_is_refused_by_name(monkeypatch):
    def out_of_memory(*args, **kwargs):
        raise RuntimeError("can't allocate memory")

    monkeypatch.setattr(torch, "zeros", out_of_memory)
    with pytest.raises(
        CacheError, match=r"No memory for a KV tensor of shape \[2, 256, 16, 2, 8\]"
    ):
        TorchExecutor(gqa_model(), EngineConfig())


def test_the_results_need_no_gradient():
    model = gqa_model()
    model.embed_tokens.requires_grad_()
    harness = Harness(model)
    harness.step([(harness.add(prompt(3)), 3)])
    assert not harness.recorder.logits[0][0].requires_grad
