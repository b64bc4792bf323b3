"""Time what is queued on a stream, with CUDA events and a cold L2 cache."""

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import torch

WARM_UPS = 3
MOST_SAMPLES, BUDGET_S = 50, 0.25
COLD_BYTES = 1 << 30


@dataclass(frozen=True)
class Timing:
    """The median of `samples` runs, in microseconds.

    `late` of the samples were dropped: Python was too slow to queue the work while the GPU was
    still busy with the cache, and its gaps would have been counted. If most were, none is dropped.
    """

    us: float
    samples: int
    late: int


class Stopwatch:
    """Times calls that only queue work.

    Before each run, zeros are written over more memory than the L2 cache holds: the run finds
    none of its data there. And they take some hundred microseconds, in which Python queues both
    events and the run: so the events enclose the GPU's work and nothing else.

    Args:
        stream: PyCUDA's, in which torch works too.
        device: "cuda", or "cpu" for the fake driver.
        dry: measure nothing to speak of, quickly.
    """

    def __init__(self, stream: Any, device: str, dry: bool = False) -> None:
        self.stream, self.dry = stream, dry
        self.cold = torch.empty(1 << 10 if dry else COLD_BYTES, dtype=torch.uint8, device=device)
        self.empty_us = self.time(lambda: None).us

    def time(self, run: Callable[[], Any]) -> Timing:
        """The median time of `run`."""
        begin = perf_counter()
        for _ in range(1 if self.dry else WARM_UPS):
            run()
        self.stream.synchronize()
        one = max((perf_counter() - begin) / WARM_UPS, 1e-6)
        count = 2 if self.dry else max(5, min(MOST_SAMPLES, int(BUDGET_S / one)))
        samples = [self._sample(run) for _ in range(count)]
        on_time = [us for us, late in samples if not late]
        kept = on_time if 2 * len(on_time) >= count else [us for us, _ in samples]
        return Timing(statistics.median(kept), count, count - len(on_time))

    def _sample(self, run: Callable[[], Any]) -> tuple[float, bool]:
        import pycuda.driver as driver

        begin, end = driver.Event(), driver.Event()
        self.cold.zero_()
        begin.record(self.stream)
        run()
        end.record(self.stream)
        late = begin.query()
        end.synchronize()
        return 1e3 * end.time_since(begin), late
