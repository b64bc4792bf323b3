"""`TorchExecutor`: a step's plan on real tokens, with torch (chapters 01, 05, 09 and 10)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import torch
from torch import Tensor

from tinyvllm_lab.cache.kv import ContiguousKV, KVCache, PagedKV
from tinyvllm_lab.engine.attention import CachedAttention
from tinyvllm_lab.engine.batch import CachedBatch, RaggedTokens, cached_batch, ragged_tokens
from tinyvllm_lab.engine.config import EngineConfig
from tinyvllm_lab.engine.cuda_graphs import (
    DecodeBuffers,
    DecodeGraphs,
    GraphRecorder,
    choose_recorder,
)
from tinyvllm_lab.engine.kernel_attention import (
    KernelAttention,
    Kernels,
    copy_blocks,
    kernel_stream,
    resolve_kernels,
)
from tinyvllm_lab.engine.plan import StepPlan, StepResult
from tinyvllm_lab.engine.request import Request
from tinyvllm_lab.errors import EngineError
from tinyvllm_lab.model.layers import CausalAttention, fused_causal_attention
from tinyvllm_lab.model.llama import AttentionBackend, LlamaModel
from tinyvllm_lab.model.sampling import Sampler

AttentionFactory = Callable[[KVCache, CachedBatch], AttentionBackend]


class TokenSampler(Protocol):
    """Chooses tokens from logits: `model.sampling.Sampler`, or a learner's own."""

    def sample(
        self, logits: Tensor, rows: Sequence[Request]
    ) -> tuple[Sequence[int], Sequence[Any]]:
        """A token and what was asked of logprobs for each row of `[rows, vocab_size]`."""


@dataclass(slots=True)
class Counters:
    """What the executor has done so far: the work behind chapter 01's two clocks.

    Attributes:
        forwards: passes through the model.
        tokens: tokens that went through it.
        attended: positions that the tokens' queries looked at, together, per layer and head.
        sampled: tokens that came out.
    """

    forwards: int = 0
    tokens: int = 0
    attended: int = 0
    sampled: int = 0


