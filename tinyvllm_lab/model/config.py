"""What a Llama checkpoint says about itself: `config.json` and `generation_config.json`.

Both spellings of the RoPE settings are read: transformers 4 wrote `rope_theta` and `rope_scaling`
beside each other, transformers 5 writes one dictionary `rope_parameters`. Files on the Hugging Face
hub are nearly all of the first kind. Used in chapters 02, 03 and 05.
"""

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tinyvllm_lab.errors import ModelError
from tinyvllm_lab.model.config_fields import JsonFields, read_json_object

ROPE_TYPES = ("none", "linear", "llama3")
WEIGHT_DTYPES = ("float32", "float16", "bfloat16")
DTYPE_BYTES = {
    "float64": 8,
    "float32": 4,
    "float16": 2,
    "bfloat16": 2,
    "float8_e4m3fn": 1,
    "float8_e5m2": 1,
    "int8": 1,
}
ARCHITECTURE = "LlamaForCausalLM"


def dtype_bytes(dtype: object) -> int:
    """Bytes of one number. `dtype` is a name ("bfloat16") or a `torch.dtype`.

    Raises:
        ModelError: the dtype is unknown here.
    """
    name = str(dtype).removeprefix("torch.")
    if name not in DTYPE_BYTES:
        raise ModelError(f"The dtype {name!r} is unknown.", "one of " + ", ".join(DTYPE_BYTES))
    return DTYPE_BYTES[name]


@dataclass(frozen=True)
class RopeConfig:
    """How positions turn into angles (chapter 03).

    Pair `i` of a head turns by `position * theta ** (-2 * i / head_dim)` radians. The scaling types
    stretch a trained model over a longer context: `linear` divides every frequency by `factor`;
    `llama3` divides only the slow ones, whose wavelength exceeds `original_max_position_embeddings
    / low_freq_factor`, keeps those below `... / high_freq_factor`, and blends between.

    Raises:
        ModelError: the type is unknown, or a number lies outside its range.
    """

    theta: float = 10000.0
    rope_type: str = "none"
    factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_max_position_embeddings: int = 8192

    def __post_init__(self) -> None:
        check = JsonFields(asdict(self), "RopeConfig")
        if self.rope_type not in ROPE_TYPES:
            raise check.error("rope_type", "one of " + ", ".join(ROPE_TYPES))
        for name in ("theta", "low_freq_factor", "high_freq_factor"):
            check.number(name, above=0.0)
        if check.number("factor", above=0.0) < 1.0:
            raise check.error("factor", "a number of at least 1")
        check.integer("original_max_position_embeddings", minimum=1)
        if self.rope_type == "llama3" and self.high_freq_factor <= self.low_freq_factor:
            raise check.error(
                "high_freq_factor", f"more than low_freq_factor={self.low_freq_factor}"
            )


@dataclass(frozen=True)
class GenerationDefaults:
    """How the model's makers want its tokens chosen, from `generation_config.json` (chapter 04)."""

    do_sample: bool = False
    temperature: float = 1.0
    top_p: float = 1.0


