"""How long a step takes on paper: a roofline from the composition of its batch (chapters 07, 15).

Two phases follow each other in every layer and do not overlap, so their times add up:

- the linear layers and the output head: the weights are read once, however many tokens share them;
- attention: every request reads its own KV cache, and writes the KV of its new tokens.

Each phase takes the longer of its compute time and its memory time (Williams, Waterman, Patterson:
Roofline, 2009). Copies, kernel launches and the host come on top.

What is left out: activations (they stay in the L2 cache in decode, and are hidden behind compute in
prefill), KV that a prefill kernel reads more than once, tail effects of the last wave of thread
blocks, clock throttling, and any overlap of the host with the device.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import mul

from tinyvllm_lab.engine.plan import StepPlan
from tinyvllm_lab.errors import ConfigError
from tinyvllm_lab.simulate.hardware import Hardware, find_hardware
from tinyvllm_lab.simulate.models import BITS, ModelShape, find_model

MEMORY_UTILIZATION = 0.9
"""Share of device memory for weights and KV cache, as vLLM's `gpu_memory_utilization`; the rest is
for the CUDA context and activations."""


@dataclass(frozen=True, slots=True)
class Overheads:
    """Time in which the device does nothing useful. Assumptions, to be calibrated.

    Attributes:
        launch_us: idle time before each kernel: 1 to 2 when a CUDA graph is replayed, 5 to 10 when
            Python launches every kernel.
        kernels_per_layer: two norms, QKV, RoPE with the KV write, attention, output projection,
            gate and up, SwiGLU, down.
        kernels_per_step: embedding, last norm, output head, sampler.
        host_us: the engine's own work in a step, whatever its batch.
        host_us_per_request: scheduling, sampling parameters and text of one request in a step.
    """

    launch_us: float = 2.0
    kernels_per_layer: int = 9
    kernels_per_step: int = 4
    host_us: float = 300.0
    host_us_per_request: float = 5.0


# The next two are made in every step: a frozen dataclass would take three times as long.
@dataclass(slots=True)
class BatchShape:
    """What the cost of a step depends on: sums over the rows of its plan.

    Attributes:
        num_requests: rows.
        num_tokens: tokens computed.
        context_tokens: positions whose KV is read: each row reads its sequence once.
        attention_pairs: (query, key) pairs that causal attention scores.
        num_samples: rows that sample a token.
    """

    num_requests: int
    num_tokens: int
    context_tokens: int
    attention_pairs: int
    num_samples: int

    @classmethod
    def of_plan(cls, plan: StepPlan) -> BatchShape:
        """Sums of a plan, at C speed: about 0.1 us a row."""
        rows, starts, tokens = len(plan.requests), plan.starts, plan.total_tokens
        context = sum(starts) + tokens
        # In a step of decodes each row has one query, which looks at its whole context.
        pairs = context if tokens == rows else _attention_pairs(starts, plan.num_tokens)
        return cls(rows, tokens, context, pairs, sum(plan.samples))


def _attention_pairs(starts: Sequence[int], counts: Sequence[int]) -> int:
    """Query `start + i` of a row looks at `start + i + 1` keys, for i in 0 .. count - 1."""
    squares = sum(map(mul, counts, counts))
    return sum(map(mul, counts, starts)) + (squares + sum(counts)) // 2


@dataclass(slots=True)
class StepCost:
    """The cost of one step, in parts. Times in seconds.

    Attributes:
        weight_bytes: weights read.
        kv_read_bytes, kv_write_bytes: KV cache traffic of attention.
        copy_bytes: read and written on the device by copy-on-write and compaction.
        link_bytes: swapped over the host link.
        gemm_flops, attention_flops: floating-point operations of the two phases.
        gemm_compute_s, gemm_memory_s: linear layers and head, if only the one or the other counted.
        attention_compute_s, attention_memory_s: the same of attention.
        copy_s: copies on the device and over the link.
        overhead_s: launches and host.
    """

    weight_bytes: int
    kv_read_bytes: int
    kv_write_bytes: int
    copy_bytes: int
    link_bytes: int
    gemm_flops: int
    attention_flops: int
    gemm_compute_s: float
    gemm_memory_s: float
    attention_compute_s: float
    attention_memory_s: float
    copy_s: float
    overhead_s: float

    @property
    def compute_s(self) -> float:
        """What compute alone would take."""
        return self.gemm_compute_s + self.attention_compute_s

    @property
    def memory_s(self) -> float:
        """What memory traffic alone would take."""
        return self.gemm_memory_s + self.attention_memory_s

    @property
    def gemm_s(self) -> float:
        """Time of the linear layers and the head: the longer of their two."""
        return max(self.gemm_compute_s, self.gemm_memory_s)

    @property
    def attention_s(self) -> float:
        """Time of attention: the longer of its two."""
        return max(self.attention_compute_s, self.attention_memory_s)

    @property
    def total_s(self) -> float:
        """Seconds that the step takes."""
        return self.gemm_s + self.attention_s + self.copy_s + self.overhead_s

    @property
    def bound(self) -> str:
        """What most of the time goes to: "compute", "memory", "copy" or "overhead"."""
        spent = {"memory": 0.0, "compute": 0.0, "copy": self.copy_s, "overhead": self.overhead_s}
        spent["compute" if self.gemm_s > self.gemm_memory_s else "memory"] += self.gemm_s
        attention = "compute" if self.attention_s > self.attention_memory_s else "memory"
        spent[attention] += self.attention_s
        return max(spent, key=spent.__getitem__)

    @property
    def total_us(self) -> int:
        """Whole microseconds that the step takes, at least 1."""
        return max(1, round(self.total_s * 1e6))

    @property
    def flops(self) -> int:
        """All floating-point operations."""
        return self.gemm_flops + self.attention_flops

    @property
    def bytes(self) -> int:
        """All bytes that cross the device's memory bus, without copies."""
        return self.weight_bytes + self.kv_read_bytes + self.kv_write_bytes

    @property
    def intensity(self) -> float:
        """FLOPs per byte: left of the ridge point memory limits, right of it compute."""
        return self.flops / self.bytes if self.bytes else 0.0


