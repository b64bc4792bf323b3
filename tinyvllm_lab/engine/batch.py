"""From a `StepPlan` to tensors: the ragged batch of one forward pass (chapters 09 and 10)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from tinyvllm_lab.cache.kv import KVCache, PagedKV
from tinyvllm_lab.engine.plan import StepPlan
from tinyvllm_lab.engine.request import Request
from tinyvllm_lab.model.layers import causal_mask

IntArray = npt.NDArray[np.int64]


@dataclass(slots=True)
class RaggedTokens:
    """The tokens of several sequences in one long row, without padding.

    Attributes:
        rows: the plan's row of each sequence.
        sampling_rows: the plan's rows that sample a token.
        first, last: `[sequences]`: where each sequence begins and ends in the row, both included.
        host_positions: `[num_tokens]`: each token's place in its sequence, from 0.
        positions: the same on the model's device.
        token_ids: `[num_tokens]`, int64.
        logits_rows: `[samples]`, int64: the last token of each of `sampling_rows`.
    """

    rows: list[int]
    sampling_rows: list[int]
    first: IntArray
    last: IntArray
    host_positions: IntArray
    positions: Tensor
    token_ids: Tensor
    logits_rows: Tensor

    @property
    def attended(self) -> int:
        """Positions that all queries look at, together: each at its own and those before it."""
        return int(self.host_positions.sum()) + len(self.host_positions)


@dataclass(slots=True)
class BlockTables:
    """What kernels that follow block tables by themselves need to know of a batch (chapter 11).

    Attributes:
        block_tables: `[sequences, blocks]`, int32: the blocks of each sequence, in order; behind
            its last one stands the null block.
        seq_lens: `[sequences]`, int32: tokens of each sequence, those of this step among them.
        query_start_loc: `[prefills + 1]`, int32: where each sequence behind the decodes begins
            among their tokens, and, last, how many tokens those are.
        max_decode_len: the longest of the sequences with one token; 0 if there is none.
    """

    block_tables: Tensor
    seq_lens: Tensor
    query_start_loc: Tensor
    max_decode_len: int


@dataclass(slots=True)
class CachedBatch:
    """A ragged batch and where its keys and values lie. Sequences with one token stand first.

    Attributes:
        tokens: the batch.
        slots: `[num_tokens]`: where each token's key and value are written.
        num_decodes: so many sequences, at the front, have one token each.
        contexts: `[sequences]`: tokens of each sequence, those of this step among them.
        slot_table: `[sequences, longest context]`: where each sequence's tokens lie, on the host.
        tables: the same for kernels; None where the KV memory is not paged.
    """

    tokens: RaggedTokens
    slots: Tensor
    num_decodes: int
    contexts: IntArray
    slot_table: IntArray
    tables: BlockTables | None


@dataclass(slots=True)
class Prefill:
    """Several tokens of one sequence: `[first, last)` of the batch.

    `slots`, `[context]`, hold the keys and values up to the last of them. `mask` is None where the
    chunk begins at position 0.
    """

    first: int
    last: int
    slots: Tensor
    mask: Tensor | None


@dataclass(slots=True)
class Gathers:
    """What attention without block tables must copy together before it can compute.

    Attributes:
        decode_slots: `[num_decodes, context]`: what they read, padded to the longest.
        decode_mask: `[num_decodes, context]`: 0, or -inf on the padding; None without padding.
        prefills: the other sequences.
    """

    decode_slots: Tensor
    decode_mask: Tensor | None
    prefills: list[Prefill]


def ragged_tokens(
    plan: StepPlan,
    rows: Sequence[int],
    starts: Sequence[int],
    lens: Sequence[int],
    device: torch.device,
) -> RaggedTokens:
    """Tokens `starts[i] .. starts[i] + lens[i] - 1` of each `plan.requests[rows[i]]`, in a row."""
    token_ids: list[int] = []
    for row, start, length in zip(rows, starts, lens, strict=True):
        token_ids += plan.requests[row].token_ids[start : start + length]
    counts = np.array(lens, dtype=np.int64)
    ends = counts.cumsum()  # [sequences]
    first = ends - counts
    positions = np.arange(len(token_ids)) - np.repeat(first - np.array(starts), counts)
    samples = [i for i, row in enumerate(rows) if plan.samples[row]]
    return RaggedTokens(
        list(rows),
        [rows[i] for i in samples],
        first,
        ends - 1,
        positions,
        torch.from_numpy(positions).to(device),
        torch.tensor(token_ids, dtype=torch.int64, device=device),
        torch.from_numpy(ends[samples] - 1).to(device),
    )


def cached_batch(plan: StepPlan, kv: KVCache, device: torch.device) -> CachedBatch:
    """The plan's own tokens, with slots for their keys and values and for all that they attend to.

    Args:
        plan: not empty.
        kv: answers which slots a request's tokens have.
        device: of the model.
    """
    # Sequences with one token first: their attention is computed in one batch.
    rows = sorted(range(len(plan.requests)), key=lambda row: plan.num_tokens[row] > 1)
    starts = [plan.starts[row] for row in rows]
    lens = [plan.num_tokens[row] for row in rows]
    tokens = ragged_tokens(plan, rows, starts, lens, device)
    contexts = np.add(starts, lens)  # [sequences]
    requests = [plan.requests[row] for row in rows]
    table = kv.slot_table(requests, int(contexts.max()))
    slots = table[np.repeat(np.arange(len(rows)), lens), tokens.host_positions]  # [num_tokens]
    return CachedBatch(
        tokens,
        torch.from_numpy(slots).to(device),
        lens.count(1),
        contexts,
        table,
        _block_tables(kv, requests, contexts, lens, device) if isinstance(kv, PagedKV) else None,
    )


def gathers_of(batch: CachedBatch, dtype: torch.dtype) -> Gathers:
    """Slots to read and masks for a batch; `dtype` is the scores', to which masks are added."""
    device, n = batch.slots.device, batch.num_decodes
    slots, mask = _decode_context(batch.slot_table[:n], batch.contexts[:n], dtype)
    prefills = []
    for i in range(n, len(batch.contexts)):
        first, end = int(batch.tokens.first[i]), int(batch.tokens.last[i]) + 1
        context = int(batch.contexts[i])
        read = torch.from_numpy(batch.slot_table[i, :context]).to(device)  # [context]
        is_first_chunk = context == end - first
        future = None if is_first_chunk else causal_mask(end - first, context, dtype, device)
        prefills.append(Prefill(first, end, read, future))
    return Gathers(slots.to(device), None if mask is None else mask.to(device), prefills)


def _block_tables(
    kv: PagedKV,
    requests: Sequence[Request],
    contexts: IntArray,
    lens: list[int],
    device: torch.device,
) -> BlockTables:
    num_decodes = lens.count(1)
    starts = np.cumsum([0, *lens[num_decodes:]])  # [prefills + 1]

    def int32(array: IntArray) -> Tensor:
        return torch.from_numpy(array.astype(np.int32)).to(device)

    return BlockTables(
        int32(kv.block_tables(requests, int(contexts.max()))),
        int32(contexts),
        int32(starts),
        int(contexts[:num_decodes].max(initial=0)),
    )


def _decode_context(
    table: IntArray, contexts: IntArray, dtype: torch.dtype
) -> tuple[Tensor, Tensor | None]:
    longest = int(contexts.max(initial=0))
    slots = torch.from_numpy(table[:, :longest])  # [num_decodes, longest]
    if (contexts == longest).all():
        return slots, None
    is_padding = torch.from_numpy(np.arange(longest) >= contexts[:, None])
    mask = torch.zeros(is_padding.shape, dtype=dtype).masked_fill(is_padding, -torch.inf)
    return slots, mask
