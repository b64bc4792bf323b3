"""From a `StepPlan` to tensors: the ragged batch of one forward pass (chapters 09 and 10)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

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
        decode_slots: `[num_decodes, context]`: what they read, padded to the longest.
        decode_mask: `[num_decodes, context]`: 0, or -inf on the padding; None without padding.
        prefills: the other sequences.
        tables: the same for kernels; None where the KV memory is not paged.
    """

    tokens: RaggedTokens
    slots: Tensor
    num_decodes: int
    decode_slots: Tensor
    decode_mask: Tensor | None
    prefills: list[Prefill] = field(default_factory=list)
    tables: BlockTables | None = None


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


def cached_batch(
    plan: StepPlan, kv: KVCache, dtype: torch.dtype, device: torch.device
) -> CachedBatch:
    """The plan's own tokens, with slots for their keys and values and for all that they attend to.

    Args:
        plan: not empty.
        kv: answers which slots a request's tokens have.
        dtype, device: of the model: masks are added to its scores.
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
    num_decodes = lens.count(1)
    decode_slots, decode_mask = _decode_context(table[:num_decodes], contexts[:num_decodes], dtype)
    prefills = []
    for i in range(num_decodes, len(rows)):
        mask = causal_mask(lens[i], int(contexts[i]), dtype, device) if starts[i] else None
        read = torch.from_numpy(table[i, : contexts[i]]).to(device)  # [context]
        prefills.append(Prefill(int(tokens.first[i]), int(tokens.last[i]) + 1, read, mask))
    return CachedBatch(
        tokens,
        torch.from_numpy(slots).to(device),
        num_decodes,
        decode_slots.to(device),
        None if decode_mask is None else decode_mask.to(device),
        prefills,
        _block_tables(kv, requests, contexts, lens, device) if isinstance(kv, PagedKV) else None,
    )


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