class CostModel:
    """Seconds of a step for one model on one accelerator.

    Args:
        hardware: a `Hardware`, or its name.
        model: a `ModelShape`, or its name.
        block_size: tokens of one KV block, for the cost of copies.
        overheads: launch and host times.
        compute_dtype: dtype of the matrix products. None: the weights' own if it is a float of 16
            or 32 bits, else bfloat16 (quantised weights are unpacked on the way in).

    Raises:
        ConfigError: hardware or model is unknown, or has no peak for the dtype.
    """

    def __init__(
        self,
        hardware: str | Hardware = "a10g",
        model: str | ModelShape = "llama-3.2-1b",
        *,
        block_size: int = 16,
        overheads: Overheads | None = None,
        compute_dtype: str | None = None,
    ) -> None:
        self.hardware = find_hardware(hardware)
        self.model = find_model(model)
        self.block_size = block_size
        self.overheads = overheads or Overheads()
        weight_dtype = self.model.weight_dtype
        self.compute_dtype = compute_dtype or (
            weight_dtype if BITS[weight_dtype] >= 16 else "bfloat16"
        )
        self._set_rates()
        self._set_unit_costs()

    def _set_rates(self) -> None:
        peak, efficiency = self.hardware.flops(self.compute_dtype), self.hardware.efficiency
        self.gemm_rate = peak * efficiency.gemm
        self.attention_rate = peak * efficiency.attention
        self.memory_rate = self.hardware.bandwidth * efficiency.bandwidth
        self.link_rate = self.hardware.link_bandwidth * efficiency.link

    def _set_unit_costs(self) -> None:
        """The model's costs as plain attributes: the hot path multiplies and adds, no more."""
        model, overheads = self.model, self.overheads
        bits = BITS[model.weight_dtype]
        self._layer_bytes = model.linear_parameters * bits // 8
        self._head_bytes = model.head_parameters * bits // 8
        self._embedding_bytes = model.hidden_size * bits // 8
        self._kv_bytes = model.kv_bytes_per_token
        self._linear_flops = model.linear_flops_per_token
        self._head_flops = model.head_flops_per_sample
        self._pair_flops = model.attention_flops_per_pair
        kernels = overheads.kernels_per_layer * model.num_layers + overheads.kernels_per_step
        self._step_overhead_s = (kernels * overheads.launch_us + overheads.host_us) * 1e-6

    # Costs

    def of_plan(self, plan: StepPlan) -> StepCost:
        """Cost of a plan, its copies included."""
        copy_bytes, link_bytes = self.copy_traffic(plan) if plan.has_copies else (0, 0)
        return self.of_batch(BatchShape.of_plan(plan), copy_bytes, link_bytes)

    def of_batch(self, batch: BatchShape, copy_bytes: int = 0, link_bytes: int = 0) -> StepCost:
        """Cost of a batch, with so many bytes copied on the device and over the link."""
        samples, tokens = batch.num_samples, batch.num_tokens
        gemm_flops = self._linear_flops * tokens + self._head_flops * samples
        attention_flops = self._pair_flops * batch.attention_pairs
        weight_bytes = self._weight_traffic(tokens, samples)
        kv_read, kv_write = batch.context_tokens * self._kv_bytes, tokens * self._kv_bytes
        return StepCost(
            weight_bytes, kv_read, kv_write, copy_bytes, link_bytes, gemm_flops, attention_flops,
            gemm_flops / self.gemm_rate,
            weight_bytes / self.memory_rate,
            attention_flops / self.attention_rate,
            (kv_read + kv_write) / self.memory_rate,
            copy_bytes / self.memory_rate + link_bytes / self.link_rate,
            self._overhead(batch.num_requests),
        )  # fmt: skip

    def _weight_traffic(self, tokens: int, samples: int) -> int:
        """Bytes: all layers once, the head if anybody samples, one embedding row a token."""
        if not tokens:
            return 0
        head = self._head_bytes if samples else 0
        return self._layer_bytes + head + tokens * self._embedding_bytes

    def _overhead(self, num_requests: int) -> float:
        if not num_requests:
            return self.overheads.host_us * 1e-6
        return self._step_overhead_s + num_requests * self.overheads.host_us_per_request * 1e-6

    def copy_traffic(self, plan: StepPlan) -> tuple[int, int]:
        """Bytes that a plan's copies move on the device (read and written), and over the link."""
        moved = len(plan.copies) * self.block_size + sum(tokens for _, _, tokens in plan.moves)
        swapped = (len(plan.swap_out) + len(plan.swap_in)) * self.block_size
        return 2 * moved * self._kv_bytes, swapped * self._kv_bytes

    # Questions that the chapters ask

    def decode_step(self, batch_size: int, context: int) -> StepCost:
        """A step in which `batch_size` requests of `context` tokens get one more token each."""
        keys = batch_size * context
        return self.of_batch(BatchShape(batch_size, batch_size, keys, keys, batch_size))

    def prefill_step(self, prompt_tokens: int, cached_tokens: int = 0) -> StepCost:
        """A step that computes a whole prompt, whose first `cached_tokens` are in the cache."""
        pairs = _attention_pairs([cached_tokens], [prompt_tokens - cached_tokens])
        new = prompt_tokens - cached_tokens
        return self.of_batch(BatchShape(1, new, prompt_tokens, pairs, 1))

    @property
    def saturation_batch(self) -> float:
        """B_sat: tokens in a step from which on the linear layers are limited by compute.

        Below it, one more request in a decode step costs no time in them: its weights are being
        read anyway.
        """
        seconds_per_token = (self._linear_flops + self._head_flops) / self.gemm_rate
        return (self._layer_bytes + self._head_bytes) / self.memory_rate / seconds_per_token

    def num_kv_blocks(self, memory_utilization: float = MEMORY_UTILIZATION) -> int:
        """KV blocks that fit beside the weights (the null block included).

        Raises:
            ConfigError: the weights leave no room for two blocks.
        """
        budget = int(self.hardware.memory_bytes * memory_utilization)
        blocks = (budget - self.model.weight_bytes) // (self.block_size * self._kv_bytes)
        if blocks < 2:
            raise ConfigError(
                f"{self.model.name} ({self.model.weight_dtype}) does not fit {self.hardware.name}.",
                expected=f"weights of less than {budget / 1e9:.1f} GB; "
                f"they are {self.model.weight_bytes / 1e9:.1f} GB",
                fix="Choose more memory, a smaller model, or shape.with_dtypes('int8').",
            )
        return blocks
