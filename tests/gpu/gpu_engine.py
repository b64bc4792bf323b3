"""The engine on the card: the same tokens by torch, by own kernels and by CUDA graphs; step times.

Also: what is left on the card after an engine was closed.
"""

import gc
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import bench_executor
import torch
from graph_recorder import Recorder
from llama_shapes import LLAMA32_1B
from torch import Tensor

from tinyvllm_lab.engine.config import EngineConfig
from tinyvllm_lab.engine.engine import Engine
from tinyvllm_lab.engine.request import Request
from tinyvllm_lab.engine.sampling_params import SamplingParams
from tinyvllm_lab.engine.torch_executor import TorchExecutor
from tinyvllm_lab.kernels.cuda import device
from tinyvllm_lab.model.config import ModelConfig
from tinyvllm_lab.model.llama import LlamaModel
from tinyvllm_lab.model.weights import weight_shapes
from tinyvllm_lab.paths import assets_dir

TINY = assets_dir() / "models" / "tiny"
LEAK_BYTES = 1 << 20
SMALLER = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 32,
    "intermediate_size": 96,
    "vocab_size": 300,
}


@dataclass(frozen=True)
class Route:
    """One way to compute a step: back end of the kernels, and whether decode steps are graphs."""

    name: str
    kernels: str
    graphs: bool = False

    def executor(self, model: LlamaModel, config: EngineConfig, **options: Any) -> TorchExecutor:
        # Without a GPU nothing can be captured: the tests' double stands in.
        graphs: Any = Recorder() if self.graphs and model.device.type == "cpu" else self.graphs
        return TorchExecutor(model, config, kernels=self.kernels, cuda_graphs=graphs, **options)


ROUTES = (
    Route("torch", "torch"),
    Route("own kernels", "cuda"),
    Route("own kernels, CUDA graphs", "cuda", graphs=True),
)


@dataclass
class EngineReport:
    """What `check_engine` found.

    Attributes:
        tokens: by route: the greedy tokens of all requests in float32, TF32 off.
        replays: by route: decode steps that were replayed as a graph.
        bf16_error: by route: largest difference of a logit in bfloat16 from torch's in float32.
        steps: model, dtype, route, batch: median milliseconds of a decode step and of a prefill.
        left_bytes, left_streams: what engines that were opened and closed again left behind.
    """

    tokens: dict[str, list[list[int]]] = field(default_factory=dict)
    replays: dict[str, int] = field(default_factory=dict)
    bf16_error: dict[str, float] = field(default_factory=dict)
    steps: list[dict[str, Any]] = field(default_factory=list)
    left_bytes: int = 0
    left_streams: int = 0

    def problems(self) -> list[str]:
        """What is not as it should be."""
        found = [
            f"engine: {name} writes other float32 tokens than torch"
            for name, tokens in self.tokens.items()
            if tokens != self.tokens["torch"]
        ]
        # Both round to 8 bits at every layer, in different places.
        allowed = 2 * self.bf16_error["torch"]
        found += [
            f"engine: {name}'s bfloat16 logits are off by {error:.3g}, allowed {allowed:.3g}"
            for name, error in self.bf16_error.items()
            if error > allowed
        ]
        found += [f"engine: {p.name} replayed nothing" for p in ROUTES if self._is_idle(p)]
        if self.left_bytes > LEAK_BYTES or self.left_streams:
            found.append(
                f"engine: after close, {self.left_bytes:,} bytes and {self.left_streams} streams "
                "more are in use"
            )
        return found

    def _is_idle(self, route: Route) -> bool:
        return route.graphs and not self.replays[route.name]

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "tokens": _digest(self.tokens)}


def _digest(tokens: dict[str, list[list[int]]]) -> dict[str, Any]:
    """Whether each route's tokens are torch's, and how many they are."""
    return {
        name: {"count": sum(map(len, lists)), "as_torch": lists == tokens["torch"]}
        for name, lists in tokens.items()
    }


def check_engine(place: str, dry: bool) -> EngineReport:
    """Run everything on `place`, a torch device; TF32 must be off."""
    report, tiny = EngineReport(), LlamaModel.from_dir(TINY, "float32", place)
    for route in ROUTES:
        report.tokens[route.name], report.replays[route.name] = greedy(route, tiny, dry)
    forced = report.tokens["torch"]
    report.bf16_error = bf16_errors(tiny, forced, place)
    report.left_bytes, report.left_streams = left_after_close(tiny, dry)
    report.steps = step_times("tiny", tiny, "float32", dry)
    large = random_on_card(ModelConfig.from_dicts(LLAMA32_1B | (SMALLER if dry else {})), place)
    report.steps += step_times("Llama 3.2 1B, random weights", large, "bfloat16", dry)
    return report


