"""Static batching: board together, leave together (chapter 08)."""

from __future__ import annotations

from tinyvllm_lab.engine.plan import StepPlan
from tinyvllm_lab.engine.scheduler import Scheduler


class StaticBatchScheduler(Scheduler):
    """Admits a batch only when the one before has left; empty seats stay empty until then.

    The batch is whoever waits at that moment, up to `max_num_seqs`. If the token budget is too
    small for all their prompts at once, the same requests board over several steps; nobody else
    joins them. A batch is padded to its longest member in engines that compute a rectangle:
    `StepPlan.num_padding_tokens` says how many tokens that would add.
    """

    _boarding = 0
    _seats_taken = 0

    def _schedule_waiting(self, plan: StepPlan, budget: int, cap: int) -> int:
        if not self.running:
            self._boarding = min(len(self.waiting), self.config.max_num_seqs)
            self._seats_taken = 0
        budget = super()._schedule_waiting(plan, budget, cap)
        boarded = len(plan.admitted) + len(plan.resumed)
        self._boarding -= boarded
        self._seats_taken += boarded
        return budget

    def _has_seat(self) -> bool:
        return self._boarding > 0 and super()._has_seat()

    def schedule(self) -> StepPlan:
        """Plan one step, and count the padding of a rectangular batch."""
        plan = super().schedule()
        widest = max(plan.num_tokens, default=0)
        rows = max(self._seats_taken, len(plan.requests))
        plan.num_padding_tokens = widest * rows - plan.total_tokens
        return plan
