"""Logprobs: how likely the model held what was chosen, and what else it considered (chapter 04)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """How likely the model held the chosen token, and what else it considered.

    Attributes:
        token_id: the chosen token.
        logprob: its log probability.
        rank: its place among all tokens; 1 is the likeliest.
        top: the likeliest tokens as (token id, logprob), best first.
    """

    token_id: int
    logprob: float
    rank: int
    top: tuple[tuple[int, float], ...] = ()


def compute_logprobs(
    logits: Tensor, token_ids: Sequence[int], num_top: Sequence[int | None]
) -> list[TokenLogprobs | None]:
    """Logprobs of the chosen tokens and of the likeliest ones, for the rows that asked.

    Args:
        logits: `[num_rows, vocab_size]`, as the model gave them.
        token_ids: the chosen token of each row.
        num_top: how many of the likeliest tokens each row wants; None: the row did not ask.
    """
    found: list[TokenLogprobs | None] = [None] * len(token_ids)
    asking = [(i, n) for i, n in enumerate(num_top) if n is not None]
    if not asking:
        return found
    indices = [i for i, _ in asking]
    logprobs = logits[indices].float().log_softmax(dim=-1)  # [num_asking, vocab_size]
    ids = torch.tensor([token_ids[i] for i in indices], device=logits.device)[:, None]
    chosen = logprobs.gather(-1, ids)  # [num_asking, 1]
    ranks = (logprobs > chosen).sum(dim=-1) + 1  # [num_asking]
    top = logprobs.topk(min(max(n for _, n in asking), logits.shape[-1]))  # [num_asking, max n]
    columns = (chosen[:, 0].tolist(), ranks.tolist(), top.indices.tolist(), top.values.tolist())
    for (i, n), logprob, rank, top_ids, values in zip(asking, *columns, strict=True):
        pairs = tuple(zip(top_ids[:n], values[:n], strict=True))
        found[i] = TokenLogprobs(token_ids[i], logprob, rank, pairs)
    return found
