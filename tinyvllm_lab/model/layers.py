"""The parts of a Llama layer as plain functions (chapter 03).

Batches are *ragged*: the tokens of all sequences stand in one long row `[num_tokens, ...]`, without
padding, and only attention needs to know where one sequence ends and the next begins. Shapes are
written beside the lines that make them. Norms, angles and softmax are computed in float32, whatever
the type of the weights.

Sources: "RoFormer" (Su et al., 2021) for RoPE, "Root Mean Square Layer Normalization" (Zhang and
Sennrich, 2019), "GLU Variants Improve Transformer" (Shazeer, 2020), "GQA" (Ainslie et al., 2023),
and transformers' `modeling_rope_utils.py` for the two ways to stretch RoPE.
"""

import math
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from tinyvllm_lab.errors import ModelError
from tinyvllm_lab.model.config import RopeConfig


def embedding(token_ids: Tensor, table: Tensor) -> Tensor:
    """Each token's row of the table: `[num_tokens]` -> `[num_tokens, hidden_size]`."""
    return F.embedding(token_ids, table)


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Scale each row of `x` to a root mean square of 1, then each column by its weight.

    `x` is `[..., hidden_size]`, `weight` `[hidden_size]`; the result has the shape and type of `x`.
    Squares of 16-bit numbers overflow or vanish early, hence float32 inside.
    """
    x32 = x.float()
    scale = torch.rsqrt(x32.square().mean(dim=-1, keepdim=True) + eps)  # [..., 1]
    return weight * (x32 * scale).to(x.dtype)  # [..., hidden_size]


def silu_mul(gate: Tensor, up: Tensor) -> Tensor:
    """The element-wise part of SwiGLU: `gate * sigmoid(gate) * up`, all of the same shape."""
    return F.silu(gate) * up


def inverse_frequencies(head_dim: int, rope: RopeConfig) -> Tensor:
    """Radians per position of each pair of a head: `[head_dim / 2]`, float32."""
    exponents = torch.arange(0, head_dim, 2).float() / head_dim  # [head_dim / 2]
    frequencies = 1.0 / rope.theta**exponents
    if rope.rope_type == "linear":
        return frequencies / rope.factor
    if rope.rope_type == "llama3":
        return _llama3_frequencies(frequencies, rope)
    return frequencies


def _llama3_frequencies(frequencies: Tensor, rope: RopeConfig) -> Tensor:
    """Slow down only the pairs whose wavelength reaches beyond the trained context.

    A pair that turned `high_freq_factor` times or more within the original context stays as it is;
    one that turned fewer than `low_freq_factor` times becomes `factor` times slower; between them
    the two are blended, so that no step is left in the spectrum.
    """
    wavelengths = 2 * math.pi / frequencies  # [head_dim / 2], in tokens
    turns = rope.original_max_position_embeddings / wavelengths
    keep = (turns - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor)
    keep = keep.clamp(0.0, 1.0)
    return (1 - keep) * frequencies / rope.factor + keep * frequencies


def rope_tables(positions: Tensor, frequencies: Tensor) -> tuple[Tensor, Tensor]:
    """Cosine and sine of every angle: `[num_tokens]` -> two of `[num_tokens, head_dim / 2]`."""
    angles = positions.float()[:, None] * frequencies  # [num_tokens, head_dim / 2]
    return angles.cos(), angles.sin()


def apply_rope(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn pair `i` of every head by its token's angle.

    `x` is `[num_tokens, heads, head_dim]`. Checkpoints in Hugging Face's format pair element `i`
    with element `i + head_dim / 2` ("half-split"); Meta's own and GGUF files pair neighbours.
    """
    first, second = x.chunk(2, dim=-1)  # each [num_tokens, heads, head_dim / 2]
    cos, sin = cos[:, None], sin[:, None]  # the same for all heads: [num_tokens, 1, head_dim / 2]
    turned = (first * cos - second * sin, second * cos + first * sin)
    return torch.cat(turned, dim=-1).to(x.dtype)  # [num_tokens, heads, head_dim]