# ---- equal tokens -------------------------------------------------------------------------------
def prompts() -> list[list[int]]:
    generator = torch.Generator().manual_seed(3)
    fresh = [torch.randint(5, 2000, (n,), generator=generator).tolist() for n in (1, 8, 33, 70)]
    shared = list(range(5, 21))
    return [*fresh, shared, [*shared, 7]]


def run(executor: TorchExecutor, lengths: Sequence[int]) -> list[Request]:
    """Requests arrive one by one and leave after so many tokens: the batch grows and shrinks."""
    engine = Engine(executor.config, executor)
    requests, left = [], list(zip(prompts(), lengths, strict=True))
    while left or engine.has_work:
        if left:
            ids, length = left.pop(0)
            greedy_ = SamplingParams(temperature=0.0, max_tokens=length, ignore_eos=True)
            requests.append(engine.add_request(ids, greedy_))
        engine.step()
    engine.close()
    return requests


def config_of(block_size: int = 16) -> EngineConfig:
    return EngineConfig(block_size=block_size, num_blocks=128, max_num_seqs=8)


def greedy(route: Route, model: LlamaModel, dry: bool) -> tuple[list[list[int]], int]:
    """Tokens of each request, and replayed steps."""
    executor = route.executor(model, config_of())
    graphs = executor.graphs
    requests = run(executor, [(3 if dry else 24) + 2 * i for i in range(6)])
    return [r.output_token_ids for r in requests], graphs.num_replays if graphs else 0


class ForcedSampler:
    """Takes given tokens whatever the logits say, and keeps the logits, by request."""

    def __init__(self, tokens: list[list[int]]) -> None:
        self.tokens, self.logits = tokens, [[] for _ in tokens]

    def sample(self, logits: Tensor, rows: Sequence[Request]) -> tuple[list[int], list[Any]]:
        chosen = []
        for request, row in zip(rows, logits, strict=True):
            chosen.append(self.tokens[request.index][request.num_output_tokens])
            self.logits[request.index].append(row.float().cpu().clone())
        return chosen, [None] * len(rows)

    def stacked(self) -> Tensor:
        return torch.cat([torch.stack(rows) for rows in self.logits])


def bf16_errors(f32: LlamaModel, forced: list[list[int]], place: str) -> dict[str, float]:
    """Largest |logit - float32 logit| of each route in bfloat16, all reading the same tokens."""
    bf16, lengths = LlamaModel.from_dir(TINY, "bfloat16", place), [len(ids) for ids in forced]

    def logits(route: Route, model: LlamaModel) -> Tensor:
        sampler = ForcedSampler(forced)
        run(route.executor(model, config_of(), sampler=sampler), lengths)
        return sampler.stacked()

    reference = logits(ROUTES[0], f32)
    return {p.name: float((logits(p, bf16) - reference).abs().max()) for p in ROUTES}


# ---- memory and time ----------------------------------------------------------------------------
def left_after_close(model: LlamaModel, dry: bool) -> tuple[int, int]:
    """Bytes and streams in use after engines were opened and closed, beyond the first one's.

    The first leaves things for the next ones: loaded kernels, a stream, cuBLAS's workspace.
    """
    used = [_used_after_one(model) for _ in range(2 if dry else 4)]
    return used[-1][0] - used[0][0], used[-1][1] - used[0][1]


def _used_after_one(model: LlamaModel) -> tuple[int, int]:
    greedy(ROUTES[-1], model, dry=True)
    gc.collect()
    if model.device.type != "cuda":
        return 0, len(device._idle_streams)
    torch.cuda.synchronize()
    return torch.cuda.memory_allocated(), len(device._idle_streams)


def step_times(name: str, model: LlamaModel, dtype: str, dry: bool) -> list[dict[str, Any]]:
    """Wall time of a step, sampling and all, as `make bench` measures it on the CPU."""
    bench_executor.DECODE_STEPS = 2 if dry else 64
    rows = []
    for route in ROUTES:
        config = EngineConfig(enable_prefix_caching=False)
        executor = route.executor(model, config)
        for batch in (2,) if dry else bench_executor.BATCHES:
            bench_executor.measure(executor, batch)  # builds, captures
            decode, prefill = bench_executor.measure(executor, batch)
            torchs = next((r["decode_ms"] for r in rows if r["batch"] == batch), 1e3 * decode)
            rows.append(
                {
                    "model": name,
                    "dtype": dtype,
                    "route": route.name,
                    "batch": batch,
                    "decode_ms": 1e3 * decode,
                    "decode_of_torch": 1e3 * decode / torchs,
                    "prefill_ms": 1e3 * prefill,
                }
            )
        executor.close()
    return rows


def random_on_card(config: ModelConfig, place: str) -> LlamaModel:
    """Random weights of a real shape, made on the card: they time like real ones."""
    weights = {
        name: torch.randn(shape, device=place, dtype=torch.bfloat16) * shape[-1] ** -0.5
        for name, shape in weight_shapes(config).items()
    }
    return LlamaModel(config, weights)
