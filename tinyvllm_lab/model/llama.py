"""The Llama forward pass: token ids in, logits out (chapter 03).

The model knows no cache. It hands each layer's rotated queries, keys and values to an attention
backend; whether that one keeps them, and where, is not the model's business. So the same forward
serves a notebook without a cache, a contiguous one and a paged one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from tinyvllm_lab.errors import ConfigError
from tinyvllm_lab.model import layers
from tinyvllm_lab.model.config import ModelConfig
from tinyvllm_lab.model.safetensors import open_checkpoint
from tinyvllm_lab.model.weights import (
    EMBEDDING,
    FINAL_NORM,
    LM_HEAD,
    LayerWeights,
    check_names,
    check_tensors,
    load_tensor,
    resolve_dtype,
    weight_shapes,
)


class AttentionBackend(Protocol):
    """What the forward pass asks of attention: `CausalAttention`, or one with a KV cache."""

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Let every query look at the keys and values that it may see.

        `q` is `[num_tokens, num_heads, head_dim]`, `k` and `v` are `[num_tokens, num_kv_heads,
        head_dim]`, all of this step and already rotated. Returns the shape of `q`. A backend with a
        cache writes all of `k` and `v` before it reads any.
        """


@dataclass(frozen=True)
class TorchOps:
    """The operations of a layer that a kernel of your own can replace (chapters 06 and 07).

    Matrix products stay with torch, attention with its backend. Each field has the signature of the
    function in `layers` that it starts as.
    """

    embedding: Callable[[Tensor, Tensor], Tensor] = layers.embedding
    rms_norm: Callable[[Tensor, Tensor, float], Tensor] = layers.rms_norm
    rope: Callable[[Tensor, Tensor, Tensor, Tensor], tuple[Tensor, Tensor]] = layers.rope
    silu_mul: Callable[[Tensor, Tensor], Tensor] = layers.silu_mul

    def with_kernels(self, kernels: Mapping[str, Callable[..., Any]]) -> TorchOps:
        """The same with some operations replaced; "rmsnorm", the file's name, means `rms_norm`.

        Raises:
            ConfigError: a name is unknown, or its kernel cannot be called.
        """
        kernels = {name.replace("rmsnorm", "rms_norm"): kernel for name, kernel in kernels.items()}
        names = [f.name for f in fields(self)]
        for name, kernel in kernels.items():
            if name not in names:
                raise ConfigError(f"No operation is called {name!r}.", "one of " + ", ".join(names))
            if not callable(kernel):
                raise ConfigError(f"The kernel for {name!r} is {kernel!r}.", "a function")
        return replace(self, **kernels)


