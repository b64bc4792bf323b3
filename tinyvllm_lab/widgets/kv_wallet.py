"""`KVWallet`: what weights and KV caches take of a GPU's memory, and how many users fit.

A calculator: it shows no run. It works in the browser alone (`static/kv_wallet.js`); the arithmetic
here is the same, for the still and for code that asks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tinyvllm_lab.simulate.hardware import hardware_table
from tinyvllm_lab.simulate.models import find_model, model_names
from tinyvllm_lab.widgets.calculator import Calculator
from tinyvllm_lab.widgets.esm import bundle
from tinyvllm_lab.widgets.still import LegendItem, StillCanvas, frame_still, to_png

DTYPES = {"bfloat16": 2.0, "float8": 1.0, "float32": 4.0}
"""Bytes of one number; weights and KV cache are kept in the same dtype here."""
USABLE = 0.9
"""Share of the card that an engine may fill; vLLM calls the knob `gpu_memory_utilization`."""
WEIGHTS, KV, KV_LIGHT, BEYOND, FREE = "#0072B2", "#E69F00", "#F3C567", "#D55E00", "#e6e8ec"
CAPTION = (
    "Weights are read by every step and never leave; each user's keys and values grow with every "
    "token. Shapes and cards are those of the simulator's tables. That an engine may fill 90 % of "
    "the card is an assumption (vLLM: gpu_memory_utilization). Activations and fragmentation come "
    "on top."
)


@dataclass(frozen=True)
class Wallet:
    """Memory of one choice, in bytes.

    Attributes:
        weights: of the model.
        token: KV cache of one token.
        user: KV cache of one user's context.
        all: of all users.
        budget: what an engine may use of the card.
        total: the card's memory.
        fit: users that fit beside the weights.
    """

    weights: float
    token: float
    user: float
    all: float
    budget: float
    total: float
    fit: int


class KVWallet(Calculator):
    """Sliders for model, card, dtype, context and users (chapters 05 and 16).

    Args:
        model: a name of the simulator's table of models.
        gpu: a name of its table of hardware.
        dtype: of weights and KV cache: bfloat16, float8 or float32.
        context: tokens of one user, prompt and answer.
        users: at the same time.
        size: "normal", or "presenter" for a projector.

    Raises:
        ConfigError: a name is unknown, or a number is not positive.
    """

    _esm = bundle("kv_wallet")
    default_caption = CAPTION

    def __init__(
        self,
        model: str = "llama-3.2-1b",
        gpu: str = "NVIDIA A10G",
        dtype: str = "bfloat16",
        context: int = 4096,
        users: int = 64,
        *,
        size: str = "normal",
    ) -> None:
        choice = {"model": model, "gpu": gpu, "dtype": dtype, "context": context, "users": users}
        super().__init__(_tables(), choice, size)

    @property
    def wallet(self) -> Wallet:
        """The bytes of what the sliders say now."""
        choice = self.choice
        model = next(m for m in self.tables["models"] if m["name"] == choice["model"])
        gpu = next(g for g in self.tables["gpus"] if g["name"] == choice["gpu"])
        number = DTYPES[choice["dtype"]]
        weights, token = model["parameters"] * number, model["kv_numbers"] * number
        user, budget = token * choice["context"], gpu["bytes"] * USABLE
        fit = max(0, int((budget - weights) // user))
        return Wallet(weights, token, user, user * choice["users"], budget, gpu["bytes"], fit)

    def still(self) -> bytes:
        """The picture, as PNG."""
        choice, w = self.choice, self.wallet
        legend = [
            LegendItem((WEIGHTS,), f"weights, {_gib(w.weights)}"),
            LegendItem((KV, KV_LIGHT), f"KV of {choice['users']} users, {_gib(w.all)}"),
            LegendItem((BEYOND,), "does not fit"),
            LegendItem((FREE,), f"free of {_gib(w.total)}, {USABLE:.0%} of it usable"),
        ]
        now = f"{w.fit:,} users with {choice['context']:,} tokens fit"
        title = f"KV wallet: {choice['model']} in {choice['dtype']} on {choice['gpu']}"
        return to_png(frame_still(title, "computed", now, legend, CAPTION, 60, self._draw))

    def _draw(self, canvas: StillCanvas) -> None:
        w, users = self.wallet, self.choice["users"]
        scale = canvas.width / max(w.total, w.weights + w.all)
        canvas.card(0, 6, w.total * scale, 48, 4, FREE)
        canvas.rect(0, 6, w.weights * scale, 48, WEIGHTS)
        shown = min(users, 120)
        each = w.all / shown * scale
        for i in range(shown):
            x = w.weights * scale + i * each
            beyond = (x + each) / scale > w.budget
            colour = BEYOND if beyond else KV if i % 2 else KV_LIGHT
            canvas.rect(x, 6, max(each - 0.4, 0.3), 48, colour)

    def __repr__(self) -> str:
        return f"KVWallet({self.choice['model']} on {self.choice['gpu']}: {self.wallet.fit:,} fit)"


def _tables() -> dict[str, Any]:
    """What the browser needs of the simulator's tables."""
    shapes = [find_model(name) for name in model_names()]
    models = [
        {
            "name": name,
            "parameters": shape.num_parameters,
            "kv_numbers": 2 * shape.num_layers * shape.num_kv_heads * shape.head_dim,
            "longest": shape.max_position_embeddings,
        }
        for name, shape in zip(model_names(), shapes, strict=True)
    ]
    gpus = [{"name": h.name, "bytes": h.memory_bytes} for h in hardware_table()]
    return {"models": models, "gpus": gpus, "dtypes": DTYPES, "usable": USABLE}


def _gib(count: float) -> str:
    return f"{count / 2**30:.1f} GiB"
