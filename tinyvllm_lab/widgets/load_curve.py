"""What the latency-throughput explorer simulates: its knobs, their workload, and the curve.

No widget in here. `static/load_curves.js` reads what `Curve.page` writes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from math import ceil
from typing import Any

from tinyvllm_lab.engine.config import EngineConfig
from tinyvllm_lab.errors import ConfigError
from tinyvllm_lab.simulate.arrivals import Poisson
from tinyvllm_lab.simulate.cost import CostModel
from tinyvllm_lab.simulate.hardware import hardware_table
from tinyvllm_lab.simulate.lengths import LogNormal
from tinyvllm_lab.simulate.models import model_names
from tinyvllm_lab.simulate.presets import Draw, Turn, make_workload
from tinyvllm_lab.simulate.run import config_for
from tinyvllm_lab.simulate.sweep import LOADS, LoadPoint, LoadSweep, load_points
from tinyvllm_lab.simulate.workloads import Workload

RANGES = {
    "max_num_seqs": (1, 256),
    "max_num_batched_tokens": (64, 16384),
    "prompt": (16, 2048),
    "answer": (4, 512),
    "long_prompts": (0, 50),
    "ttft_ms": (10, 10_000),
    "tpot_ms": (2, 500),
}
"""Lowest and highest value of each knob that is a whole number."""
STEPS = {
    "long_prompts": list(range(0, 55, 5)),
    "ttft_ms": [n * 10**p for p in (1, 2, 3) for n in (1, 2, 3, 5, 7)] + [10_000],
    "tpot_ms": [*range(2, 10), *range(10, 20, 2), *range(20, 50, 5), *range(50, 550, 50)],
}
"""The values that a slider has, where doublings would be odd."""
OPTIONS = {
    "model": tuple(model_names()),
    "gpu": tuple(hardware.name for hardware in hardware_table()),
    "latency": ("ttft", "tpot", "e2e"),
    "percentile": ("p50", "p95", "p99"),
    "throughput": ("tokens", "requests"),
}
"""The values of the others."""
SIMULATED = (
    "model", "gpu", "max_num_seqs", "max_num_batched_tokens", "prompt", "answer", "long_prompts",
)  # fmt: skip
"""The knobs that make a new curve; the others only show it differently."""
FEWEST_REQUESTS, REQUESTS_A_SEAT = 256, 4
"""A run has so many requests, so that neither filling the seats nor emptying them is measured."""
LONG = 8
"""A long prompt has so many times the tokens."""
SPREAD = 0.6
"""Sigma of the lognormal lengths."""
ORDER = (4, 7, 2, 9, 5, 1, 6, 3, 8, 0)
"""The order in which the rates are computed: the shape first, the slow ones last."""


def check_knob(owner: str, name: str, value: Any) -> None:
    """Refuse a knob's value that is none of its own.

    Raises:
        ConfigError: the knob is unknown, or the value out of range.
    """
    if name in OPTIONS:
        ok, expected = value in OPTIONS[name], "one of " + ", ".join(OPTIONS[name])
    elif name in RANGES:
        low, high = RANGES[name]
        ok, expected = type(value) is int and low <= value <= high, f"{low:,} to {high:,}"
    else:
        knobs = ", ".join([*OPTIONS, *RANGES])
        raise ConfigError(f"{owner} has no knob {name!r}.", f"one of {knobs}")
    if not ok:
        raise ConfigError(f"{owner}: {name} is {value!r}.", expected)


def num_requests(knobs: Mapping[str, Any]) -> int:
    """Requests of each run."""
    return max(FEWEST_REQUESTS, REQUESTS_A_SEAT * knobs["max_num_seqs"])


def workload_of(knobs: Mapping[str, Any]) -> Workload:
    """The requests that every run gets, in the same order."""
    longest = CostModel(knobs["gpu"], knobs["model"]).model.max_position_embeddings
    lengths = knobs["prompt"], knobs["answer"], knobs["long_prompts"]
    return _workload(*lengths, longest, num_requests(knobs))


@lru_cache(maxsize=4)
def _workload(prompt: int, answer: int, long_prompts: int, longest: int, count: int) -> Workload:
    draw = Draw(0)
    prompts = LogNormal(prompt, SPREAD, 4, longest // 2)
    answers = LogNormal(answer, SPREAD, 2, longest // 2)
    conversations = []
    for _ in range(count):
        # All three are drawn, whatever the knobs say: turning one leaves the others' draws alone.
        is_long = 100 * draw.lengths.random() < long_prompts
        asked = prompts.sample(draw.lengths) * (LONG if is_long else 1)
        answered = answers.sample(draw.lengths)
        tokens = draw.tokens(min(asked, longest // 2))
        conversations.append([Turn(tokens, answered, kind="long" if is_long else "short")])
    about = f"Prompts of about {prompt} tokens, {long_prompts} % of them {LONG} times as long."
    return make_workload("explorer", conversations, Poisson(1.0), about=about)


def config_of(cost_model: CostModel, workload: Workload, knobs: Mapping[str, Any]) -> EngineConfig:
    """The engine's settings: as many KV blocks as fit the card, but no more than can be filled.

    Raises:
        ConfigError: the model does not fit the card.
    """
    seats, size = knobs["max_num_seqs"], cost_model.block_size
    blocks = [ceil((len(r.prompt_token_ids) + r.max_tokens) / size) for r in workload]
    most = 1 + sum(sorted(blocks, reverse=True)[:seats])
    return config_for(
        cost_model, workload,
        max_num_seqs=seats,
        max_num_batched_tokens=knobs["max_num_batched_tokens"],
        num_blocks=min(cost_model.num_kv_blocks(), most),
        # No prompt has anything in common with another one.
        enable_prefix_caching=False,
    )  # fmt: skip


def points_of(
    knobs: Mapping[str, Any], stop: Callable[[], bool]
) -> Iterator[tuple[int | None, LoadPoint]]:
    """The capacity (place None), then the points with their places, in the order of `ORDER`.

    Args:
        knobs: `SIMULATED`.
        stop: asked before every step; True ends the sweep there.

    Raises:
        ConfigError: the model does not fit the card.
    """
    cost_model, workload = CostModel(knobs["gpu"], knobs["model"]), workload_of(knobs)
    config = config_of(cost_model, workload, knobs)
    loads = [LOADS[place] for place in ORDER]
    points = load_points(workload, config, loads=loads, cost_model=cost_model, stop=stop)
    yield from zip((None, *ORDER), points, strict=False)


@dataclass
class Curve:
    """A sweep as far as it has come.

    Attributes:
        number: of the sweep in its widget.
        knobs: what it is simulated with.
        capacity: the run in which all requests are there from the start.
        points: by place in `LOADS`.
        done: nothing more will come.
        wall_s: seconds that it took.
        error, traceback: what went wrong.
    """

    number: int
    knobs: dict[str, Any]
    capacity: LoadPoint | None = None
    points: dict[int, LoadPoint] = field(default_factory=dict)
    done: bool = False
    wall_s: float = 0.0
    error: str = ""
    traceback: str = ""

    @property
    def sweep(self) -> LoadSweep | None:
        """The points by ascending rate; None: there is no capacity yet."""
        ordered = [point for _, point in sorted(self.points.items())]
        return None if self.capacity is None else LoadSweep(self.capacity, ordered)

    def page(self) -> dict[str, Any]:
        """The typedef `Curve` of `static/load_curves.js`."""
        return {
            "number": self.number,
            "knobs": self.knobs,
            "num_rates": len(LOADS),
            "num_requests": num_requests(self.knobs),
            "capacity": None if self.capacity is None else page_capacity(self.capacity),
            "points": [page_point(place, p) for place, p in sorted(self.points.items())],
            "done": self.done,
            "wall_s": self.wall_s,
            "error": self.error,
            "traceback": self.traceback,
        }


def page_capacity(point: LoadPoint) -> dict[str, float]:
    """The capacity, for the page."""
    return {"requests": point.requests_per_s, "tokens": point.output_tokens_per_s}


def page_point(place: int, point: LoadPoint) -> dict[str, Any]:
    """One rate for the page: the typedef `Point` of `static/load_curves.js`."""
    return {
        "place": place,
        "rate": point.rate,
        "requests": point.requests_per_s,
        "tokens": point.output_tokens_per_s,
        "backlog": point.backlog,
        "saturated": point.is_saturated,
        "ttft": [_whole_us(r.ttft) for r in point.requests],
        "tpot": [_whole_us(r.tpot) for r in point.requests],
        "e2e": [_whole_us(r.e2e) for r in point.requests],
    }


def _whole_us(seconds: float | None) -> int | None:
    """Rounded up, but not for the last bits of a float."""
    return None if seconds is None else ceil(seconds * 1e6 - 1e-3)
