"""What the scheduler hands to an executor (`StepPlan`), and what comes back (`StepResult`)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

from tinyvllm_lab.engine.request import Request


@dataclass(slots=True)
class StepPlan:
    """The work of one step. Row i of the batch is `requests[i]`.

    The copies come first, in this order: swap out, swap in, copy-on-write, region moves. Then row i
    computes tokens `starts[i] .. starts[i] + num_tokens[i] - 1` of its request, writing their keys
    and values into `request.block_table` (paged) or `request.region` (contiguous). Every row's KV
    of a layer is written before any row's attention of that layer reads it: rows may share blocks
    that are filled in this very step. Row i samples a token if `samples[i]`.
    """

    step: int = 0
    requests: list[Request] = field(default_factory=list)
    num_tokens: list[int] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    samples: list[bool] = field(default_factory=list)
    total_tokens: int = 0
    num_padding_tokens: int = 0
    """Static batching: tokens that a rectangular batch would compute on top, for empty seats and
    shorter rows. Neither of our executors computes them: both take rows of any length."""
    swap_out: list[tuple[int, int]] = field(default_factory=list)
    """(block, host_block) pairs."""
    swap_in: list[tuple[int, int]] = field(default_factory=list)
    """(host_block, block) pairs."""
    copies: list[tuple[int, int]] = field(default_factory=list)
    """(source block, target block) pairs of copy-on-write."""
    moves: list[tuple[int, int, int]] = field(default_factory=list)
    """(old start, new start, tokens) of contiguous regions; old and new may overlap."""
    admitted: list[Request] = field(default_factory=list)
    resumed: list[Request] = field(default_factory=list)
    preempted: list[Request] = field(default_factory=list)
    hit_tokens: list[int] = field(default_factory=list)
    """Prefix-cache tokens of each admitted or resumed request, in the order of admission."""

    @property
    def is_empty(self) -> bool:
        """True if no token is computed in this step."""
        return not self.requests

    @property
    def has_copies(self) -> bool:
        """True if the executor has something to copy before it computes."""
        return bool(self.swap_out or self.swap_in or self.copies or self.moves)


@dataclass(slots=True)
class StepResult:
    """What an executor computed.

    Attributes:
        token_ids: one per row; -1 for rows that sample nothing in this step.
        logprobs: per row, what the request asked for (None if nothing): the executor's
            `TokenLogprobs`.
        elapsed_us: simulated executors: the step's duration by their model. None: measure it.
    """

    token_ids: list[int]
    logprobs: list[Any] | None = None
    elapsed_us: int | None = None


class Executor(Protocol):
    """Runs plans: `TorchExecutor` on real tokens, `SimulatedExecutor` on a model of time."""

    def run_copies(self, plan: StepPlan) -> None:
        """Do the plan's swaps, copies and moves."""

    def execute(self, plan: StepPlan) -> StepResult:
        """Compute the plan's tokens, and sample."""

    def finish(self, request: Request) -> None:
        """The request ended or was dropped: forget what you keep for it."""

    def close(self) -> None:
        """Give back KV memory and device resources."""
