"""The scheduler: in every step it decides who computes how many tokens (chapters 09, 12, 13).

There is no prefill phase and no decode phase: each request has tokens whose keys and values are not
computed yet, and each step gives it some of them. A decode is the case of one token. Rules and
order are vLLM V1's, down to the block ids; what is ours (swap, fork, contiguous memory, other
orders and victims) is switched off by default. This module imports neither torch nor any widget.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tinyvllm_lab.engine.config import EngineConfig
from tinyvllm_lab.engine.events import Kind, Phase
from tinyvllm_lab.engine.lifecycle import Lifecycle
from tinyvllm_lab.engine.plan import StepPlan
from tinyvllm_lab.engine.request import Request, Status
from tinyvllm_lab.engine.scheduled_events import log_scheduled, withdraw_scheduled

_ADMIT, _RESUME, _PREEMPT = int(Kind.ADMIT), int(Kind.RESUME), int(Kind.PREEMPT)
_SCHEDULED = int(Kind.SCHEDULED)
_PREFILL, _DECODE = int(Phase.PREFILL), int(Phase.DECODE)

LOOKAHEAD = 64
"""How many requests behind a blocked head are tried in one step (`skip_blocked_head`)."""


class Scheduler(Lifecycle):
    """Continuous batching over a `KVAllocator`. Arguments: see `Lifecycle`, and:

    Args:
        trust_unwritten: keep the hash of a block whose tokens were taken out of the batch before
            they were computed, as vLLM does; a later hit on it would read keys and values that
            nobody wrote. Only replay of vLLM's traces, which has no tensors, wants that.
    """

    def __init__(
        self,
        config: EngineConfig,
        events: list[int] | None = None,
        *,
        trust_unwritten: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(config, events, **options)
        self._trust_unwritten = trust_unwritten

    def schedule(self) -> StepPlan:
        """Plan one step: running requests first, then admissions, within the token budget.

        Returns:
            The plan. `num_computed_tokens` of its requests counts the planned tokens already.
        """
        plan = StepPlan()
        config = self.config
        threshold = config.long_prefill_token_threshold
        # A request that is all alone is not slowed down.
        cap = threshold if len(self.running) + len(self.waiting) > 1 else 0
        budget = config.max_num_batched_tokens
        prefill_first = config.order == "prefill-first" and not self._num_preempted_waiting
        num_before = len(self.running)
        if prefill_first:
            budget = self._schedule_waiting(plan, budget, cap)
        budget = self._schedule_running(plan, budget, cap, num_before)
        if not prefill_first and not plan.preempted:
            budget = self._schedule_waiting(plan, budget, cap)
        plan.total_tokens = config.max_num_batched_tokens - budget
        self._take_copies(plan)
        return plan

    def _schedule_running(self, plan: StepPlan, budget: int, cap: int, stop: int) -> int:
        """Give running requests their tokens, in order, preempting others if KV memory is short.

        This loop runs for every request in every step, so it is one function with local names.
        """
        running, memory, events = self.running, self.memory, self.events
        block_size, last = memory.block_size, self.config.max_model_len - 1
        chunked, caching = self.config.use_kv_cache, memory.enable_caching
        add_request, add_count = plan.requests.append, plan.num_tokens.append
        add_start, add_sample = plan.starts.append, plan.samples.append
        i = 0
        while i < stop and budget > 0:
            request = running[i]
            start = request.num_computed_tokens
            missing = len(request.token_ids) - start
            n = missing
            if n != 1 or start >= last:
                n = self._trim(n, start, cap, budget, chunked)
                if n <= 0:
                    i += 1
                    continue
            end = start + n
            if end > request.kv_capacity or request.forked:
                i, stop, budget, fits = self._make_room(plan, i, stop, budget, end)
                if not fits:
                    continue
            if caching and end // block_size > request.num_cached_blocks:
                memory.cache_full_blocks(request, end)
            request.num_computed_tokens = end
            budget -= n
            i += 1
            add_request(request)
            add_count(n)
            add_start(start)
            add_sample(n == missing)
            if events is not None:
                if start < request.num_recomputed:
                    log_scheduled(events, request, start, n)
                else:
                    phase = _DECODE if start >= request.num_prompt_tokens else _PREFILL
                    events += (_SCHEDULED, request.index, n, phase)
        return budget

    def _trim(self, n: int, start: int, cap: int, budget: int, chunked: bool) -> int:
        """Cut a request's missing tokens to what this step can give it."""
        if not chunked:
            return n if n <= budget else 0
        if 0 < cap < n:
            n = cap
        return min(n, budget, self.config.max_model_len - 1 - start)

    def _make_room(
        self, plan: StepPlan, i: int, stop: int, budget: int, num_tokens: int
    ) -> tuple[int, int, int, bool]:
        """Grow `running[i]` to `num_tokens` tokens, preempting victims until it fits.

        Returns:
            Its index, the end of the loop and the budget, after victims left the list and gave
            their tokens back; and whether it fits. If not, it was the last victim itself.
        """
        request = self.running[i]
        while not self.memory.grow(request, num_tokens):
            victim = self._victim(self._candidates(i, stop))
            place = self.running.index(victim, 0 if victim is not self.running[-1] else -1)
            del self.running[place]
            stop -= 1
            if place < i:
                i -= 1
                budget += self._unschedule(plan, victim)
            self._preempt(plan, victim)
            if victim is request:
                return i, stop, budget, False
        return i, stop, budget, True

    def _candidates(self, i: int, stop: int) -> Sequence[Request]:
        """Requests that may be preempted for `running[i]`.

        vLLM's priority rule may pick one that has its tokens of this step already; everybody else
        looks only at those that do not. New admissions (prefill-first) are never victims, and the
        oldest request is one only when it is alone: so somebody always gets on, whatever the rule.
        """
        if self.config.policy == "priority" and self.config.victim == "last":
            return self.running[:stop]
        return self.running[max(i, 1) : stop] or self.running[:1]

    def _unschedule(self, plan: StepPlan, victim: Request) -> int:
        """Take a victim out of the batch; returns the tokens that it gives back."""
        if victim not in plan.requests:
            return 0
        row = plan.requests.index(victim)
        victim.num_computed_tokens = plan.starts[row]
        if not self._trust_unwritten:
            self.memory.drop_unwritten(victim, victim.num_computed_tokens)
        count = plan.num_tokens[row]
        for column in (plan.requests, plan.num_tokens, plan.starts, plan.samples):
            del column[row]
        if self.events is not None:
            withdraw_scheduled(self.events, victim)
        return count

    def _preempt(self, plan: StepPlan, victim: Request) -> None:
        """Take a running request's seat and memory; it waits for both again."""
        computed = victim.num_computed_tokens
        swap = self.config.preemption == "swap"
        slot = victim.seq_slot
        if self.events is not None:
            mark = len(self.events)
            self.events += (_PREEMPT, victim.index, slot, 0)
        victim.num_recomputed = max(victim.num_recomputed, computed)
        if swap and self.memory.swap_out(victim):
            if self.events is not None:
                self.events[mark + 3] = 1
        else:
            self.memory.release(victim)
            victim.num_computed_tokens = 0
        victim.status = Status.PREEMPTED
        victim.num_preemptions += 1
        self._leave_seat(victim)
        self._num_preempted_waiting += 1
        self.waiting.add_preempted(victim)
        plan.preempted.append(victim)

    def _schedule_waiting(self, plan: StepPlan, budget: int, cap: int) -> int:
        """Admit from the head of the queue while seats, budget and memory last."""
        skipped: list[Request] = []
        waiting = self.waiting
        while budget > 0 and len(waiting) and self._has_seat() and len(skipped) < LOOKAHEAD:
            request = waiting.peek()
            hits = self.memory.find_prefix(request)
            start = len(hits) * self.memory.block_size or request.num_computed_tokens
            n = self._first_chunk(request, start, cap, budget)
            if n and self._gates_open(request, hits, start + n):
                self._admit(plan, waiting.pop(), hits, start, n)
                budget -= n
            elif self.config.skip_blocked_head:
                skipped.append(waiting.pop())
            else:
                break
        for request in reversed(skipped):
            waiting.push_front(request)
        return budget

    def _first_chunk(self, request: Request, start: int, cap: int, budget: int) -> int:
        """Tokens that a waiting request would get in this step; 0: it must wait."""
        n = len(request.token_ids) - start
        if 0 < cap < n:
            n = cap
        if n > budget and not (self.config.enable_chunked_prefill and self.config.use_kv_cache):
            return 0
        return min(n, budget)

    def _gates_open(self, request: Request, hits: Sequence[int], num_tokens: int) -> bool:
        """Is there memory for the whole sequence so far, and for the tokens of this step?

        The output still to come is never reserved. The watermark protects those who run already.
        """
        config, memory = self.config, self.memory
        reserve = int(config.watermark * config.num_blocks) if self.running else 0
        if config.reserve_full_isl:
            whole = min(len(request.token_ids), config.max_model_len)
            if not memory.fits(request, hits, whole, reserve):
                return False
        return memory.fits(request, hits, num_tokens, reserve)

    def _admit(
        self, plan: StepPlan, request: Request, hits: Sequence[int], start: int, n: int
    ) -> None:
        """Give a waiting request a seat, memory, and its first tokens of this step."""
        resumed = request.status is Status.PREEMPTED
        request.status = Status.RUNNING
        request.seq_slot = self._seats.take()
        hit_tokens = len(hits) * self.memory.block_size
        if self.events is not None:
            kind = _RESUME if resumed else _ADMIT
            self.events += (kind, request.index, request.seq_slot, hit_tokens)
        self.memory.admit(request, hits, start + n)
        self.memory.cache_full_blocks(request, start + n)
        request.num_computed_tokens = start + n
        self.running.append(request)
        self._num_preempted_waiting -= resumed
        (plan.resumed if resumed else plan.admitted).append(request)
        plan.hit_tokens.append(hit_tokens)
        plan.requests.append(request)
        plan.num_tokens.append(n)
        plan.starts.append(start)
        plan.samples.append(start + n == len(request.token_ids))
        if self.events is not None:
            log_scheduled(self.events, request, start, n)

    def _take_copies(self, plan: StepPlan) -> None:
        pending = self.memory.pending
        if pending:
            plan.swap_out, pending.swap_out = pending.swap_out, []
            plan.swap_in, pending.swap_in = pending.swap_in, []
            plan.copies, pending.copies = pending.copies, []
            plan.moves, pending.moves = pending.moves, []
        self.memory.end_step()
