"""Drives a `TorchExecutor` with plans written by hand: no scheduler, no pool."""

import random

import torch

from tinyvllm_lab.engine.config import EngineConfig
from tinyvllm_lab.engine.plan import StepPlan
from tinyvllm_lab.engine.request import Request
from tinyvllm_lab.engine.torch_executor import TorchExecutor
from tinyvllm_lab.model.config import ModelConfig, RopeConfig
from tinyvllm_lab.model.layers import CausalAttention
from tinyvllm_lab.model.llama import LlamaModel

BLOCK = 4
GQA = ModelConfig(
    vocab_size=97, hidden_size=48, num_layers=2, num_heads=6, num_kv_heads=2, head_dim=8,
    intermediate_size=80, rope=RopeConfig(10000.0, "llama3", 4.0, 1.0, 4.0, 32),
)  # fmt: skip


def gqa_model() -> LlamaModel:
    return LlamaModel.random(GQA, seed=7)


def prompt(length: int, seed: int = 0) -> list[int]:
    generator = torch.Generator().manual_seed(1000 * length + seed)
    return torch.randint(0, GQA.vocab_size, (length,), generator=generator).tolist()


def reference_logits(model: LlamaModel, token_ids: list[int]) -> torch.Tensor:
    """Logits of every token, without a cache, with attention spelled out: `[tokens, vocab]`."""
    positions = torch.arange(len(token_ids))
    with torch.no_grad():
        return model.forward(torch.tensor(token_ids), positions, CausalAttention([len(positions)]))


class Recorder:
    """A greedy sampler that keeps the logits it has seen, by request index."""

    def __init__(self):
        self.logits = {}

    def sample(self, logits, rows):
        for request, row in zip(rows, logits, strict=True):
            self.logits.setdefault(request.index, []).append(row.clone())
        return logits.argmax(dim=-1).tolist(), [None] * len(rows)


class Harness:
    """An executor, memory given out at random, and a record of logits and positions."""

    def __init__(self, model=None, seed=0, kernels="torch", **knobs):
        defaults = {"block_size": BLOCK, "num_blocks": 64, "enable_prefix_caching": False}
        self.config = EngineConfig(**(defaults | knobs))
        self.model = model or gqa_model()
        self.recorder = Recorder()
        self.executor = TorchExecutor(
            self.model, self.config, kernels=kernels, sampler=self.recorder
        )
        self.seen = []
        forward = self.executor.model.forward
        self.executor.model = self.executor.model.with_ops(self.executor.model.ops)

        def spy(token_ids, positions, attend, logits_rows):
            self.seen += zip(token_ids.tolist(), positions.tolist(), strict=True)
            return forward(token_ids, positions, attend, logits_rows)

        self.executor.model.forward = spy
        self.free = list(range(1, self.config.num_blocks))
        random.Random(seed).shuffle(self.free)
        self.next_slot = 0
        self.count = 0

    @property
    def counters(self):
        return self.executor.counters

    def add(self, token_ids, room=0) -> Request:
        """A request with memory for its tokens and `room` more."""
        request = Request(f"r{self.count}", token_ids, index=self.count)
        self.count += 1
        needed = len(token_ids) + room
        if self.config.allocator == "paged":
            request.block_table = [self.free.pop() for _ in range(-(-needed // BLOCK))]
        else:
            request.region = (self.next_slot, needed)
            self.next_slot += needed
        return request

    def step(self, work, samples=None, **copies):
        """Compute the next `count` tokens of each `(request, count)`, after the plan's copies."""
        requests = [request for request, _ in work]
        counts = [count for _, count in work]
        starts = [request.num_computed_tokens for request in requests]
        samples = samples or [True] * len(work)
        plan = StepPlan(0, requests, counts, starts, samples, sum(counts), **copies)
        self.executor.run_copies(plan)
        result = self.executor.execute(plan)
        for request, count in work:
            request.num_computed_tokens += count
        return result.token_ids

    def generate(self, requests, steps):
        """Greedy decode steps for all requests together."""
        for _ in range(steps):
            work = [(r, r.num_tokens - r.num_computed_tokens) for r in requests]
            for request, token_id in zip(requests, self.step(work), strict=True):
                request.token_ids.append(token_id)

    def logits(self, request) -> torch.Tensor:
        """Logits of every token that this request sampled from: `[samples, vocab]`."""
        return torch.stack(self.recorder.logits[request.index])
