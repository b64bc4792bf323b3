"""The engine on the course's kernels, and on a learner's: the same greedy tokens as on torch."""

import pytest
import torch
from executor_harness import Harness, gqa_model, prompt, reference_logits

from tinyvllm_lab.engine.config import EngineConfig
from tinyvllm_lab.engine.engine import Engine
from tinyvllm_lab.engine.kernel_attention import CACHE_OPS, MODEL_OPS
from tinyvllm_lab.engine.sampling_params import SamplingParams
from tinyvllm_lab.engine.torch_executor import TorchExecutor
from tinyvllm_lab.errors import ConfigError
from tinyvllm_lab.kernels import reference
from tinyvllm_lab.llm import LLM
from tinyvllm_lab.model.llama import LlamaModel
from tinyvllm_lab.paths import assets_dir

torch.set_num_threads(1)

TINY = assets_dir() / "models" / "tiny"
BLOCK, OUTPUT = 8, 12
SHARED = list(range(5, 5 + 2 * BLOCK))
TINY_POOL = {"num_blocks": 9, "max_num_seqs": 5}  # two requests fit at their longest
PATHS = {
    "continuous": {},
    "chunks of 7": {"long_prefill_token_threshold": 7},
    "preemption by recompute": TINY_POOL,
    "preemption by swap": {**TINY_POOL, "preemption": "swap", "num_host_blocks": 16},
}


def prompts():
    """Lengths around the block size, some with a common beginning."""
    generator = torch.Generator().manual_seed(3)
    fresh = [torch.randint(5, 2000, (n,), generator=generator).tolist() for n in (1, 8, 9, 33)]
    return [*fresh, SHARED, [*SHARED, 7], SHARED]


def run(model, kernels, knobs, **params):
    """Tokens, preemptions and hits of a run in which two requests arrive every other step."""
    config = EngineConfig(**{"block_size": BLOCK, "check_invariants": True, **knobs})
    engine = Engine(config, TorchExecutor(model, config, kernels=kernels))
    greedy = SamplingParams(temperature=0.0, max_tokens=OUTPUT, ignore_eos=True, **params)
    sent, left, hits = [], prompts(), 0
    while left or engine.has_work:
        if left and engine.num_steps % 2 == 0:
            sent += [engine.add_request(ids, greedy) for ids in left[:2]]
            del left[:2]
        hits += sum(engine.step().plan.hit_tokens)
    every = [sample for r in sent for sample in (r, *r.children)]
    return [r.output_token_ids for r in every], sum(r.num_preemptions for r in every), hits


@pytest.fixture(scope="module")
def tiny():
    return LlamaModel.from_dir(TINY, dtype="float32")


@pytest.mark.needs("cxx")
@pytest.mark.parametrize("path", PATHS)
def test_kernels_give_the_tokens_of_torch(tiny, path):
    expected, _, _ = run(tiny, "torch", {})
    tokens, preemptions, hits = run(tiny, "cpu", PATHS[path])
    assert tokens == expected
    assert hits >= BLOCK
    assert (preemptions > 0) == path.startswith("preemption")


@pytest.mark.needs("cxx")
def test_forks_copy_blocks_by_kernel(tiny):
    assert run(tiny, "cpu", {}, n=2)[0] == run(tiny, "torch", {}, n=2)[0]


@pytest.mark.needs("cxx")
def test_llm_passes_kernels_on():
    greedy = SamplingParams(temperature=0.0, max_tokens=8)
    outputs = [
        LLM("tiny", "float32", EngineConfig(num_blocks=32), device="cpu", kernels=kernels)
        .generate("The clock", greedy)[0]
        .token_ids
        for kernels in ("torch", "cpu")
    ]
    assert outputs[0] == outputs[1]


class Spy:
    """A learner's kernel for an operation: the twin, and a note of every call."""

    def __init__(self, op):
        self.twin, self.shapes = getattr(reference, op), []

    def __call__(self, *args):
        self.shapes.append(tuple(args[0].shape))
        return self.twin(*args)


def test_each_operation_can_be_a_learners_own():
    spies = {op: Spy(op) for op in (*MODEL_OPS, *CACHE_OPS)}
    harness = Harness(kernels=spies)
    first, second = harness.add(prompt(6), room=2), harness.add([*prompt(4), 1, 2, 3], room=2)
    first.token_ids.append(harness.step([(first, 6), (second, 4)])[0])
    copies = [(first.block_table[1], harness.free[-1]), (harness.free[-1], harness.free[-2])]
    second.token_ids += harness.step([(second, 3)], copies=copies)
    harness.generate([first, second], 2)
    for request, ends in ((first, [6, 7]), (second, [4, 7, 8])):
        expected = reference_logits(harness.model, request.token_ids)[[end - 1 for end in ends]]
        seen = harness.logits(request)[: len(ends)]
        torch.testing.assert_close(seen, expected, atol=2e-5, rtol=0)
    assert all(spy.shapes for spy in spies.values())
    key = harness.executor.kv.key
    once, twice = key[:, copies[0][1]], key[:, copies[1][1]]
    assert once.any()
    assert torch.equal(once, twice)


def test_one_own_operation_on_the_cache_takes_the_others_from_the_twins():
    spy = Spy("paged_attention")
    harness = Harness(kernels={"paged_attention": spy})
    request = harness.add(prompt(5), room=3)
    harness.generate([request], 3)
    assert spy.shapes == [(1, 6, 8)] * 4  # two layers, two decode steps
    expected = reference_logits(harness.model, request.token_ids)[4:7]
    torch.testing.assert_close(harness.logits(request), expected, atol=2e-5, rtol=0)


@pytest.mark.parametrize("kernels", ["cpu", {"copy_blocks": reference.copy_blocks}])
@pytest.mark.parametrize(
    ("knobs", "words"),
    [
        ({"allocator": "contiguous-first-fit"}, "allocator='contiguous-first-fit'"),
        ({"use_kv_cache": False}, "use_kv_cache=False"),
    ],
)
def test_kernels_without_paged_memory_are_refused(tiny, kernels, knobs, words):
    config = EngineConfig(enable_prefix_caching=False, **knobs)
    with pytest.raises(ConfigError, match=words):
        TorchExecutor(tiny, config, kernels=kernels)


@pytest.mark.parametrize(
    ("kernels", "words"),
    [
        ({"argmax": print}, "No operation is called 'argmax'"),
        ({"rope": 3}, "kernel for 'rope' is 3"),
        ("cpu", "head_dim, 8"),
    ],
)
def test_what_cannot_be_used_is_named(kernels, words):
    with pytest.raises(ConfigError, match=words):
        TorchExecutor(gqa_model(), EngineConfig(), kernels=kernels)


def test_a_type_without_kernels_is_named():
    half = LlamaModel.from_dir(TINY, dtype="float16")
    with pytest.raises(ConfigError, match=r"torch\.float16"):
        TorchExecutor(half, EngineConfig(), kernels="cpu")
