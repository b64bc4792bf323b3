"""`EngineConfig`: every knob of the engine, with type, default, range, unit and help in one place.

The same metadata makes the command-line flags, the table in the docs and the sliders with their
tooltips (chapter 13). Names and defaults are vLLM's where vLLM has the knob.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import MISSING, Field, dataclass, field, fields
from typing import Any

from tinyvllm_lab.errors import ConfigError

POLICIES = ("fcfs", "priority", "sjf")
PREEMPTIONS = ("recompute", "swap")
BATCHINGS = ("continuous", "static")
ALLOCATORS = ("paged", "contiguous-max", "contiguous-first-fit", "contiguous-best-fit")
ORDERS = ("decode-first", "prefill-first")
VICTIMS = ("last", "priority", "fewest-computed", "most-blocks")


def _knob(default: Any, help: str, *, live: bool = False, **limits: Any) -> Any:
    return field(default=default, metadata={"help": help, "live": live, **limits})


@dataclass(frozen=True, slots=True)
class FieldSpec:
    """What one knob is: the source of its flag, its row in the docs and its slider."""

    name: str
    type: type
    default: Any
    help: str
    live: bool
    """True: safe to change while the engine runs. False: needs a restart."""
    minimum: float | None
    maximum: float | None
    choices: tuple[str, ...] | None
    unit: str


@dataclass(frozen=True)
class EngineConfig:
    """All settings of one engine. Frozen: a knob change makes a new config.

    Raises:
        ConfigError: a field has the wrong type, lies outside its range or contradicts another.
    """

    max_num_seqs: int = _knob(
        16, "Seats: how many requests may run at the same time.",
        live=True, minimum=1, maximum=1024, unit="requests",
    )  # fmt: skip
    max_num_batched_tokens: int = _knob(
        512, "Token budget of one step, shared by prefills and decodes.",
        live=True, minimum=1, maximum=131072, unit="tokens",
    )  # fmt: skip
    block_size: int = _knob(
        16, "Tokens whose keys and values fit into one KV block.",
        minimum=1, maximum=256, unit="tokens",
    )  # fmt: skip
    num_blocks: int = _knob(
        256, "KV blocks in the pool. Block 0 is the null block, so one less is usable.",
        minimum=2, maximum=1 << 22, unit="blocks",
    )  # fmt: skip
    max_model_len: int = _knob(
        2048, "Longest prompt plus output of one request.",
        minimum=2, maximum=1 << 20, unit="tokens",
    )  # fmt: skip
    batching: str = _knob(
        "continuous", "Refill free seats in every step, or wait until the whole batch has left.",
        choices=BATCHINGS,
    )  # fmt: skip
    policy: str = _knob(
        "fcfs", "Who is admitted next: first come, smallest priority number, or shortest job.",
        live=True, choices=POLICIES,
    )  # fmt: skip
    enable_chunked_prefill: bool = _knob(
        True, "Cut a prompt that exceeds the token budget into chunks.", live=True
    )
    long_prefill_token_threshold: int = _knob(
        0, "Most prompt tokens that one request gets in a step. 0: no limit.",
        live=True, minimum=0, maximum=131072, unit="tokens",
    )  # fmt: skip
    enable_prefix_caching: bool = _knob(
        True, "Keep full blocks after their request ends, and share them with equal prefixes."
    )
    preemption: str = _knob(
        "recompute", "What a victim loses: its KV (computed again later), or its place on the "
        "device (copied to the host and back).",
        choices=PREEMPTIONS,
    )  # fmt: skip
    num_host_blocks: int = _knob(
        256, "Blocks of swap space on the host, for preemption by swap.",
        minimum=0, maximum=1 << 22, unit="blocks",
    )  # fmt: skip
    victim: str = _knob(
        "last", "Which running request is preempted. Under the priority policy 'last' means the "
        "lowest priority, as in vLLM.",
        live=True, choices=VICTIMS,
    )  # fmt: skip
    order: str = _knob(
        "decode-first", "Who is served first in a step: running requests, or new prompts.",
        live=True, choices=ORDERS,
    )  # fmt: skip
    watermark: float = _knob(
        0.0, "Share of the pool that an admission must leave free while others run.",
        live=True, minimum=0.0, maximum=0.5, unit="of num_blocks",
    )  # fmt: skip
    reserve_full_isl: bool = _knob(
        True, "Admit a prompt only when blocks for all of it are free, not just for its first "
        "chunk.",
        live=True,
    )  # fmt: skip
    skip_blocked_head: bool = _knob(
        False, "Let requests overtake a head of the queue that does not fit.", live=True
    )
    allocator: str = _knob(
        "paged", "How KV memory is given out: in pages, or as one contiguous region a request.",
        choices=ALLOCATORS,
    )  # fmt: skip
    compaction: bool = _knob(
        False, "Contiguous allocators only: move regions together when a hole would fit them.",
        live=True,
    )  # fmt: skip
    use_kv_cache: bool = _knob(
        True, "Keep keys and values between steps. Off: the whole sequence is read again for "
        "every token (chapter 01).",
    )  # fmt: skip
    check_invariants: bool = _knob(
        False, "Check the pool, the queues and the tables after every step (slow)."
    )

    def __post_init__(self) -> None:
        for spec in field_specs():
            _check_field(spec, getattr(self, spec.name))
        _check_combination(self)

    @property
    def num_usable_blocks(self) -> int:
        """Blocks that requests can hold: all but the null block."""
        return self.num_blocks - 1


def as_config(given: EngineConfig | None) -> EngineConfig:
    """The config that was given, or the default one.

    Raises:
        ConfigError: it is something else.
    """
    if given is None:
        return EngineConfig()
    if not isinstance(given, EngineConfig):
        raise ConfigError(
            f"The engine's config is {given!r}, of type {type(given).__name__}.",
            expected="an EngineConfig, or None for the defaults",
            fix="Pass EngineConfig(max_num_seqs=8), for example.",
        )
    return given


def field_specs() -> Iterator[FieldSpec]:
    """The metadata of every knob, in the order of the dataclass."""
    for f in fields(EngineConfig):
        yield _spec(f)


def _spec(f: Field) -> FieldSpec:
    assert f.default is not MISSING
    meta = f.metadata
    return FieldSpec(
        f.name, type(f.default), f.default, meta["help"], meta["live"],
        meta.get("minimum"), meta.get("maximum"), meta.get("choices"), meta.get("unit", ""),
    )  # fmt: skip


def _check_field(spec: FieldSpec, value: Any) -> None:
    if spec.type is float and type(value) is int:
        value = float(value)
    if type(value) is not spec.type:
        raise ConfigError(
            f"EngineConfig.{spec.name} is {value!r}, of type {type(value).__name__}.",
            expected=f"a value of type {spec.type.__name__}",
        )
    if spec.choices is not None and value not in spec.choices:
        raise ConfigError(
            f"EngineConfig.{spec.name} is {value!r}.", expected="one of " + ", ".join(spec.choices)
        )
    if not _in_range(spec, value):
        raise ConfigError(
            f"EngineConfig.{spec.name} is {value!r}.",
            expected=f"{spec.minimum} to {spec.maximum} {spec.unit}".rstrip(),
        )


def _in_range(spec: FieldSpec, value: Any) -> bool:
    if spec.minimum is None or spec.maximum is None:
        return True
    return bool(spec.minimum <= value <= spec.maximum)


def _check_combination(config: EngineConfig) -> None:
    if config.allocator != "paged" and config.enable_prefix_caching:
        raise ConfigError(
            f"allocator={config.allocator!r} cannot share prefixes: it has no blocks.",
            expected="enable_prefix_caching=False with a contiguous allocator",
            fix="Pass enable_prefix_caching=False, or allocator='paged'.",
        )
    if config.allocator != "paged" and config.preemption == "swap":
        raise ConfigError(
            f"allocator={config.allocator!r} cannot swap: swapping moves blocks.",
            expected="preemption='recompute' with a contiguous allocator",
            fix="Pass preemption='recompute', or allocator='paged'.",
        )