class LlamaModel:
    """A Llama model. Everything about a call is in its arguments: there is no state between calls.

    Attributes:
        config: its `ModelConfig`.
        embed_tokens: `[vocab_size, hidden_size]`.
        layers: a `LayerWeights` each.
        norm: `[hidden_size]`.
        lm_head: `[vocab_size, hidden_size]`; the very tensor `embed_tokens` if they are tied.
        frequencies: RoPE's radians per position, `[head_dim / 2]`, float32.
        ops: the replaceable operations.

    Args:
        config: the model's shape.
        weights: a tensor for each name in `weight_shapes(config)`; all of one dtype and device.
        ops: own kernels, if any.

    Raises:
        ModelError: a weight is missing, has another shape, or is one that we would ignore.
    """

    def __init__(
        self, config: ModelConfig, weights: Mapping[str, Tensor], ops: TorchOps | None = None
    ) -> None:
        check_names(config, weights)
        check_tensors(config, weights)
        self.config = config
        self.ops = ops or TorchOps()
        self.embed_tokens = weights[EMBEDDING]
        self.layers = [LayerWeights.of_layer(weights, i) for i in range(config.num_layers)]
        self.norm = weights[FINAL_NORM]
        tied = config.tie_word_embeddings
        self.lm_head = self.embed_tokens if tied else weights[LM_HEAD]
        frequencies = layers.inverse_frequencies(config.head_dim, config.rope)
        self.frequencies = frequencies.to(self.embed_tokens.device)

    @classmethod
    def from_dir(
        cls,
        folder: str | Path,
        dtype: str | torch.dtype | None = None,
        device: torch.device | str = "cpu",
        ops: TorchOps | None = None,
    ) -> LlamaModel:
        """Load a folder in Hugging Face's layout.

        Without `dtype` (or with the file's own), on a CPU, nothing is copied: the weights are views
        of the mapped file, which the operating system reads when they are first used.

        Raises:
            ModelError: config or weights are missing, damaged or of an unsupported kind.
            SafetensorsError: a weight file is damaged.
        """
        config = ModelConfig.from_dir(folder)
        with open_checkpoint(folder) as checkpoint:
            check_names(config, checkpoint)
            target, place = (
                resolve_dtype(dtype or checkpoint[EMBEDDING].dtype),
                torch.device(device),
            )
            weights = {
                name: load_tensor(checkpoint[name], name, target, place)
                for name in weight_shapes(config)
            }
        return cls(config, weights, ops)

    @classmethod
    def random(
        cls, config: ModelConfig, seed: int = 0, dtype: str | torch.dtype = "float32"
    ) -> LlamaModel:
        """A model with random weights, for tests and for measuring: it speaks nonsense."""
        generator = torch.Generator().manual_seed(seed)
        weights = {}
        for name, shape in weight_shapes(config).items():
            noise = torch.randn(shape, generator=generator)
            # Norms scatter around 1, projections keep the size of their input: logits stay finite.
            weights[name] = 1 + 0.1 * noise if len(shape) == 1 else noise * shape[1] ** -0.5
        target = resolve_dtype(dtype)
        return cls(config, {name: w.to(target) for name, w in weights.items()})

    def with_ops(self, ops: TorchOps) -> LlamaModel:
        """The same model, sharing its weights, with other operations."""
        clone = object.__new__(type(self))
        clone.__dict__.update(self.__dict__, ops=ops)
        return clone

    @property
    def dtype(self) -> torch.dtype:
        """Type of weights and activations."""
        return self.embed_tokens.dtype

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.embed_tokens.device

    def forward(
        self,
        token_ids: Tensor,
        positions: Tensor,
        attend: AttentionBackend,
        logits_rows: Tensor | None = None,
    ) -> Tensor:
        """One pass over a ragged batch.

        Args:
            token_ids: `[num_tokens]`, int64: the tokens of all sequences, one after the other.
            positions: `[num_tokens]`, int64: each token's place in its own sequence, from 0.
            attend: the attention backend, which knows where sequences begin and end.
            logits_rows: `[rows]`, int64: tokens whose logits are wanted; None: all of them. The
                head is the widest matrix of a small model: a prefill needs only its last token's.

        Returns:
            `[rows, vocab_size]`, float32.
        """
        cos, sin = layers.rope_tables(positions, self.frequencies)  # [num_tokens, head_dim / 2]
        x = self.ops.embedding(token_ids, self.embed_tokens)  # [num_tokens, hidden_size]
        for index, layer in enumerate(self.layers):
            x = x + self._attention(index, layer, x, cos, sin, attend)
            x = x + self._mlp(layer, x)
        if logits_rows is not None:
            x = x[logits_rows]  # [rows, hidden_size]
        x = self.ops.rms_norm(x, self.norm, self.config.rms_norm_eps)
        return F.linear(x, self.lm_head).float()  # [rows, vocab_size]

    def _attention(
        self,
        index: int,
        layer: LayerWeights,
        x: Tensor,
        cos: Tensor,
        sin: Tensor,
        attend: AttentionBackend,
    ) -> Tensor:
        num_tokens, split = len(x), (len(x), -1, self.config.head_dim)
        h = self.ops.rms_norm(x, layer.input_norm, self.config.rms_norm_eps)
        q = F.linear(h, layer.q_proj).view(split)  # [num_tokens, num_heads, head_dim]
        k = F.linear(h, layer.k_proj).view(split)  # [num_tokens, num_kv_heads, head_dim]
        v = F.linear(h, layer.v_proj).view(split)  # [num_tokens, num_kv_heads, head_dim]
        q, k = self.ops.rope(q, k, cos, sin)
        out = attend.attend(index, q, k, v)  # [num_tokens, num_heads, head_dim]
        return F.linear(out.reshape(num_tokens, -1), layer.o_proj)  # [num_tokens, hidden_size]

    def _mlp(self, layer: LayerWeights, x: Tensor) -> Tensor:
        h = self.ops.rms_norm(x, layer.mlp_norm, self.config.rms_norm_eps)
        gate = F.linear(h, layer.gate_proj)  # [num_tokens, intermediate_size]
        up = F.linear(h, layer.up_proj)  # [num_tokens, intermediate_size]
        return F.linear(self.ops.silu_mul(gate, up), layer.down_proj)  # [num_tokens, hidden_size]
