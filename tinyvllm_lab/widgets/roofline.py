"""`Roofline`: where decode and prefill lie under a GPU's roof (chapters 05, 07 and 15).

A calculator: it shows no run. The browser works without a kernel (`static/roofline.js`); here the
same numbers come from the simulator's `CostModel`, for the still and for code that asks. Launches
and the host's work are left out: they move no byte and compute nothing.

Source: Williams, Waterman, Patterson, "Roofline", 2009.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from tinyvllm_lab.simulate.cost import MEMORY_UTILIZATION, CostModel, StepCost
from tinyvllm_lab.simulate.hardware import Hardware, find_hardware, hardware_table
from tinyvllm_lab.simulate.models import BITS, find_model, model_names
from tinyvllm_lab.widgets.calculator import Calculator
from tinyvllm_lab.widgets.esm import bundle
from tinyvllm_lab.widgets.moment import duration, plural
from tinyvllm_lab.widgets.palette import LINE, PAGE, PHASE_COLOURS, SOFT, TEXT, mix
from tinyvllm_lab.widgets.still import LegendItem, StillCanvas, frame_still, to_png

DTYPES = ("bfloat16", "int8", "int4")
"""Dtypes of the weights; the KV cache and the arithmetic are in bfloat16."""
PREFILL, DECODE = PHASE_COLOURS[:2]
BATCHES = tuple(2**power for power in range(11))
"""Batch sizes of the thin line of decode steps."""
AXES = {"x": (-1, 5), "y": (10, 16)}
"""Powers of ten: FLOPs per byte, and FLOP/s."""
CAPTION = (
    "Left of the corner of the roof a step waits for memory, right of it for arithmetic. Peaks and "
    "bandwidths are the datasheets'; the lower roof is the share of them that the cost model "
    "assumes. Launches and the host's work are left out."
)
_HEIGHT, _LEFT, _BOTTOM = 290, 76, 34  # px of the still


@dataclass(frozen=True)
class Point:
    """One step under the roof.

    Attributes:
        flops: floating-point operations.
        bytes: of device memory, read and written.
        intensity: FLOPs per byte.
        seconds: on the device, without launches.
        rate: FLOP/s.
        bound: "memory" or "compute": what most of the time goes to.
        fits: weights and KV cache fit the card.
    """

    flops: float
    bytes: float
    intensity: float
    seconds: float
    rate: float
    bound: str
    fits: bool


class Roofline(Calculator):
    """Sliders for model, card, dtype of the weights, batch and context.

    Args:
        model: a name of the simulator's table of models.
        gpu: a name of its table of hardware.
        dtype: of the weights: bfloat16, int8 or int4.
        batch: requests in a decode step.
        context: tokens of each of them, and of the prompt that is prefilled.
        size: "normal", or "presenter" for a projector.

    Raises:
        ConfigError: a name is unknown, or a number is not positive.
    """

    _esm = bundle("roofline")
    default_caption = CAPTION

    def __init__(
        self,
        model: str = "llama-3.2-1b",
        gpu: str = "NVIDIA A10G",
        dtype: str = "bfloat16",
        batch: int = 16,
        context: int = 1024,
        *,
        size: str = "normal",
    ) -> None:
        choice = {"model": model, "gpu": gpu, "dtype": dtype, "batch": batch, "context": context}
        super().__init__(_tables(), choice, size)

    @property
    def cost_model(self) -> CostModel:
        """The simulator's cost model of what is chosen now."""
        shape = find_model(self.choice["model"]).with_dtypes(self.choice["dtype"], "bfloat16")
        return CostModel(self.choice["gpu"], shape)

    @property
    def points(self) -> dict[str, Point]:
        """A decode step of the batch, and the prefill of one prompt."""
        batch, context = self.choice["batch"], self.choice["context"]
        return {"decode": self.decode(batch), "prefill": self._point(
            self.cost_model.prefill_step(context), context)}  # fmt: skip

    def decode(self, batch: int) -> Point:
        """A decode step of so many requests with the chosen context."""
        context = self.choice["context"]
        return self._point(self.cost_model.decode_step(batch, context), batch * context)

    def _point(self, cost: StepCost, kv_tokens: int) -> Point:
        cost_model = self.cost_model
        seconds = cost.gemm_s + cost.attention_s
        computing = sum(
            max(compute, memory)
            for compute, memory in (
                (cost.gemm_compute_s, cost.gemm_memory_s),
                (cost.attention_compute_s, cost.attention_memory_s),
            )
            if compute > memory
        )
        needs = cost_model.model.weight_bytes + kv_tokens * cost_model.model.kv_bytes_per_token
        return Point(
            cost.flops, cost.bytes, cost.intensity, seconds, cost.flops / seconds,
            "compute" if computing > seconds / 2 else "memory",
            needs <= cost_model.hardware.memory_bytes * MEMORY_UTILIZATION,
        )  # fmt: skip

    def still(self) -> bytes:
        """The picture, as PNG."""
        choice, points = self.choice, self.points
        batch = plural(choice["batch"], "request")
        legend = [
            LegendItem((DECODE,), f"decode: {batch} of {choice['context']:,}, "
                       f"{_words(points['decode'])}", "dot"),
            LegendItem((PREFILL,), f"prefill: {choice['context']:,} tokens, "
                       f"{_words(points['prefill'])}", "dot"),
            LegendItem((mix(DECODE, PAGE, 0.4),), "decode, batch of 1 to 1,024", "line"),
            LegendItem((TEXT,), "roof of the datasheet", "line"),
            LegendItem((SOFT,), "what the cost model counts with", "line"),
        ]  # fmt: skip
        ridge = find_hardware(choice["gpu"]).ridge_point()
        title = f"Roofline: {choice['model']} in {choice['dtype']} on {choice['gpu']}"
        now = f"corner at {ridge:,.0f} FLOPs a byte"
        return to_png(frame_still(title, "computed", now, legend, CAPTION, _HEIGHT, self._draw))

    def _draw(self, canvas: StillCanvas) -> None:
        _draw_axes(canvas)
        hardware, rates = find_hardware(self.choice["gpu"]), self.cost_model
        _draw_roof(canvas, rates.gemm_rate, rates.memory_rate, SOFT)
        _draw_roof(canvas, hardware.flops("bfloat16"), hardware.bandwidth, TEXT)
        trail = [self.decode(batch) for batch in BATCHES]
        canvas.path([_place(canvas, p.intensity, p.rate) for p in trail], mix(DECODE, PAGE, 0.4))
        for name, colour in (("decode", DECODE), ("prefill", PREFILL)):
            point = self.points[name]
            x, y = _place(canvas, point.intensity, point.rate)
            canvas.card(x - 6, y - 6, 12, 12, 6, colour, TEXT)
            if x > canvas.width - 80:
                canvas.text(name, x - 10, y + 12, bold=True, align="right")
            else:
                canvas.text(name, x + 10, y + 12, bold=True)

    def __repr__(self) -> str:
        bounds = ", ".join(f"{name}: {point.bound}" for name, point in self.points.items())
        return f"Roofline({self.choice['model']} on {self.choice['gpu']}: {bounds})"


