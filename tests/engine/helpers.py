"""What the engine tests share: a fake executor that checks what it is told, and small engines."""

from __future__ import annotations

from tinyvllm_lab.engine.config import EngineConfig
from tinyvllm_lab.engine.engine import Engine
from tinyvllm_lab.engine.plan import StepPlan, StepResult
from tinyvllm_lab.engine.request import Request


class FakeClock:
    """Time that tests set."""

    def __init__(self) -> None:
        self.time = 0.0

    def now(self) -> float:
        return self.time

    def advance_us(self, microseconds: int) -> None:
        self.time += microseconds / 1e6

    def advance_to(self, seconds: float) -> None:
        self.time = max(self.time, seconds)


class CheckingExecutor:
    """A model without tensors: it keeps, for every KV slot, which token of which prefix lies there.

    What a slot should hold is known from the tokens alone: (position, all tokens up to it). So any
    row that would read a slot that was never written, was overwritten, or belongs to another prefix
    is caught, as are positions computed twice or never.
    """

    def __init__(self, config: EngineConfig) -> None:
        self.config = config
        self.slots: dict[int, object] = {}
        self.host: dict[int, object] = {}
        self.num_tokens = 0

    def run_copies(self, plan: StepPlan) -> None:
        size = self.config.block_size
        for block, host_block in plan.swap_out:
            for i in range(size):
                self.host[host_block * size + i] = self.slots.get(block * size + i)
        for host_block, block in plan.swap_in:
            for i in range(size):
                self.slots[block * size + i] = self.host.get(host_block * size + i)
        for source, target in plan.copies:
            for i in range(size):
                self.slots[target * size + i] = self.slots.get(source * size + i)
        for old, new, count in plan.moves:
            held = [self.slots.get(old + i) for i in range(count)]
            for i in range(count):
                self.slots[new + i] = held[i]

    def slot(self, request: Request, position: int) -> int:
        if request.region is not None:
            start, length = request.region
            assert position < length
            return start + position
        size = self.config.block_size
        return request.block_table[position // size] * size + position % size

    def execute(self, plan: StepPlan) -> StepResult:
        rows = list(zip(plan.requests, plan.starts, plan.num_tokens, plan.samples, strict=True))
        self.num_tokens += sum(plan.num_tokens)
        assert sum(plan.num_tokens) == plan.total_tokens
        if self.config.use_kv_cache:
            for request, start, count, _ in rows:
                for position in range(start, start + count):
                    self.slots[self.slot(request, position)] = content(request, position)
            for request, start, count, _ in rows:
                for position in range(start + count):
                    held = self.slots.get(self.slot(request, position))
                    assert held == content(request, position), (
                        f"{request!r} reads {held} at position {position}"
                    )
        else:
            assert all(start == 0 for _, start, _, _ in rows)
        for request, start, count, samples in rows:
            assert samples == (start + count == len(request.token_ids))
        return StepResult([next_token(r) if s else -1 for r, _, _, s in rows])

    def finish(self, request: Request) -> None:
        pass

    def close(self) -> None:
        pass


def content(request: Request, position: int) -> int:
    """What a correct KV slot holds: a function of the whole prefix."""
    return hash((position, tuple(request.token_ids[: position + 1])))


def next_token(request: Request) -> int:
    """A model: the next token depends on all tokens before it."""
    return hash(tuple(request.token_ids)) % 97


def make_engine(executor=None, *, clock=None, engine=None, **config) -> Engine:
    settings = EngineConfig(**{"check_invariants": True, **config})
    return Engine(
        settings,
        executor or CheckingExecutor(settings),
        clock=clock or FakeClock(),
        **(engine or {}),
    )


def run(engine: Engine, max_steps: int = 10_000) -> int:
    """Step until nothing is left; returns the number of steps."""
    for count in range(max_steps):
        if not engine.has_work:
            return count
        engine.step()
    raise AssertionError(f"still busy after {max_steps} steps: {engine.scheduler.describe()}")


def alone(prompt: list[int], max_tokens: int) -> list[int]:
    """The output of the fake model when nobody else is there."""
    tokens = list(prompt)
    for _ in range(max_tokens):
        tokens.append(hash(tuple(tokens)) % 97)
    return tokens[len(prompt) :]
