"""How a request's tokens of one step are written into the log, and withdrawn from it."""

from __future__ import annotations

from tinyvllm_lab.engine.events import Kind, Phase
from tinyvllm_lab.engine.request import Request

_SCHEDULED = int(Kind.SCHEDULED)
_PREFILL, _DECODE, _RECOMPUTE = int(Phase.PREFILL), int(Phase.DECODE), int(Phase.RECOMPUTE)
_WIDTH = 4


def log_scheduled(events: list[int], request: Request, start: int, n: int) -> None:
    """Log `n` tokens from `start` on.

    Tokens that were computed before a preemption are computed again: they are waste, and are logged
    in an event of their own, so that a step may hold two for one request.
    """
    again = min(n, request.num_recomputed - start)
    if again > 0:
        events += (_SCHEDULED, request.index, again, _RECOMPUTE)
        start, n = start + again, n - again
    if n:
        phase = _DECODE if start >= request.num_prompt_tokens else _PREFILL
        events += (_SCHEDULED, request.index, n, phase)


def withdraw_scheduled(events: list[int], request: Request) -> None:
    """Take a victim's tokens out of the step that is being planned.

    The buffer holds only the events of this step, none of which has been published yet.
    """
    for at in range(len(events) - _WIDTH, -1, -_WIDTH):
        if events[at] == _SCHEDULED and events[at + 1] == request.index:
            del events[at : at + _WIDTH]