def _place(canvas: StillCanvas, intensity: float, rate: float) -> tuple[float, float]:
    """Where a point lies on the logarithmic axes."""
    (x_low, x_high), (y_low, y_high) = AXES["x"], AXES["y"]
    x = (math.log10(intensity) - x_low) / (x_high - x_low)
    y = (math.log10(rate) - y_low) / (y_high - y_low)
    width, height = canvas.width - _LEFT - 4, canvas.height - _BOTTOM - 4
    return _LEFT + min(max(x, 0), 1) * width, 4 + (1 - min(max(y, 0), 1)) * height


def _draw_axes(canvas: StillCanvas) -> None:
    (x_low, x_high), (y_low, y_high) = AXES["x"], AXES["y"]
    low, high = 10.0**y_low, 10.0**y_high
    for power in range(x_low, x_high + 1):
        x, bottom = _place(canvas, 10.0**power, low)
        canvas.line(x, 4, x, bottom, mix(LINE, PAGE, 0.6))
        x = min(x, canvas.width - 24)
        canvas.text(f"{10.0**power:,g}", x, bottom + 11, size=10.5, colour=SOFT, align="center")
    for power in range(y_low, y_high + 1):
        x, y = _place(canvas, 10.0**x_low, 10.0**power)
        canvas.line(x, y, canvas.width - 4, y, mix(LINE, PAGE, 0.6))
        canvas.text(rate_text(10.0**power), x - 6, max(y, 7), size=10.5, colour=SOFT, align="right")
    middle = _place(canvas, 100, high)[0]
    canvas.text("FLOPs per byte", middle, canvas.height - 7, size=11, colour=SOFT, align="center")


def _draw_roof(canvas: StillCanvas, peak: float, bandwidth: float, colour: str) -> None:
    low, high = (10.0**power for power in AXES["x"])
    corner = peak / bandwidth
    points = [(low, low * bandwidth), (corner, peak), (high, peak)]
    canvas.path([_place(canvas, *point) for point in points], colour, 2)


def rate_text(rate: float) -> str:
    """FLOP/s as people read them: "125 TFLOP/s"."""
    power = min(max(int(math.log10(rate)) // 3, 0), 5)
    value = rate / 1000**power
    return f"{value:.{0 if value >= 10 else 1}f} {['', 'K', 'M', 'G', 'T', 'P'][power]}FLOP/s"


def _words(point: Point) -> str:
    fits = "" if point.fits else ", more than the card holds"
    return f"{duration(point.seconds * 1e6)}, limited by {point.bound}{fits}"


def _tables() -> dict[str, Any]:
    """What the browser needs of the simulator's tables."""
    shapes = zip(model_names(), map(find_model, model_names()), strict=True)
    models = [
        {
            "name": name,
            "parameters": shape.num_parameters,
            "linear": shape.linear_parameters,
            "head": shape.head_parameters,
            "hidden": shape.hidden_size,
            "kv_bytes": shape.with_dtypes("bfloat16", "bfloat16").kv_bytes_per_token,
            "pair_flops": shape.attention_flops_per_pair,
        }
        for name, shape in shapes
    ]
    return {
        "models": models,
        "gpus": [_gpu(hardware) for hardware in hardware_table()],
        "dtypes": {name: BITS[name] for name in DTYPES},
        "usable": MEMORY_UTILIZATION,
        "batches": list(BATCHES),
        "axes": {name: list(powers) for name, powers in AXES.items()},
    }


def _gpu(hardware: Hardware) -> dict[str, Any]:
    cost = CostModel(hardware)
    return {
        "name": hardware.name, "memory": hardware.memory_bytes, "peak": hardware.flops("bfloat16"),
        "bandwidth": hardware.bandwidth, "gemm_rate": cost.gemm_rate,
        "attention_rate": cost.attention_rate, "memory_rate": cost.memory_rate,
    }  # fmt: skip
