"""Random runs of the real engine with a made-up model, for tests of log, state and metrics."""

import random

from tinyvllm_lab.engine.config import EngineConfig
from tinyvllm_lab.engine.engine import Engine
from tinyvllm_lab.engine.log import EventLog
from tinyvllm_lab.engine.plan import StepResult
from tinyvllm_lab.engine.sampling_params import SamplingParams

WORDS = 8000


class Clock:
    """Moves only when the executor says so."""

    def __init__(self) -> None:
        self.us = 0

    def now(self) -> float:
        return self.us / 1e6

    def advance_us(self, microseconds: int) -> None:
        self.us += microseconds

    def advance_to(self, seconds: float) -> None:
        self.us = max(self.us, round(seconds * 1e6))


class Guesser:
    """An executor that draws Zipf-like token ids and takes a random time."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)

    def run_copies(self, plan):
        pass

    def execute(self, plan):
        draw = self.rng.random
        tokens = [int(WORDS ** draw()) if sampled else -1 for sampled in plan.samples]
        return StepResult(tokens, elapsed_us=self.rng.randint(2000, 30000))

    def finish(self, request):
        pass

    def close(self):
        pass


def real_run(
    seed=0, num_requests=30, *, after_step=None, calm=False, capacity=None, max_output=40, **knobs
):
    """Run a random workload to its end; `after_step(engine)` is called after each step.

    Args:
        calm: no aborts, forks and knob changes.
    """
    rng = random.Random(seed)
    settings = {
        "max_num_seqs": 6, "max_num_batched_tokens": 48, "block_size": 4, "num_blocks": 40,
        "num_host_blocks": 30, "max_model_len": 120, "check_invariants": True,
    }  # fmt: skip
    config = EngineConfig(**{**settings, **knobs})
    clock = Clock()
    engine = Engine(config, Guesser(seed), clock=clock, log=EventLog(config, capacity))
    left = num_requests
    prefixes = [[rng.randrange(WORDS) for _ in range(16)] for _ in range(3)]
    while left or engine.has_work:
        if left and (rng.random() < 0.3 or not engine.has_work):
            left -= 1
            prompt = rng.choice(prefixes)[: rng.choice([0, 8, 16])]
            prompt = prompt + [rng.randrange(WORDS) for _ in range(rng.randint(1, 40))]
            params = SamplingParams(
                max_tokens=rng.randint(1, max_output), n=1 if calm else rng.choice([1, 1, 1, 3])
            )
            arrival = max(0.0, clock.now() - rng.randint(0, 2000) / 1e6)
            engine.add_request(
                prompt, params, priority=rng.randint(0, 3), arrival_time=arrival,
                timeout_s=None if calm or rng.random() < 0.9 else rng.random(),
            )  # fmt: skip
        if not calm and engine.requests and rng.random() < 0.03:
            engine.abort(rng.choice(sorted(engine.requests)))
        if not calm and rng.random() < 0.03:
            engine.set_knob("max_num_seqs", rng.randint(2, 8))
        engine.step()
        if after_step is not None:
            after_step(engine)
    return engine
