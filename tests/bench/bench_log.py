"""What the event log costs beside a real step of the tiny model (it should stay under 5 %)."""

from __future__ import annotations

import time

import torch

from tinyvllm_lab.engine.config import EngineConfig
from tinyvllm_lab.engine.engine import Engine
from tinyvllm_lab.engine.log import EventLog
from tinyvllm_lab.engine.sampling_params import SamplingParams
from tinyvllm_lab.engine.torch_executor import TorchExecutor
from tinyvllm_lab.model.llama import LlamaModel
from tinyvllm_lab.paths import assets_dir

REPEATS = 3
TOKENS = 64


def engine_seconds(model: LlamaModel, batch: int, with_log: bool) -> tuple[float, int]:
    """Time of all steps of a batch, and the number of events that were logged."""
    config = EngineConfig(max_num_seqs=batch)
    engine = Engine(config, TorchExecutor(model, config), log=None if with_log else False)
    params = SamplingParams(temperature=0.0, max_tokens=TOKENS, ignore_eos=True)
    for i in range(batch):
        engine.add_request(list(range(10 * i + 5, 10 * i + 37)), params)
    started = time.perf_counter()
    while engine.has_work:
        engine.step()
    return time.perf_counter() - started, engine.log.num_events if engine.log else 0


def append_seconds(num_events: int, num_steps: int) -> float:
    """Time to append and flush so many events, nothing else."""
    log = EventLog()
    a_step = max(1, num_events // num_steps)
    started = time.perf_counter()
    for _ in range(num_steps):
        buffer = log.buffer
        buffer += (1, 0, 0, 0)
        for i in range(a_step - 1):
            buffer += (6, i, 1, 1)
        log.flush()
    return time.perf_counter() - started


def main() -> None:
    """Print the table."""
    torch.set_num_threads(1)
    model = LlamaModel.from_dir(assets_dir() / "models" / "tiny", dtype="float32")
    print("batch   s/run with log   without   events   appending them alone, share of the run")
    for batch in (1, 16):
        with_log = min(engine_seconds(model, batch, True) for _ in range(REPEATS))
        without = min(engine_seconds(model, batch, False) for _ in range(REPEATS))
        alone = append_seconds(with_log[1], TOKENS)
        print(
            f"{batch:5}   {with_log[0]:14.3f}   {without[0]:7.3f}   {with_log[1]:6}   "
            f"{alone * 1e3:.2f} ms = {alone / with_log[0]:.2%}"
        )


if __name__ == "__main__":
    main()