def rope(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    """`apply_rope` on queries and keys."""
    return apply_rope(q, cos, sin), apply_rope(k, cos, sin)


def causal_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attention of one sequence, spelled out; the queries belong to its last positions.

    `q` is `[queries, num_heads, head_dim]`, `k` and `v` are `[context, num_kv_heads, head_dim]`
    with `context >= queries`; the result has the shape of `q`. Query heads share a key/value head
    in groups (GQA); each query sees the keys up to its own position.
    """
    queries, num_heads, head_dim = q.shape
    context, num_kv_heads, _ = k.shape
    q = q.view(queries, num_kv_heads, num_heads // num_kv_heads, head_dim)
    scores = torch.einsum("qhgd,chd->hgqc", q, k) * head_dim**-0.5
    scores = scores + causal_mask(queries, context, scores.dtype, scores.device)
    weights = scores.softmax(dim=-1, dtype=torch.float32).to(v.dtype)  # [kv, group, queries, ctx]
    out = torch.einsum("hgqc,chd->qhgd", weights, v)
    return out.reshape(queries, num_heads, head_dim)


def causal_mask(
    queries: int, context: int, dtype: torch.dtype, device: torch.device | str = "cpu"
) -> Tensor:
    """To add to the scores of the last `queries` of `context` positions: 0, or -inf for the future.

    Shape `[queries, context]`.
    """
    full = torch.full((queries, context), -math.inf, dtype=dtype, device=device)
    return full.triu(diagonal=context - queries + 1)


def fused_causal_attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
    """`causal_attention` in one fused call, which never holds all the scores at once.

    `mask` saves building `causal_mask` again in every layer, where queries and context differ.
    """
    queries, context = len(q), len(k)
    if mask is None and 1 < queries < context:
        mask = causal_mask(queries, context, q.dtype, q.device)
    q, k, v = (t.transpose(0, 1)[None] for t in (q, k, v))  # each [1, heads, tokens, head_dim]
    out = F.scaled_dot_product_attention(
        q, k, v, attn_mask=mask, is_causal=queries == context, enable_gqa=True
    )  # [1, num_heads, queries, head_dim]
    return out[0].transpose(0, 1)


def batched_decode_attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
    """One query per sequence, all sequences at once, padded to the longest context.

    `q` is `[sequences, num_heads, head_dim]`, `k` and `v` are `[sequences, context, num_kv_heads,
    head_dim]`, `mask` is `[sequences, context]`: 0, or -inf where a sequence has no such token,
    or None if all are equally long. The query heads that share a key/value head go in as so many
    queries of that one head, so that no key is copied per query head.
    """
    sequences, num_heads, head_dim = q.shape
    num_kv_heads = k.shape[2]
    q = q.view(sequences, num_kv_heads, num_heads // num_kv_heads, head_dim)
    padding = None if mask is None else mask[:, None, None]  # [sequences, 1, 1, context]
    out = F.scaled_dot_product_attention(
        q, k.transpose(1, 2), v.transpose(1, 2), attn_mask=padding
    )  # [sequences, num_kv_heads, group, head_dim]
    return out.reshape(sequences, num_heads, head_dim)


class CausalAttention:
    """Attention without a cache: each layer sees the keys and values of this one call.

    Args:
        query_lens: tokens of each sequence in the ragged batch, all of them from position 0 on.
        attention: `causal_attention`, or `fused_causal_attention` for speed.
    """

    def __init__(
        self,
        query_lens: Sequence[int],
        attention: Callable[[Tensor, Tensor, Tensor], Tensor] = causal_attention,
    ) -> None:
        self.query_lens = list(query_lens)
        self.attention = attention

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """See `AttentionBackend.attend`.

        Raises:
            ModelError: the lengths do not add up to the batch.
        """
        if sum(self.query_lens) != len(q):
            raise ModelError(
                f"CausalAttention was made for {sum(self.query_lens)} tokens, and got {len(q)}.",
                expected="query_lens that add up to the number of tokens",
            )
        parts = [t.split(self.query_lens) for t in (q, k, v)]
        return torch.cat([self.attention(*sequence) for sequence in zip(*parts, strict=True)])
