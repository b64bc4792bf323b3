"""What scheduling costs: microseconds a request-step, with and without the event log.

For scale: vLLM 0.33.0's own scheduler plus update costs about 8 us a request-step at 64 to 256
running requests, measured on a machine like this one on 2026-11-29. Ours makes the same decisions.
"""

from __future__ import annotations

import time
from statistics import mean

from tinyvllm_lab.engine.config import EngineConfig
from tinyvllm_lab.engine.log import EventLog
from tinyvllm_lab.engine.request import Request
from tinyvllm_lab.engine.sampling_params import SamplingParams
from tinyvllm_lab.engine.scheduler import Scheduler

VLLM_US = 8.0
STEPS = 300
WARM_UP = 10


def microseconds(running: int, waiting: int, with_log: bool) -> float:
    """Mean time of schedule() and update() in a decode step, per running request."""
    config = EngineConfig(
        max_num_seqs=running, max_num_batched_tokens=running * 32, num_blocks=running * 60 + 10,
        max_model_len=4096,
    )  # fmt: skip
    log = EventLog(config) if with_log else None
    scheduler = Scheduler(config, log.buffer if log is not None else None)
    for i in range(running + waiting):
        prompt = list(range(50 * i, 50 * i + 32))
        scheduler.add(Request(f"r{i}", prompt, SamplingParams(max_tokens=900), index=i))
    return mean(_step(scheduler, log) for _ in range(STEPS + WARM_UP)) / running * 1e6


def _step(scheduler: Scheduler, log: EventLog | None) -> float:
    started = time.perf_counter()
    plan = scheduler.schedule()
    scheduler.update(plan, [5] * len(plan.requests))
    if log is not None:
        log.flush()
    return time.perf_counter() - started


def main() -> None:
    """Print the table."""
    print("us per request-step        with log   without   (prefix caching on)")
    for running in (8, 64, 256):
        for waiting in (0, 1000):
            times = [microseconds(running, waiting, with_log) for with_log in (True, False)]
            shares = [t / VLLM_US for t in times]
            print(
                f"{running:4} running, {waiting:4} waiting   {times[0]:6.2f}    {times[1]:6.2f}"
                f"    = {shares[0]:.2f} and {shares[1]:.2f} x vLLM's {VLLM_US} us"
            )


if __name__ == "__main__":
    main()
