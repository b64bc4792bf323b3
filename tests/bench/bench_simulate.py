"""How fast simulated time is: microseconds a row of the executor, and seconds for 1,000 chats.

Run with `make bench`, or `python tests/bench/bench_simulate.py`. CPU time of one core, so that
a busy machine disturbs little; the best of three.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from tinyvllm_lab.engine.events import Kind
from tinyvllm_lab.engine.plan import StepPlan
from tinyvllm_lab.engine.request import Request
from tinyvllm_lab.simulate import ClosedLoop, CostModel, SimulatedExecutor, chat
from tinyvllm_lab.simulate.run import simulate


def best(work: Callable[[], object], repeats: int = 3) -> float:
    times = []
    for _ in range(repeats):
        begin = time.process_time()
        work()
        times.append(time.process_time() - begin)
    return min(times)


def bench_executor() -> None:
    executor = SimulatedExecutor(CostModel("A10G", "llama-3.2-1b"))
    for rows in (8, 64, 256):
        requests = [Request(str(i), range(1000), index=i) for i in range(rows)]
        plan = StepPlan(0, requests, [1] * rows, [999] * rows, [True] * rows, rows)
        seconds = best(lambda p=plan: [executor.execute(p) for _ in range(500)]) / 500
        print(f"executor, {rows:4} rows: {seconds / rows * 1e6:.3f} us a row")


def bench_chats() -> None:
    # Conversations never stop coming: all 64 seats are taken nearly all the time.
    workload = chat(arrivals=ClosedLoop(100), think_s=0.0)
    for name, log in (("with the event log", None), ("without a log", False)):
        seconds = best(lambda log=log: simulate(workload, log=log))
        print(f"1,000 chats, {workload.output_tokens:,} tokens, {name}: {seconds:.2f} s")
    run = simulate(workload)
    rows = int((run.log.as_array()[:, 0] == Kind.SCHEDULED).sum())
    print(f"{run}; {rows / run.engine.num_steps:.1f} requests and "
          f"{run.log.num_events / run.engine.num_steps:.0f} events a step")  # fmt: skip


if __name__ == "__main__":
    bench_executor()
    bench_chats()
