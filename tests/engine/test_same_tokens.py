"""Greedy tokens are the same on every path through the engine, and those of transformers.

Exact equality needs float32: in bf16 another batch shape rounds differently.
"""

import pytest
import torch
from executor_harness import gqa_model
from transformers import LlamaForCausalLM

from tinyvllm_lab.engine.config import EngineConfig
from tinyvllm_lab.engine.engine import Engine
from tinyvllm_lab.engine.events import Kind
from tinyvllm_lab.engine.sampling_params import SamplingParams
from tinyvllm_lab.engine.torch_executor import TorchExecutor
from tinyvllm_lab.model.llama import LlamaModel
from tinyvllm_lab.paths import assets_dir

TINY = assets_dir() / "models" / "tiny"
BLOCK = 8
OUTPUT = 24
SHARED = list(range(5, 5 + 2 * BLOCK))

# 255 usable blocks of 8 hold everything; 12 hold two requests at their longest, so it preempts.
TINY_POOL = {"num_blocks": 13, "max_num_seqs": 6}
PATHS = {
    "alone": {"max_num_seqs": 1},
    "continuous": {},
    "static": {"batching": "static", "max_num_seqs": 3},
    "chunks of 1": {"max_num_batched_tokens": 6, "long_prefill_token_threshold": 1},
    "chunks of 7": {"long_prefill_token_threshold": 7},
    "chunks of a block": {"long_prefill_token_threshold": BLOCK},
    "chunks of a block and one": {"long_prefill_token_threshold": BLOCK + 1},
    "preemption by recompute": TINY_POOL,
    "preemption by recompute, no cache": {**TINY_POOL, "enable_prefix_caching": False},
    "preemption by swap": {**TINY_POOL, "preemption": "swap"},
    "prefill first": {"order": "prefill-first", "max_num_seqs": 3},
    "contiguous, reserved": {"allocator": "contiguous-max", "max_model_len": 128},
    "contiguous, first fit": {"allocator": "contiguous-first-fit", **TINY_POOL},
    "contiguous, compacted": {
        "allocator": "contiguous-best-fit", "compaction": True, **TINY_POOL,
    },
    "no KV cache": {"use_kv_cache": False, "max_num_batched_tokens": 512},
}  # fmt: skip


def prompts(vocab_size):
    """Different lengths around the block size, some with a common beginning."""
    generator = torch.Generator().manual_seed(3)
    lengths = [1, 3, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK, 21, 33]
    fresh = [torch.randint(5, vocab_size, (n,), generator=generator).tolist() for n in lengths]
    return [*fresh, SHARED, [*SHARED, 7], [*SHARED, *fresh[3]], SHARED]


def make_config(knobs):
    caching = knobs.get("allocator", "paged") == "paged" and knobs.get("use_kv_cache", True)
    return EngineConfig(
        **{"block_size": BLOCK, "enable_prefix_caching": caching, "check_invariants": True} | knobs
    )


def generate(model, batch, knobs, **params):
    """Requests of a run in which two arrive every other step; also the positions that were seen."""
    config = make_config(knobs)
    executor = TorchExecutor(model, config)
    engine = Engine(config, executor, vocab_size=model.config.vocab_size)
    sent, left = [], list(batch)
    while left or engine.has_work:
        if left and engine.num_steps % 2 == 0:
            sent += [engine.add_request(prompt, greedy(**params)) for prompt in left[:2]]
            del left[:2]
        engine.step()
    return sent, engine


def greedy(**params):
    return SamplingParams(**{"temperature": 0.0, "max_tokens": OUTPUT, "ignore_eos": True} | params)


def transformers_tokens(model, batch):
    return [
        model.generate(
            torch.tensor([ids]), attention_mask=torch.ones(1, len(ids), dtype=torch.long),
            do_sample=False, max_new_tokens=OUTPUT, min_new_tokens=OUTPUT,
            suppress_tokens=None, pad_token_id=0,
        )[0, len(ids) :].tolist()
        for ids in batch
    ]  # fmt: skip


@pytest.fixture(scope="module")
def tiny():
    model = LlamaModel.from_dir(TINY, dtype="float32")
    hf = LlamaForCausalLM.from_pretrained(TINY, dtype=torch.float32).eval()
    hf.generation_config.eos_token_id = None
    batch = prompts(2000)
    return model, batch, transformers_tokens(hf, batch)


@pytest.fixture(scope="module")
def gqa():
    """A random GQA model; the reference is each prompt alone, without any cache."""
    model, batch = gqa_model(), prompts(97)
    expected = []
    for prompt in batch:
        (request,), _ = generate(model, [prompt], PATHS["no KV cache"])
        expected.append(request.output_token_ids)
    return model, batch, expected


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("name", ["tiny", "gqa"])
def test_every_path_gives_the_same_tokens(name, path, request):
    model, batch, expected = request.getfixturevalue(name)
    sent, engine = generate(model, batch, PATHS[path])
    assert [r.output_token_ids for r in sent] == expected
    assert engine.scheduler.memory.num_used == 0
    if path.startswith("preemption"):
        assert sum(r.num_preemptions for r in sent) > 0


@pytest.mark.parametrize("name", ["tiny", "gqa"])
def test_forked_samples_give_the_same_tokens(name, request):
    model, batch, expected = request.getfixturevalue(name)
    sent, engine = generate(model, batch, {"max_num_seqs": 8}, n=3)
    for parent, tokens in zip(sent, expected, strict=True):
        for sample in (parent, *parent.children):
            assert sample.output_token_ids == tokens
    kinds = set(engine.log.as_array()[:, 0].tolist())
    assert {Kind.FORK, Kind.BLOCK_SHARE, Kind.BLOCK_COPY} <= kinds


def test_29_a_prefix_hit_gives_the_same_output_as_a_miss(tiny):
    model, batch, expected = tiny
    config = make_config({})
    engine = Engine(config, TorchExecutor(model, config))
    long = batch[7]
    hits = []
    for _ in range(4):
        request = engine.add_request(long, greedy())
        while engine.has_work:
            plan = engine.step().plan
            hits += plan.hit_tokens
        assert request.output_token_ids == expected[7]
    assert hits == [0, 32, 32, 32]
    halfway = [*long[:20], 9, 9]
    request = engine.add_request(halfway, greedy())
    while engine.has_work:
        hits += engine.step().plan.hit_tokens
    assert hits[-1] == 16
    (alone,), _ = generate(model, [halfway], PATHS["no KV cache"])
    assert request.output_token_ids == alone.output_token_ids


@pytest.mark.parametrize("path", ["continuous", "chunks of 7", "preemption by swap"])
def test_28_the_model_sees_each_position_once(gqa, path):
    model, batch, _ = gqa
    seen = []
    config = make_config(PATHS[path])
    executor = TorchExecutor(model, config)
    engine = Engine(config, executor)
    for prompt in batch:
        engine.add_request(prompt, greedy())
    while engine.has_work:
        plan = engine.step().plan
        for r, start, n in zip(plan.requests, plan.starts, plan.num_tokens, strict=True):
            seen += [(r.index, p) for p in range(start, start + n)]
    for kind, index, _, hit in engine.log.as_array().tolist():
        if kind in (Kind.ADMIT, Kind.RESUME):
            seen += [(index, p) for p in range(hit)]
    lengths = [len(p) + OUTPUT - 1 for p in batch]
    assert sorted(seen) == [(i, p) for i, length in enumerate(lengths) for p in range(length)]
