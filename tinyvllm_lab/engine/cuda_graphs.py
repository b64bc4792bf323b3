"""The decode step as CUDA graphs: captured once for each batch size, replayed with one call.

A decode step is some hundred launches of a few microseconds each; for a small model, Python takes
longer to queue them than the GPU to run them. A CUDA graph is the recorded list of launches, queued
by one call (chapter 17). A recording holds addresses, numbers and launch geometry as they were, so:

- Inputs lie in buffers (`DecodeBuffers`) that never move; each step is copied into them.
- A batch is padded to the next captured size. A padding row has slot -1, which
  `reshape_and_cache` skips, and length 0, for which attention reads nothing; its logits are
  dropped. It costs a row in each matrix product, little where the weights' bytes are the bound.
- What depends on lengths is read from the buffers by the kernels themselves. The geometry is that
  of the longest sequence the config allows: `paged_attention` launches `ceil(longest / 512)` blocks
  for each sequence and KV head, of which those beyond the sequence's end return at once, and a
  reduce kernel; its workspace is `size * heads * parts * (head_dim + 2)` floats. So
  `max_model_len` should not be much more than what is needed.

Steps with a prefill in them run eagerly, as in vLLM's mode FULL_DECODE_ONLY (its
docs/design/cuda_graphs.md). vLLM captures all sizes when it starts; we capture one when it first
occurs: that step takes longer, and nothing is captured in vain.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from tinyvllm_lab.cache.kv import PagedKV
from tinyvllm_lab.engine.batch import BlockTables
from tinyvllm_lab.engine.config import EngineConfig
from tinyvllm_lab.engine.plan import StepPlan
from tinyvllm_lab.errors import ConfigError, EngineError

MOST_CAPTURED = 512


class Graph(Protocol):
    """A recorded step. `output` is where each replay leaves its result."""

    output: Tensor

    def replay(self) -> None:
        """Do all that was recorded again, with what now lies at the same addresses."""


class GraphRecorder(Protocol):
    """Records graphs: `CudaGraphs`, or a double for a machine without a GPU."""

    def capture(self, run: Callable[[], Tensor]) -> Graph:
        """Record what `run` queues, without computing it."""


def capture_sizes(max_num_seqs: int) -> list[int]:
    """Batch sizes that get a graph: vLLM's 1, 2, 4, then multiples of 8, above 256 of 16.

    None is above twice `max_num_seqs` or above 512 (`VllmConfig._set_cudagraph_sizes` in
    vllm/config/vllm.py, 2025): a larger batch runs eagerly.
    """
    most = min(2 * max_num_seqs, MOST_CAPTURED)
    sizes = [1, 2, 4, *range(8, 256, 8), *range(256, MOST_CAPTURED + 1, 16)]
    return [size for size in sizes if size <= most]


def choose_recorder(
    wanted: bool | GraphRecorder | None, kernels: Any, *, on_gpu: bool, follows_tables: bool
) -> GraphRecorder | None:
    """What records the decode steps; None: they run eagerly.

    Args:
        wanted: True, False, a recorder, or None: True if `kernels` is "cuda" and it is possible.
        kernels: as for `TorchExecutor`.
        on_gpu: whether the model is on a GPU.
        follows_tables: whether attention is ours, by kernels that follow block tables.

    Raises:
        ConfigError: graphs are wanted and not possible.
    """
    if wanted is None:
        wanted = kernels == "cuda" and on_gpu and follows_tables
    if wanted is False:
        return None
    if not follows_tables:
        raise ConfigError(
            "A decode step can be captured only if its kernels follow block tables.",
            "kernels='cuda', or own functions for the operations on the KV cache",
            "Pass cuda_graphs=False, or change kernels (torch's attention gathers the context, "
            "whose length a graph cannot change).",
        )
    if wanted is not True:
        return wanted
    if not on_gpu:
        raise ConfigError(
            "CUDA graphs need a model on a GPU.",
            "device='cuda'",
            "Pass cuda_graphs=False.",
        )
    return CudaGraphs()


class DecodeBuffers:
    """The inputs of a decode step of `size` sequences, at addresses that never change.

    They lie end to end, once on the host and once on the device: a step needs one copy. It has what
    `KernelAttention` asks of a batch.

    Args:
        size: rows; those of a smaller batch are padded.
        longest: tokens of the longest sequence that may occur.
        block_size: tokens of a KV block.
        device: of the model.

    Attributes:
        token_ids, positions, slots: `[size]` int64, on the device.
        tables: `[size, blocks of the longest]` block tables and `[size]` lengths, int32.
        num_decodes: `size`.
    """

    def __init__(self, size: int, longest: int, block_size: int, device: torch.device) -> None:
        self.num_decodes, self.block_size = size, block_size
        width = -(-longest // block_size)
        num_bytes = size * (3 * 8 + 4 + 4 * width)
        self._host = torch.zeros(num_bytes, dtype=torch.uint8, pin_memory=device.type == "cuda")
        self._device = torch.zeros(num_bytes, dtype=torch.uint8, device=device)
        self.token_ids, self.positions, self.slots, lens, blocks = _fields(self._device, size)
        no_prefills = torch.zeros(1, dtype=torch.int32, device=device)
        self.tables = BlockTables(blocks, lens, no_prefills, longest)
        self._fields = [field.numpy() for field in _fields(self._host, size)]
        self._copied = torch.cuda.Event() if device.type == "cuda" else None

    def fill(self, plan: StepPlan, kv: PagedKV) -> None:
        """Copy a step's inputs to the device; rows beyond the plan's are padding."""
        n, starts = len(plan.requests), np.array(plan.starts, dtype=np.int64)
        blocks = kv.block_tables(plan.requests, int(starts.max()) + 1)  # [n, width]
        if self._copied is not None:
            self._copied.synchronize()  # before the host's side changes
        token_ids, positions, slots, lens, tables = self._fields
        last_block = blocks[np.arange(n), starts // self.block_size]  # [n]
        ids = [request.token_ids[i] for request, i in zip(plan.requests, plan.starts, strict=True)]
        for field, values, padding in (
            (token_ids, ids, 0),
            (positions, starts, 0),
            (slots, last_block * self.block_size + starts % self.block_size, -1),
            (lens, starts + 1, 0),
        ):
            field[:n], field[n:] = values, padding
        tables[:n, : blocks.shape[1]] = blocks
        self._device.copy_(self._host, non_blocking=True)
        if self._copied is not None:
            self._copied.record()


def _fields(memory: Tensor, size: int) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Token ids, positions, slots; lengths, block tables: views of one strip of bytes."""
    end_of_longs, end_of_lens = 3 * 8 * size, 3 * 8 * size + 4 * size
    longs = memory[:end_of_longs].view(torch.int64).view(3, size)
    lens = memory[end_of_longs:end_of_lens].view(torch.int32)
    tables = memory[end_of_lens:].view(torch.int32).view(size, -1)
    return longs[0], longs[1], longs[2], lens, tables


