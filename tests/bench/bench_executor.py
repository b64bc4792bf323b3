"""How fast the torch executor decodes and prefills the tiny model: `make bench` prints the table.

It drives the executor with plans of its own, so that only the forward pass and its preparation are
timed: no scheduler, no events. One thread, float32, greedy.
"""

from __future__ import annotations

import time

import torch

from tinyvllm_lab.engine.config import EngineConfig
from tinyvllm_lab.engine.plan import StepPlan
from tinyvllm_lab.engine.request import Request
from tinyvllm_lab.engine.sampling_params import SamplingParams
from tinyvllm_lab.engine.torch_executor import TorchExecutor
from tinyvllm_lab.model.llama import LlamaModel
from tinyvllm_lab.paths import assets_dir

PROMPT_LEN = 64
DECODE_STEPS = 64
BATCHES = (1, 4, 16)
REPEATS = 3


def plan_of(requests: list[Request], num_tokens: int) -> StepPlan:
    """Each request computes its next `num_tokens` tokens, and samples."""
    count = len(requests)
    starts = [request.num_computed_tokens for request in requests]
    return StepPlan(
        0, requests, [num_tokens] * count, starts, [True] * count, num_tokens * count
    )  # fmt: skip


def run(executor: TorchExecutor, requests: list[Request], num_tokens: int) -> float:
    """One step; returns its seconds."""
    begin = time.perf_counter()
    result = executor.execute(plan_of(requests, num_tokens))
    elapsed = time.perf_counter() - begin
    for request, token_id in zip(requests, result.token_ids, strict=True):
        request.num_computed_tokens += num_tokens
        request.token_ids.append(token_id)
    return elapsed


def make_requests(count: int, config: EngineConfig, prompt_len: int, vocab: int) -> list[Request]:
    """Requests with random prompts, whose blocks lie scattered over the pool."""
    generator = torch.Generator().manual_seed(count)
    greedy = SamplingParams(temperature=0.0, max_tokens=DECODE_STEPS + 1)
    blocks = (torch.randperm(config.num_blocks - 1, generator=generator) + 1).tolist()
    per_request = -(-(prompt_len + DECODE_STEPS + 1) // config.block_size)
    requests = []
    for index in range(count):
        prompt = torch.randint(0, vocab, (prompt_len,), generator=generator).tolist()
        request = Request(f"r{index}", prompt, greedy, index=index)
        request.block_table = blocks[index * per_request : (index + 1) * per_request]
        requests.append(request)
    return requests


def measure(executor: TorchExecutor, count: int) -> tuple[float, float]:
    """Median seconds of a decode step, and seconds of the prefill before it."""
    requests = make_requests(count, executor.config, PROMPT_LEN, executor.model.config.vocab_size)
    prefill = run(executor, requests, PROMPT_LEN)
    steps = sorted(run(executor, requests, 1) for _ in range(DECODE_STEPS))
    return steps[len(steps) // 2], prefill


def bench() -> dict[int, tuple[float, float]]:
    """Best of several runs: batch size -> (decode tokens/s, prefill tokens/s)."""
    model = LlamaModel.from_dir(assets_dir() / "models" / "tiny", dtype="float32")
    executor = TorchExecutor(model, EngineConfig(enable_prefix_caching=False))
    measure(executor, BATCHES[0])
    rates = {}
    for count in BATCHES:
        runs = [measure(executor, count) for _ in range(REPEATS)]
        decode, prefill = (min(times) for times in zip(*runs, strict=True))
        rates[count] = count / decode, count * PROMPT_LEN / prefill
    return rates


def main() -> None:
    """Print the table."""
    torch.set_num_threads(1)
    rates = bench()
    print("torch executor, tiny model, float32, one thread")
    print(f"{'batch':>5} {'decode tok/s':>13} {'prefill tok/s':>14}")
    for count, (decode, prefill) in rates.items():
        print(f"{count:>5} {decode:>13,.0f} {prefill:>14,.0f}")
    ratio = rates[BATCHES[-1]][0] / rates[1][0]
    print(f"decode, batch {BATCHES[-1]} against 1: {ratio:.1f} x (wanted: at least 4 x)")


if __name__ == "__main__":
    main()