@dataclass(frozen=True)
class ModelConfig:
    """The shape of a Llama model. Field names follow vLLM's habit, not Hugging Face's.

    `dtype` is the type that the weights were published in, as a name ("bfloat16").

    Raises:
        ModelError: a number lies outside its range or contradicts another.
    """

    vocab_size: int
    hidden_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    intermediate_size: int
    rms_norm_eps: float = 1e-5
    max_position_embeddings: int = 2048
    tie_word_embeddings: bool = False
    dtype: str = "float32"
    bos_token_id: int | None = None
    eos_token_ids: tuple[int, ...] = ()
    rope: RopeConfig = field(default_factory=RopeConfig)
    generation: GenerationDefaults = field(default_factory=GenerationDefaults)

    def __post_init__(self) -> None:
        check = JsonFields(vars(self), "ModelConfig")
        for name in _POSITIVE_INTEGERS:
            check.integer(name, minimum=1)
        check.number("rms_norm_eps", above=0.0)
        if self.num_heads % self.num_kv_heads:
            raise check.error("num_kv_heads", f"a divisor of num_heads={self.num_heads}")
        if self.head_dim % 2:
            raise check.error("head_dim", "an even number, for RoPE turns pairs")
        if self.dtype not in WEIGHT_DTYPES:
            raise check.error("dtype", "one of " + ", ".join(WEIGHT_DTYPES))

    @classmethod
    def from_dir(cls, folder: str | Path) -> "ModelConfig":
        """Read `config.json`, and `generation_config.json` if it is there.

        Raises:
            ModelError: a file is missing or damaged, or describes a model that this course's
                forward pass cannot compute; the message names the field.
        """
        folder = Path(folder)
        config = read_json_object(folder / "config.json")
        generation_path = folder / "generation_config.json"
        generation = read_json_object(generation_path) if generation_path.exists() else {}
        return cls.from_dicts(config, generation, where=str(folder))

    @classmethod
    def from_dicts(
        cls,
        config: dict[str, Any],
        generation: dict[str, Any] | None = None,
        where: str = "the model",
    ) -> "ModelConfig":
        """The same from the two parsed files; `where` names the folder in messages."""
        fields = JsonFields(config, f"{where}/config.json")
        generation_fields = JsonFields(generation or {}, f"{where}/generation_config.json")
        _refuse_what_llama_lacks(fields)
        hidden_size = fields.integer("hidden_size", minimum=1)
        num_heads = fields.integer("num_attention_heads", minimum=1)
        max_positions = fields.integer("max_position_embeddings", default=2048, minimum=1)
        return cls(
            vocab_size=fields.integer("vocab_size", minimum=1),
            hidden_size=hidden_size,
            num_layers=fields.integer("num_hidden_layers", minimum=1),
            num_heads=num_heads,
            num_kv_heads=fields.integer("num_key_value_heads", default=num_heads, minimum=1),
            head_dim=_head_dim(fields, hidden_size, num_heads),
            intermediate_size=fields.integer("intermediate_size", minimum=1),
            rms_norm_eps=fields.number("rms_norm_eps", default=1e-6, above=0.0),
            max_position_embeddings=max_positions,
            tie_word_embeddings=fields.boolean("tie_word_embeddings", default=False),
            dtype=_dtype(fields),
            bos_token_id=_bos_token_id(fields),
            eos_token_ids=_eos_token_ids(fields, generation_fields),
            rope=_rope(fields, max_positions),
            generation=_generation(generation_fields),
        )

    @property
    def num_queries_per_kv(self) -> int:
        """How many query heads share one key/value head: 1 is plain multi-head attention."""
        return self.num_heads // self.num_kv_heads

    def kv_bytes_per_token(self, dtype: object = None) -> int:
        """Bytes of KV cache that one token occupies: a key and a value, per layer and KV head.

        `dtype` is the cache's type, a name or a `torch.dtype`; by default the weights' own.
        Llama 3.2 1B in bfloat16: 2 * 16 * 8 * 64 * 2 = 32,768 (chapter 05).
        """
        numbers = 2 * self.num_layers * self.num_kv_heads * self.head_dim
        return numbers * dtype_bytes(self.dtype if dtype is None else dtype)

    def num_parameters(self) -> int:
        """Numbers in the weights; a tied output head is counted once."""
        q_size = self.num_heads * self.head_dim
        kv_size = self.num_kv_heads * self.head_dim
        attention = self.hidden_size * (q_size + 2 * kv_size) + q_size * self.hidden_size
        mlp = 3 * self.hidden_size * self.intermediate_size
        norms = 2 * self.hidden_size
        embedding = self.vocab_size * self.hidden_size
        head = 0 if self.tie_word_embeddings else embedding
        layers = self.num_layers * (attention + mlp + norms)
        return embedding + layers + self.hidden_size + head


_POSITIVE_INTEGERS = (
    "vocab_size", "hidden_size", "num_layers", "num_heads", "num_kv_heads", "head_dim",
    "intermediate_size", "max_position_embeddings",
)  # fmt: skip


