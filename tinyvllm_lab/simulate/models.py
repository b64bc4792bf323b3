"""`ModelShape`: as much of a Llama model as its costs depend on (chapters 01, 05 and 16)."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any

from tinyvllm_lab.errors import ConfigError
from tinyvllm_lab.paths import assets_dir

if TYPE_CHECKING:
    from tinyvllm_lab.model.config import ModelConfig

BITS = {
    "float32": 32,
    "bfloat16": 16,
    "float16": 16,
    "float8_e4m3fn": 8,
    "int8": 8,
    "int4": 4,
}
"""Bits of one number. Scales of quantised weights, one or two per cent more, are not counted."""


@dataclass(frozen=True)
class ModelShape:
    """Sizes of a Llama model and the dtypes that its weights and its KV cache are kept in.

    The fields mean what they mean in `ModelConfig`. Costs are those of one token in one forward
    pass, a multiply and an add counting as two FLOPs. Norms, RoPE and activations are left out of
    the FLOPs: they are below one per cent.

    Raises:
        ConfigError: a size is not positive, or a dtype is unknown.
    """

    name: str
    vocab_size: int
    hidden_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    intermediate_size: int
    tie_word_embeddings: bool = True
    max_position_embeddings: int = 131072
    weight_dtype: str = "bfloat16"
    kv_dtype: str = "bfloat16"

    def __post_init__(self) -> None:
        for name in _SIZES:
            if getattr(self, name) < 1:
                raise ConfigError(f"ModelShape.{name} is {getattr(self, name)}.", "at least 1")
        for name in ("weight_dtype", "kv_dtype"):
            if getattr(self, name) not in BITS:
                raise ConfigError(
                    f"ModelShape.{name} is {getattr(self, name)!r}.", "one of " + ", ".join(BITS)
                )

    @classmethod
    def from_config(cls, config: ModelConfig, name: str = "model", **dtypes: str) -> ModelShape:
        """The shape of a checkpoint; `dtypes` override `weight_dtype` and `kv_dtype`."""
        fields: dict[str, Any] = {size: getattr(config, size) for size in _SIZES}
        fields |= {"weight_dtype": config.dtype, "kv_dtype": config.dtype, **dtypes}
        return cls(name, tie_word_embeddings=config.tie_word_embeddings, **fields)

    def with_dtypes(self, weight_dtype: str, kv_dtype: str | None = None) -> ModelShape:
        """The same model, its weights (and KV cache) kept in other dtypes."""
        return replace(self, weight_dtype=weight_dtype, kv_dtype=kv_dtype or self.kv_dtype)

    @property
    def linear_parameters(self) -> int:
        """Numbers in the matrices of all layers: Q, K, V, output and the three of the MLP."""
        q_size, kv_size = self.num_heads * self.head_dim, self.num_kv_heads * self.head_dim
        attention = self.hidden_size * (2 * q_size + 2 * kv_size)
        return self.num_layers * (attention + 3 * self.hidden_size * self.intermediate_size)

    @property
    def head_parameters(self) -> int:
        """Numbers in the output head (the embedding itself, if tied)."""
        return self.vocab_size * self.hidden_size

    @property
    def num_parameters(self) -> int:
        """All numbers in the weights; a tied output head is counted once."""
        norms = (2 * self.num_layers + 1) * self.hidden_size
        tables = self.head_parameters * (1 if self.tie_word_embeddings else 2)
        return self.linear_parameters + norms + tables

    @property
    def weight_bytes(self) -> int:
        """Device memory of the weights."""
        return self.num_parameters * BITS[self.weight_dtype] // 8

    @property
    def kv_bytes_per_token(self) -> int:
        """KV cache of one token, over all layers: 32 KiB for Llama 3.2 1B in bfloat16."""
        numbers = 2 * self.num_layers * self.num_kv_heads * self.head_dim
        return numbers * BITS[self.kv_dtype] // 8

    @property
    def linear_flops_per_token(self) -> int:
        """FLOPs of the layers' matrices for one token."""
        return 2 * self.linear_parameters

    @property
    def head_flops_per_sample(self) -> int:
        """FLOPs of the output head; only positions that sample a token need it."""
        return 2 * self.head_parameters

    @property
    def attention_flops_per_pair(self) -> int:
        """FLOPs for one query position that looks at one key position, over all layers and heads.

        Two per dimension for the score, two for the weighted sum of the values.
        """
        return 4 * self.num_layers * self.num_heads * self.head_dim

    def flops_per_token(self, context: int) -> int:
        """FLOPs of a decode step of one request whose token looks at `context` positions."""
        per_context = self.attention_flops_per_pair * context
        return self.linear_flops_per_token + self.head_flops_per_sample + per_context


_SIZES = (
    "vocab_size", "hidden_size", "num_layers", "num_heads", "num_kv_heads", "head_dim",
    "intermediate_size", "max_position_embeddings",
)  # fmt: skip


def find_model(name: str | ModelShape) -> ModelShape:
    """Look up a model by key or name, in any case ("llama-3.2-1b", "Llama 3.2 1B", "tiny").

    Raises:
        ConfigError: there is none of that name.
    """
    if isinstance(name, ModelShape):
        return name
    wanted = name.strip().lower().replace(" ", "-").replace("_", "-")
    for row in _rows():
        if wanted in (row["key"], row["name"].lower().replace(" ", "-")):
            return _from_json(row)
    raise ConfigError(
        f"No model {name!r} is known to the simulator.",
        expected="one of " + ", ".join(model_names()),
        fix="Pass a ModelShape, for example ModelShape.from_config(config).",
    )


def model_names() -> tuple[str, ...]:
    """Keys of the models in `assets/models.json`."""
    return tuple(row["key"] for row in _rows())


@cache
def _rows() -> tuple[dict[str, Any], ...]:
    text = (assets_dir() / "models.json").read_text(encoding="utf-8")
    return tuple(json.loads(text)["models"])


def _from_json(row: dict[str, Any]) -> ModelShape:
    fields = {key: row[key] for key in (*_SIZES, "tie_word_embeddings")}
    return ModelShape(row["name"], **fields)
