"""The tensors of a Llama checkpoint: their names, shapes, and what is refused (chapter 02)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from tinyvllm_lab.errors import ModelError
from tinyvllm_lab.model.config import WEIGHT_DTYPES, ModelConfig

EMBEDDING = "model.embed_tokens.weight"
FINAL_NORM = "model.norm.weight"
LM_HEAD = "lm_head.weight"


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """Weights of one layer. A projection is `[outputs, inputs]`, a norm `[hidden_size]`."""

    input_norm: Tensor
    q_proj: Tensor
    k_proj: Tensor
    v_proj: Tensor
    o_proj: Tensor
    mlp_norm: Tensor
    gate_proj: Tensor
    up_proj: Tensor
    down_proj: Tensor

    @classmethod
    def of_layer(cls, weights: Mapping[str, Tensor], layer: int) -> LayerWeights:
        """Pick one layer's tensors out of a checkpoint."""
        names = {field: f"model.layers.{layer}.{name}.weight" for field, name in _NAMES.items()}
        return cls(**{field: weights[name] for field, name in names.items()})


_NAMES = {
    "input_norm": "input_layernorm",
    "q_proj": "self_attn.q_proj",
    "k_proj": "self_attn.k_proj",
    "v_proj": "self_attn.v_proj",
    "o_proj": "self_attn.o_proj",
    "mlp_norm": "post_attention_layernorm",
    "gate_proj": "mlp.gate_proj",
    "up_proj": "mlp.up_proj",
    "down_proj": "mlp.down_proj",
}


def weight_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Name and shape of every tensor that a checkpoint of this config holds.

    A tied model has no `lm_head.weight`: the embedding is used twice.
    """
    table = (config.vocab_size, config.hidden_size)
    shapes: dict[str, tuple[int, ...]] = {EMBEDDING: table}
    for layer in range(config.num_layers):
        for field, shape in _layer_shapes(config).items():
            shapes[f"model.layers.{layer}.{_NAMES[field]}.weight"] = shape
    shapes[FINAL_NORM] = (config.hidden_size,)
    if not config.tie_word_embeddings:
        shapes[LM_HEAD] = table
    return shapes


def _layer_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    hidden, wide = config.hidden_size, config.intermediate_size
    q_size = config.num_heads * config.head_dim
    kv_size = config.num_kv_heads * config.head_dim
    return {
        "input_norm": (hidden,),
        "q_proj": (q_size, hidden),
        "k_proj": (kv_size, hidden),
        "v_proj": (kv_size, hidden),
        "o_proj": (hidden, q_size),
        "mlp_norm": (hidden,),
        "gate_proj": (wide, hidden),
        "up_proj": (wide, hidden),
        "down_proj": (hidden, wide),
    }


def check_names(config: ModelConfig, names: Iterable[str]) -> None:
    """Refuse a checkpoint that lacks a tensor, or has one that the forward pass would ignore.

    Raises:
        ModelError: naming the first such tensor.
    """
    present, wanted = set(names), weight_shapes(config)
    missing = [name for name in wanted if name not in present]
    if missing:
        raise ModelError(
            f"The checkpoint lacks the tensor {missing[0]!r} (and {len(missing) - 1} others).",
            expected=f"the {len(wanted)} tensors of a Llama with {config.num_layers} layers",
            fix="Check that config.json belongs to these weights and that every shard is there.",
        )
    extra = sorted(name for name in present - set(wanted) if not _can_be_ignored(name, config))
    if extra:
        raise ModelError(
            f"The checkpoint has a tensor that this model does not use: {extra[0]!r}.",
            expected="no tensor beyond those of a plain Llama: ignoring one would change the text",
        )


def _can_be_ignored(name: str, config: ModelConfig) -> bool:
    # Old checkpoints store RoPE's frequencies, which follow from the config; some tied ones store
    # the head a second time.
    return name.endswith("rotary_emb.inv_freq") or (name == LM_HEAD and config.tie_word_embeddings)


def check_tensors(config: ModelConfig, weights: Mapping[str, Tensor]) -> None:
    """Refuse weights whose shapes, types or devices do not fit together.

    Raises:
        ModelError: naming the first such tensor.
    """
    reference = weights[EMBEDDING]
    for name, shape in weight_shapes(config).items():
        tensor = weights[name]
        if tuple(tensor.shape) != shape:
            raise ModelError(
                f"The tensor {name!r} has shape {list(tensor.shape)}.", f"{list(shape)}"
            )
        if tensor.dtype != reference.dtype or tensor.device != reference.device:
            raise ModelError(
                f"The tensor {name!r} is {tensor.dtype} on {tensor.device}.",
                expected=f"{reference.dtype} on {reference.device}, as the embedding is",
            )


def load_tensor(tensor: Tensor, name: str, dtype: torch.dtype, device: torch.device) -> Tensor:
    """The checkpoint's tensor in the wanted type and place; no copy if it is there already.

    Where a float32 copy for the CPU has to be made, a projection is laid out column by column: MKL
    then needs a fifth less time for the few rows of a decode step, and no more for a prefill's.
    """
    copied = tensor.dtype != dtype and dtype is torch.float32 and device.type == "cpu"
    if copied and name.endswith("_proj.weight"):
        return tensor.t().to(dtype).contiguous().t()
    return tensor.to(device, dtype)


def resolve_dtype(dtype: str | torch.dtype) -> torch.dtype:
    """A weight type from its name: "float32", "float16" or "bfloat16".

    Raises:
        ModelError: weights of this type cannot be computed with.
    """
    name = str(dtype).removeprefix("torch.")
    if name not in WEIGHT_DTYPES:
        raise ModelError(
            f"Weights of type {name!r} cannot be computed with.",
            expected="one of " + ", ".join(WEIGHT_DTYPES),
            fix='Pass dtype="float32".',
        )
    return getattr(torch, name)
