"""From a `StepPlan` to tensors: the ragged batch of one forward pass (chapters 09 and 10)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from tinyvllm_lab.cache.kv import KVCache
from tinyvllm_lab.engine.plan import StepPlan
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
class CachedBatch:
    """A ragged batch and where its keys and values lie. Sequences with one token stand first.

    Attributes:
        tokens: the batch.
        slots: `[num_tokens]`: where each token's key and value are written.
        num_decodes: so many sequences, at the front, have one token each.
        decode_slots: `[num_decodes, context]`: what they read, padded to the longest.
        decode_mask: `[num_decodes, context]`: 0, or -inf on the padding; None without padding.
        prefills: the other sequences.
    """

    tokens: RaggedTokens
    slots: Tensor
    num_decodes: int
    decode_slots: Tensor
    decode_mask: Tensor | None
    prefills: list[Prefill] = field(default_factory=list)


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
    table = kv.slot_table([plan.requests[row] for row in rows], int(contexts.max()))
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
