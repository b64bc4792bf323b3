"""The torch twin of each kernel: the same call, the same result, on any device.

A twin has the signature of its kernel's launch function (without `version`) and its way of
computing: sums in float32 whatever the type, one rounding at the end. It says what the kernel
should do; it is not fast.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

MASS_OF_LIKELIEST = 2**40  # what the sampling kernels give the likeliest token of a row


def embedding(token_ids: Tensor, weight: Tensor) -> Tensor:
    """See `launches.embedding`."""
    known = (token_ids >= 0) & (token_ids < len(weight))  # [num_tokens]
    rows = F.embedding(torch.where(known, token_ids, 0), weight)  # [num_tokens, dim]
    return rows.masked_fill(~known[:, None], 0)


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """See `launches.rms_norm`."""
    x32 = x.float()
    scale = torch.rsqrt(x32.square().mean(dim=-1, keepdim=True) + eps)  # [..., 1]
    return (x32 * scale * weight.float()).to(x.dtype)  # [..., dim]


def add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """See `launches.add_rms_norm`."""
    residual.copy_(x.float() + residual.float())
    return rms_norm(residual, weight, eps), residual


def rope(
    q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, positions: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """See `launches.rope`."""
    if positions is not None:
        cos, sin = cos[positions], sin[positions]  # [num_tokens, head_dim / 2]
    cos, sin = cos[:, None], sin[:, None]  # [num_tokens, 1, head_dim / 2]
    for x in (q, k):
        a, b = x.float().chunk(2, dim=-1)  # each [num_tokens, heads, head_dim / 2]
        x.copy_(torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1))
    return q, k


def silu_mul(gate: Tensor, up: Tensor) -> Tensor:
    """See `launches.silu_mul`."""
    return (F.silu(gate.float()) * up.float()).to(gate.dtype)


def softmax(x: Tensor) -> Tensor:
    """See `launches.softmax`."""
    return x.float().softmax(dim=-1).to(x.dtype)


def matmul(a: Tensor, weight: Tensor) -> Tensor:
    """See `launches.matmul`."""
    return F.linear(a.float(), weight.float()).to(a.dtype)


def gemv(x: Tensor, weight: Tensor) -> Tensor:
    """See `launches.gemv`."""
    return matmul(x, weight)


def reshape_and_cache(
    k: Tensor, v: Tensor, k_cache: Tensor, v_cache: Tensor, slot_mapping: Tensor
) -> None:
    """See `cache_launches.reshape_and_cache`."""
    real = slot_mapping >= 0  # [num_tokens]
    slots = slot_mapping[real]
    k_cache.flatten(0, 1)[slots] = k[real]
    v_cache.flatten(0, 1)[slots] = v[real]


def copy_blocks(k_cache: Tensor, v_cache: Tensor, pairs: Tensor) -> None:
    """See `cache_launches.copy_blocks`."""
    source, target = pairs.unbind(dim=1)
    k_cache[target] = k_cache[source]
    v_cache[target] = v_cache[source]


def paged_attention(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    block_table: Tensor,
    seq_lens: Tensor,
    scale: float,
    max_seq_len: int | None = None,
) -> Tensor:
    """See `cache_launches.paged_attention`."""
    starts = torch.arange(len(q) + 1, dtype=torch.int32, device=q.device)
    return prefill_attention(q, k_cache, v_cache, block_table, seq_lens, starts, scale)


def prefill_attention(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    block_table: Tensor,
    seq_lens: Tensor,
    query_start_loc: Tensor,
    scale: float,
) -> Tensor:
    """See `cache_launches.prefill_attention`."""
    out, starts = torch.zeros_like(q), query_start_loc.tolist()
    for s, length in enumerate(seq_lens.tolist()):
        first, last = starts[s], starts[s + 1]
        if last == first or length == 0:
            continue
        blocks = block_table[s, : -(-length // k_cache.shape[1])].long()
        keys = k_cache[blocks].flatten(0, 1)[:length]  # [length, num_kv_heads, head_dim]
        values = v_cache[blocks].flatten(0, 1)[:length]
        out[first:last] = _causal_attention(q[first:last], keys, values, scale)
    return out  # [num_tokens, num_heads, head_dim]


def _causal_attention(q: Tensor, keys: Tensor, values: Tensor, scale: float) -> Tensor:
    """The queries `[n, num_heads, head_dim]` belong to the last n of the keys' positions."""
    (n, heads, head_dim), (length, kv_heads, _) = q.shape, keys.shape
    grouped = q.float().view(n, kv_heads, heads // kv_heads, head_dim)
    scores = torch.einsum("nkgd,lkd->kgnl", grouped, keys.float()) * scale
    future = torch.ones(n, length, dtype=torch.bool, device=q.device).triu(length - n + 1)
    weights = scores.masked_fill(future, -torch.inf).softmax(dim=-1)  # [kv_heads, group, n, length]
    out = torch.einsum("kgnl,lkd->nkgd", weights, values.float())
    return out.reshape(n, heads, head_dim).to(q.dtype)


def argmax(logits: Tensor) -> Tensor:
    """See `sampling_launches.argmax`."""
    if not logits.shape[1]:
        return torch.zeros(len(logits), dtype=torch.int32, device=logits.device)
    real = torch.where(logits.isnan(), -torch.inf, logits.float())  # [rows, vocab]
    return (real == real.amax(dim=-1, keepdim=True)).int().argmax(dim=-1).int()


def sample_top_k_top_p(
    logits: Tensor, temperature: Tensor, top_k: Tensor, top_p: Tensor, uniform: Tensor
) -> Tensor:
    """See `sampling_launches.sample_top_k_top_p`."""
    if not logits.shape[1]:
        return torch.zeros(len(logits), dtype=torch.int32, device=logits.device)
    real = torch.where(logits.isnan(), -torch.inf, logits.float())  # [rows, vocab]
    mass = _masses(real, temperature).masked_fill(logits.isnan(), 0)
    mass = mass.masked_fill(real < _kth_largest(real, top_k), 0)
    mass = mass.masked_fill(real < _nucleus_border(real, mass, top_p), 0)
    up_to = mass.cumsum(dim=-1)  # [rows, vocab]
    total = up_to[:, -1:]
    ticket = (uniform.double()[:, None] * total.double()).long().minimum(total - 1)  # [rows, 1]
    return torch.searchsorted(up_to, ticket, right=True)[:, 0].int()


def _masses(real: Tensor, temperature: Tensor) -> Tensor:
    """Probabilities in whole units, `[rows, vocab]` int64: in any order they have the same sum."""
    largest = real.amax(dim=-1, keepdim=True)
    greedy = temperature[:, None] <= 0
    inverse = torch.where(greedy, 0.0, 1.0 / temperature[:, None])
    relative = torch.exp((real - largest) * inverse)
    relative = torch.where(greedy | (real == -torch.inf), 0.0, relative)
    relative = torch.where(real == largest, 1.0, relative)
    return (relative * MASS_OF_LIKELIEST).long()


def _kth_largest(real: Tensor, top_k: Tensor) -> Tensor:
    """`[rows, 1]`: the k-th largest logit of each row; -inf where top-k is off."""
    vocab = real.shape[1]
    off = (top_k <= 0) | (top_k >= vocab)
    place = torch.where(off, vocab, top_k).long() - 1  # [rows]
    border = real.sort(dim=-1, descending=True).values.gather(1, place[:, None])
    return border.masked_fill(off[:, None], -torch.inf)


def _nucleus_border(real: Tensor, mass: Tensor, top_p: Tensor) -> Tensor:
    """`[rows, 1]`: the logit at which the likeliest tokens' masses reach the share `top_p`."""
    ordered, order = real.sort(dim=-1, descending=True)
    reached = mass.gather(1, order).cumsum(dim=-1)  # [rows, vocab]
    total = reached[:, -1:]
    target = (top_p.double()[:, None] * total.double()).ceil().long().clamp(min=1).minimum(total)
    place = torch.searchsorted(reached, target).clamp(max=real.shape[1] - 1)  # [rows, 1]
    return ordered.gather(1, place).masked_fill(top_p[:, None] >= 1, -torch.inf)