class DecodeGraphs:
    """Decode steps by graph: which steps, of which size, and the graphs captured so far.

    Args:
        recorder: captures.
        kv: the KV memory.
        config: bounds the batch and the length of a sequence.
        device: of the model.
        run: the forward pass over the buffers' rows: logits, `[size, vocab_size]`.

    Attributes:
        sizes: that get a graph.
        num_replays: steps that were replayed.
    """

    def __init__(
        self,
        recorder: GraphRecorder,
        kv: PagedKV,
        config: EngineConfig,
        device: torch.device,
        run: Callable[[DecodeBuffers], Tensor],
    ) -> None:
        self.sizes = capture_sizes(config.max_num_seqs)
        self.num_replays = 0
        self._recorder, self._kv, self._device, self._run = recorder, kv, device, run
        self._block_size = config.block_size
        self._longest = min(config.max_model_len, config.num_usable_blocks * config.block_size)
        self._graphs: dict[int, tuple[DecodeBuffers, Graph]] = {}

    @property
    def captured(self) -> list[int]:
        """The sizes captured so far."""
        return sorted(self._graphs)

    def takes(self, plan: StepPlan) -> bool:
        """Whether the step is one: a token for each sequence, and not too many sequences."""
        return max(plan.num_tokens) == 1 and len(plan.requests) <= self.sizes[-1]

    def logits(self, plan: StepPlan) -> Tensor:
        """The logits of each of the plan's rows, `[rows, vocab_size]`.

        The first step of a size runs eagerly, which also loads what is loaded at first use, and is
        captured for the next ones.

        Raises:
            EngineError: the step cannot be captured.
        """
        n = len(plan.requests)
        size = next(size for size in self.sizes if size >= n)
        if size not in self._graphs:
            buffers = DecodeBuffers(size, self._longest, self._block_size, self._device)
            buffers.fill(plan, self._kv)
            logits = self._run(buffers)
            self._graphs[size] = buffers, self._capture(buffers)
            return logits[:n]
        buffers, graph = self._graphs[size]
        buffers.fill(plan, self._kv)
        graph.replay()
        self.num_replays += 1
        return graph.output[:n].clone()  # the next replay overwrites it

    def close(self) -> None:
        """Drop the graphs, all at once, with their memory."""
        self._graphs.clear()

    def _capture(self, buffers: DecodeBuffers) -> Graph:
        try:
            return self._recorder.capture(lambda: self._run(buffers))
        except Exception as error:
            # The graph that failed may take along cuBLAS's workspace, which torch keeps by stream
            # and all of them share (pytorch/pytorch issue 193402).
            self._graphs.clear()
            # Torch reports that the capture has failed; why, is what was raised before.
            cause = error.__context__ or error
            raise EngineError(
                f"The decode step of {buffers.num_decodes} sequences cannot be captured: {cause}",
                "kernels that are only queued, and read nothing back to the CPU",
                "Repair the kernel, or pass cuda_graphs=False.",
            ) from error


@dataclass
class _CudaGraph:
    graph: Any
    output: Tensor

    def replay(self) -> None:
        self.graph.replay()


class CudaGraphs:
    """Captures what is queued on torch's current stream, by torch and by PyCUDA alike.

    Torch does the capturing, because it must keep the memory of all intermediate tensors in place.
    The graphs share that memory: they never run at the same time.
    """

    def __init__(self) -> None:
        self._pool: Any = None

    def capture(self, run: Callable[[], Tensor]) -> Graph:
        """Record `run`; not in CUDA's default stream, which cannot be captured."""
        graph = torch.cuda.CUDAGraph()
        # "thread_local": what other threads do with the GPU meanwhile must not end the capture.
        with torch.cuda.graph(
            graph,
            pool=self._pool,
            stream=torch.cuda.current_stream(),
            capture_error_mode="thread_local",
        ):
            output = run()
        self._pool = graph.pool()
        return _CudaGraph(graph, output)
