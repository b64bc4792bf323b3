"""`SimulatedExecutor` and `VirtualClock`: the real scheduler, without a model and without waiting.

The executor answers a plan with made-up token ids and with the time that the cost model gives it;
the engine moves the clock by that time. A simulated hour takes seconds.
"""

from __future__ import annotations

from math import ceil

from tinyvllm_lab.engine.plan import StepPlan, StepResult
from tinyvllm_lab.engine.request import Request
from tinyvllm_lab.errors import ConfigError
from tinyvllm_lab.simulate.cost import BatchShape, CostModel, StepCost
from tinyvllm_lab.simulate.token_ids import TOKEN_IDS

_STRIDE = 7919
"""Prime: neighbouring requests get ids far apart, so their blocks never look equal."""


class VirtualClock:
    """A clock that stands still until somebody moves it. Whole microseconds, so nothing drifts."""

    def __init__(self, start_us: int = 0) -> None:
        self._us = start_us

    def now(self) -> float:
        """Seconds since the start."""
        return self._us / 1e6

    @property
    def now_us(self) -> int:
        """Microseconds since the start."""
        return self._us

    def advance_us(self, microseconds: int) -> None:
        """Let time pass.

        Raises:
            ConfigError: the time is negative.
        """
        if microseconds < 0:
            raise ConfigError(f"A clock cannot go back by {-microseconds} us.", "0 or more")
        self._us += microseconds

    def advance_to(self, seconds: float) -> None:
        """Jump so that `now() >= seconds`; does nothing if that is past already."""
        us = max(self._us, ceil(seconds * 1e6))
        # The product above may have been rounded down by one unit in the last place.
        self._us = us if us / 1e6 >= seconds else us + 1


class SimulatedExecutor:
    """An `Executor` without a model: tokens by arithmetic, time by the cost model.

    The k-th token of a request depends on its index and on k alone, so the same workload gives the
    same tokens under every schedule. It is never one of the request's stop ids: a simulated request
    ends at its `max_tokens`.

    Args:
        cost_model: gives the time of each step; None: every step takes `fixed_step_us`.
        num_token_ids: ids lie in 0 .. num_token_ids - 1, or just above if all of these stop.
        fixed_step_us: time of a step without a cost model.

    Attributes:
        last_cost: the parts of the last step's time; None without a cost model.
        busy_us: time of all steps so far.
    """

    def __init__(
        self,
        cost_model: CostModel | None = None,
        *,
        num_token_ids: int = TOKEN_IDS,
        fixed_step_us: int = 1000,
    ) -> None:
        if num_token_ids < 1 or fixed_step_us < 0:
            raise ConfigError(
                f"num_token_ids={num_token_ids} and fixed_step_us={fixed_step_us} cannot be.",
                expected="at least one token id, and a time of 0 or more",
            )
        self.cost_model = cost_model
        self.last_cost: StepCost | None = None
        self.busy_us = 0
        self._num_token_ids = num_token_ids
        self._fixed_step_us = fixed_step_us
        self._copied = (0, 0)

    def run_copies(self, plan: StepPlan) -> None:
        """Note the bytes of the plan's copies; the next `execute` counts their time."""
        if self.cost_model is not None:
            device, link = self.cost_model.copy_traffic(plan)
            self._copied = (self._copied[0] + device, self._copied[1] + link)

    def execute(self, plan: StepPlan) -> StepResult:
        """Make up a token for each row that samples, and say how long the step took."""
        ids = self._num_token_ids
        tokens = [
            (r.index * _STRIDE + len(r.token_ids)) % ids if sampled else -1
            for r, sampled in zip(plan.requests, plan.samples, strict=True)
        ]
        for row, request in enumerate(plan.requests):
            if tokens[row] in request.stop_ids:
                tokens[row] = _next_allowed(tokens[row], request)
        return StepResult(tokens, elapsed_us=self._step_us(plan))

    def _step_us(self, plan: StepPlan) -> int:
        elapsed = self._fixed_step_us
        if self.cost_model is not None:
            batch = BatchShape.of_plan(plan)
            self.last_cost = self.cost_model.of_batch(batch, *self._copied)
            self._copied = (0, 0)
            elapsed = self.last_cost.total_us
        self.busy_us += elapsed
        return elapsed

    def finish(self, request: Request) -> None:
        """Nothing is kept for a request."""

    def close(self) -> None:
        """Nothing to give back."""


def _next_allowed(token: int, request: Request) -> int:
    while token in request.stop_ids:
        token += 1
    return token
