"""A paged KV cache for tests, with NaN wherever nobody may look, and float64 attention over it."""

from dataclasses import dataclass

import torch
from ops_harness import randn
from torch import Tensor


@dataclass
class Paged:
    """The arguments of the attention operations, and the keys and values in plain order."""

    q: Tensor  # [num_tokens, num_heads, head_dim]
    k_cache: Tensor  # [num_blocks, block_size, num_kv_heads, head_dim]
    v_cache: Tensor
    block_table: Tensor  # [num_seqs, max_blocks] int32
    seq_lens: Tensor  # [num_seqs] int32
    keys: list[Tensor]  # of each sequence: [length, num_kv_heads, head_dim]
    values: list[Tensor]
    scale: float


def paged(
    lengths: list[int],
    group: int,
    head_dim: int,
    block_size: int,
    dtype: torch.dtype,
    num_tokens: int | None = None,
    kv_heads: int = 2,
) -> Paged:
    """Sequences of these lengths, their blocks shuffled through a pool with 3 blocks too many."""
    counts = [-(-length // block_size) for length in lengths]
    blocks = torch.randperm(
        sum(counts) + 3, generator=torch.Generator().manual_seed(len(lengths))
    ).split([*counts, 3])
    pool = (sum(counts) + 3, block_size, kv_heads, head_dim)
    k_cache, v_cache = (torch.full(pool, torch.nan, dtype=dtype) for _ in range(2))
    block_table = torch.full((len(lengths), max(counts) + 1), 2**30, dtype=torch.int32)
    keys, values = [], []
    for s, length in enumerate(lengths):
        block_table[s, : counts[s]] = blocks[s]
        slots = blocks[s][:, None] * block_size + torch.arange(block_size)
        for cache, plain, seed in (k_cache, keys, 2 * s), (v_cache, values, 2 * s + 1):
            plain.append(randn(length, kv_heads, head_dim, dtype=dtype, seed=seed))
            cache.flatten(0, 1)[slots.flatten()[:length]] = plain[-1]
    q = randn(num_tokens or len(lengths), group * kv_heads, head_dim, dtype=dtype, seed=99)
    seq_lens = torch.tensor(lengths, dtype=torch.int32)
    return Paged(q, k_cache, v_cache, block_table, seq_lens, keys, values, head_dim**-0.5)


def attention_oracle(case: Paged, query_lens: list[int]) -> Tensor:
    """Float64, one query head and one sequence at a time, straight from the definition."""
    out, row = torch.zeros(case.q.shape, dtype=torch.float64), 0
    group = case.q.shape[1] // case.k_cache.shape[2]
    for s, n in enumerate(query_lens):
        length = len(case.keys[s])
        position = torch.arange(length - n, length)[:, None]  # of each query
        visible = torch.arange(length) <= position  # [n, length]
        for head in range(case.q.shape[1] * (length > 0)):
            key, value = (x[s][:, head // group].double() for x in (case.keys, case.values))
            scores = case.q[row : row + n, head].double() @ key.T * case.scale  # [n, length]
            weights = scores.masked_fill(~visible, -torch.inf).softmax(dim=-1)
            out[row : row + n, head] = weights @ value
        row += n
    return out
