"""Attention over the KV cache, for the ragged batch of one step (chapters 05, 09 and 10)."""

import torch
from torch import Tensor

from tinyvllm_lab.cache.kv import KVCache
from tinyvllm_lab.engine.batch import CachedBatch, gathers_of
from tinyvllm_lab.model.layers import batched_decode_attention, fused_causal_attention


class CachedAttention:
    """An `AttentionBackend` for one step, over paged or contiguous KV.

    It writes the keys and values of the whole batch before any sequence reads: two sequences may
    share a block that one of them fills in this very step.

    Args:
        kv: the tensors.
        batch: the step's sequences and their slots.
    """

    def __init__(self, kv: KVCache, batch: CachedBatch) -> None:
        self.kv, self.batch = kv, batch
        self.gathers = gathers_of(batch, kv.key.dtype)

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """See `AttentionBackend.attend`."""
        self.kv.write(layer, self.batch.slots, k, v)
        parts = [self._decodes(layer, q)] if self.batch.num_decodes else []
        for prefill in self.gathers.prefills:
            keys, values = self.kv.read(layer, prefill.slots)  # [context, num_kv_heads, head_dim]
            queries = q[prefill.first : prefill.last]
            parts.append(fused_causal_attention(queries, keys, values, prefill.mask))
        return (
            parts[0] if len(parts) == 1 else torch.cat(parts)
        )  # [num_tokens, num_heads, head_dim]

    def _decodes(self, layer: int, q: Tensor) -> Tensor:
        slots, mask = self.gathers.decode_slots, self.gathers.decode_mask
        keys, values = self.kv.read(layer, slots)  # [sequences, context, num_kv_heads, head_dim]
        return batched_decode_attention(q[: self.batch.num_decodes], keys, values, mask)