class TorchExecutor:
    """Runs plans on a model: one forward a step, prefill chunks and decodes together.

    With `use_kv_cache=False` nothing is kept: every sequence that needs a token is read again from
    its beginning, and a chunk that samples nothing is not computed at all.

    Attributes:
        model: the model, with the kernels put in.
        kv: the KV tensors; None without a cache and after `close`.
        counters: `Counters` since the start.
        graphs: the `DecodeGraphs`; None if every step runs eagerly, and after `close`.

    Args:
        model: the weights.
        config: sizes of the KV cache, allocator, preemption.
        kernels: "torch"; "cpu" or "cuda" for the course's kernels; or own functions by operation
            (see `kernel_attention`).
        sampler: chooses the tokens; None: the course's own.
        attention: makes the attention backend of a step from KV tensors and batch; None: the one
            that goes with `kernels`.
        cuda_graphs: replay decode steps as CUDA graphs (see `cuda_graphs`); None: where `kernels`
            is "cuda" and the model is on a GPU. A recorder of your own may stand here.

    Raises:
        CacheError: there is no memory for the KV tensors.
        ConfigError: `kernels` is unknown, or `kernels` or `cuda_graphs` does not go with model or
            config.
        KernelError: the kernels' back end is not usable here.
    """

    def __init__(
        self,
        model: LlamaModel,
        config: EngineConfig,
        *,
        kernels: Kernels = "torch",
        sampler: TokenSampler | None = None,
        attention: AttentionFactory | None = None,
        cuda_graphs: bool | GraphRecorder | None = None,
    ) -> None:
        model_ops, self._cache_ops = resolve_kernels(kernels, model, config)
        self.model = model.with_ops(model.ops.with_kernels(model_ops)) if model_ops else model
        self.config = config
        self.kv = make_kv(model, config) if config.use_kv_cache else None
        self.sampler = sampler or Sampler()
        self.counters = Counters()
        on_kernels = partial(KernelAttention, self._cache_ops) if self._cache_ops else None
        self._attention: AttentionFactory = attention or on_kernels or CachedAttention
        self._stream = kernel_stream(kernels, model.device)
        recorder = choose_recorder(
            cuda_graphs,
            kernels,
            on_gpu=model.device.type == "cuda",
            follows_tables=bool(self._cache_ops) and attention is None,
        )
        self.graphs = self._make_graphs(recorder) if recorder else None
        self._closed = False

    @torch.inference_mode()
    def run_copies(self, plan: StepPlan) -> None:
        """Do the plan's copies: swap out, swap in, copy-on-write, region moves."""
        with self._on_stream():
            if isinstance(self.kv, PagedKV):
                self.kv.swap_out(plan.swap_out)
                self.kv.swap_in(plan.swap_in)
                if self._cache_ops:
                    copy_blocks(self._cache_ops, self.kv, plan.copies)
                else:
                    self.kv.copy_blocks(plan.copies)
            elif self.kv is not None:
                self.kv.move(plan.moves)

    @torch.inference_mode()
    def execute(self, plan: StepPlan) -> StepResult:
        """Compute the plan's tokens and sample.

        Raises:
            EngineError: the executor is closed, or a decode step cannot be captured.
        """
        if self._closed:
            raise EngineError("This executor is closed.", fix="Make a new engine.")
        if plan.is_empty or (self.kv is None and not any(plan.samples)):
            return StepResult([-1] * len(plan.requests))
        with self._on_stream():
            if self.graphs is not None and self.graphs.takes(plan):
                return self._replay(self.graphs, plan)
            tokens, attention = self._batch(plan)
            logits = self.model.forward(
                tokens.token_ids, tokens.positions, attention, tokens.logits_rows
            )  # [samples, vocab_size]
            self._count(len(tokens.token_ids), tokens.attended, len(tokens.sampling_rows))
            return self._sample(logits, plan, tokens.sampling_rows)

    def finish(self, request: Request) -> None:
        """Forget the sampler's state of a request that ended or was dropped."""
        request.state = None

    def close(self) -> None:
        """Give back KV memory, graphs and stream; weights belong to the model."""
        if self._stream is not None:
            self._stream.close()  # waits: what it computes with must not go before
        if self.graphs is not None:
            self.graphs.close()
        self.kv = self.graphs = self._stream = None
        self._closed = True

    def _on_stream(self) -> AbstractContextManager[Any]:
        return nullcontext() if self._stream is None else self._stream.entered()

    def _make_graphs(self, recorder: GraphRecorder) -> DecodeGraphs:
        kv = self.kv
        assert isinstance(kv, PagedKV)  # resolve_kernels has checked it

        def run(buffers: DecodeBuffers) -> Tensor:
            attention = KernelAttention(self._cache_ops, kv, buffers)
            return self.model.forward(buffers.token_ids, buffers.positions, attention)

        return DecodeGraphs(recorder, kv, self.config, self.model.device, run)

    def _replay(self, graphs: DecodeGraphs, plan: StepPlan) -> StepResult:
        logits = graphs.logits(plan)  # [rows, vocab_size]
        rows = [row for row, samples in enumerate(plan.samples) if samples]
        self._count(len(logits), sum(plan.starts) + len(logits), len(rows))
        return self._sample(logits if len(rows) == len(logits) else logits[rows], plan, rows)

    def _sample(self, logits: Tensor, plan: StepPlan, rows: list[int]) -> StepResult:
        token_ids = [-1] * len(plan.requests)
        logprobs: list[Any] = [None] * len(plan.requests)
        if rows:
            chosen, details = self.sampler.sample(logits, [plan.requests[row] for row in rows])
            for i, row in enumerate(rows):
                token_ids[row], logprobs[row] = chosen[i], details[i]
        return StepResult(token_ids, logprobs)

    def _batch(self, plan: StepPlan) -> tuple[RaggedTokens, AttentionBackend]:
        device = self.model.device
        if self.kv is None:
            rows = [row for row, samples in enumerate(plan.samples) if samples]
            lens = [plan.starts[row] + plan.num_tokens[row] for row in rows]
            tokens = ragged_tokens(plan, rows, [0] * len(rows), lens, device)
            return tokens, CausalAttention(lens, fused_causal_attention)
        batch = cached_batch(plan, self.kv, device)
        return batch.tokens, self._attention(self.kv, batch)

    def _count(self, tokens: int, attended: int, sampled: int) -> None:
        self.counters.forwards += 1
        self.counters.tokens += tokens
        self.counters.attended += attended
        self.counters.sampled += sampled


def make_kv(model: LlamaModel, config: EngineConfig) -> KVCache:
    """KV tensors of the size and kind that the config asks for, in the model's type.

    Raises:
        CacheError: there is no memory for them.
    """
    shape = model.config
    heads = (shape.num_kv_heads, shape.head_dim, model.dtype, model.device)
    if config.allocator == "paged":
        host_blocks = config.num_host_blocks if config.preemption == "swap" else 0
        return PagedKV(shape.num_layers, config.num_blocks, config.block_size, *heads, host_blocks)
    return ContiguousKV(shape.num_layers, config.num_usable_blocks * config.block_size, *heads)