def _refuse_what_llama_lacks(fields: JsonFields) -> None:
    architectures = fields.strings("architectures", default=[ARCHITECTURE])
    if ARCHITECTURE not in architectures:
        raise fields.error("architectures", f"[{ARCHITECTURE!r}], the only one this course builds")
    if fields.string("model_type", default="llama") != "llama":
        raise fields.error("model_type", "'llama', the only one this course builds")
    if fields.string("hidden_act", default="silu") != "silu":
        raise fields.error("hidden_act", "'silu'")
    for name in ("attention_bias", "mlp_bias"):
        if fields.boolean(name, default=False):
            raise fields.error(name, "false: our linear layers have no bias")
    if fields.get("quantization_config") is not None:
        raise fields.error("quantization_config", "no such field: weights in 16 or 32 bits")
    if fields.number("partial_rotary_factor", default=1.0, above=0.0) != 1.0:
        raise fields.error("partial_rotary_factor", "1.0: RoPE turns whole heads")


def _head_dim(fields: JsonFields, hidden_size: int, num_heads: int) -> int:
    if fields.get("head_dim") is not None:
        return fields.integer("head_dim", minimum=2)
    if hidden_size % num_heads:
        raise fields.error("num_attention_heads", f"a divisor of hidden_size={hidden_size}")
    return hidden_size // num_heads


def _dtype(fields: JsonFields) -> str:
    name = "dtype" if fields.get("dtype") is not None else "torch_dtype"
    dtype = fields.string(name, default="float32").removeprefix("torch.")
    if dtype not in WEIGHT_DTYPES:
        raise fields.error(name, "one of " + ", ".join(WEIGHT_DTYPES))
    return dtype


def _bos_token_id(fields: JsonFields) -> int | None:
    if fields.get("bos_token_id") is None:
        return None
    return fields.integer("bos_token_id", minimum=0)


def _eos_token_ids(*files: JsonFields) -> tuple[int, ...]:
    """End-of-text ids of both files, without repeats.

    Instruct models often name more of them in `generation_config.json` than in `config.json`.
    """
    ids = [i for fields in files for i in fields.integers("eos_token_id", default=[], minimum=0)]
    return tuple(dict.fromkeys(ids))


def _rope(fields: JsonFields, max_positions: int) -> RopeConfig:
    """RoPE settings in either spelling; where both stand, the older wins, as in transformers."""
    theta = fields.number("rope_theta", default=10000.0, above=0.0)
    name = "rope_scaling" if fields.get("rope_scaling") else "rope_parameters"
    rope = fields.object(name, default={})
    theta = rope.number("rope_theta", default=theta, above=0.0)
    type_name = "rope_type" if rope.get("rope_type") is not None else "type"
    rope_type = rope.string(type_name, default="default")
    if rope.number("partial_rotary_factor", default=1.0, above=0.0) != 1.0:
        raise rope.error("partial_rotary_factor", "1.0: RoPE turns whole heads")
    for nested in (n for n, value in rope.values.items() if isinstance(value, dict)):
        raise rope.error(nested, "one RoPE for all layers")
    if rope_type == "default":
        return RopeConfig(theta)
    if rope_type == "linear":
        return RopeConfig(theta, "linear", rope.number("factor", above=0.0))
    if rope_type != "llama3":
        raise rope.error(type_name, "'default', 'linear' or 'llama3'")
    return RopeConfig(
        theta,
        "llama3",
        factor=rope.number("factor", above=0.0),
        low_freq_factor=rope.number("low_freq_factor", above=0.0),
        high_freq_factor=rope.number("high_freq_factor", above=0.0),
        original_max_position_embeddings=rope.integer(
            "original_max_position_embeddings", default=max_positions, minimum=1
        ),
    )


def _generation(fields: JsonFields) -> GenerationDefaults:
    return GenerationDefaults(
        do_sample=fields.boolean("do_sample", default=False),
        temperature=fields.number("temperature", default=1.0, minimum=0.0),
        top_p=fields.number("top_p", default=1.0, above=0.0),
    )
