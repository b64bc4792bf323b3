"""How requests enter and leave the scheduler: queue, seat, memory, tokens (chapters 09, 12, 14)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from tinyvllm_lab.cache import BlockPool, KVAllocator
from tinyvllm_lab.engine.config import EngineConfig
from tinyvllm_lab.engine.events import Kind, Reason
from tinyvllm_lab.engine.memory import make_allocator
from tinyvllm_lab.engine.plan import StepPlan
from tinyvllm_lab.engine.queues import KEYS, Key, make_queue
from tinyvllm_lab.engine.request import Request, Status
from tinyvllm_lab.engine.seats import SeatPool
from tinyvllm_lab.engine.victims import victim_rule
from tinyvllm_lab.errors import EngineError

_SUBMIT, _TOKEN = int(Kind.SUBMIT), int(Kind.TOKEN)
_FINISH, _FORK = int(Kind.FINISH), int(Kind.FORK)

StopCheck = Callable[[Request, int], bool]
"""Says whether a new token ends the request for a reason outside the ids: a stop string."""


class Lifecycle:
    """Everything of a scheduler but the planning of a step.

    Args:
        config: the knobs.
        events: list that receives events (kind, a, b, c), or None: no log.
        block_pool: a pool of the caller's own, instead of a new `BlockPool`.
        policy_key: a policy of the caller's own: request -> sort key, the smallest is admitted
            first.
    """

    def __init__(
        self,
        config: EngineConfig,
        events: list[int] | None = None,
        *,
        block_pool: BlockPool | None = None,
        policy_key: Key | None = None,
    ) -> None:
        self.events = events
        self.memory: KVAllocator = make_allocator(config, events, block_pool)
        self.running: list[Request] = []
        self._policy_key = policy_key
        self._seats = SeatPool()
        self._num_preempted_waiting = 0
        self.waiting = make_queue(policy_key or KEYS[config.policy])
        self._policy = config.policy
        self.configure(config)

    def configure(self, config: EngineConfig) -> None:
        """Take over changed knobs; safe between any two steps."""
        self.config = config
        self._victim = victim_rule(config.victim, config.policy)
        self.memory.configure(config)
        if config.policy != self._policy and self._policy_key is None:
            self._policy = config.policy
            requests = sorted(self.waiting, key=lambda r: (r.arrival_time, r.index))
            self.waiting = make_queue(KEYS[config.policy])
            for request in requests:
                self.waiting.add(request)

    @property
    def has_work(self) -> bool:
        """True while a request waits or runs."""
        return bool(self.running) or len(self.waiting) > 0

    def requests(self) -> Iterator[Request]:
        """Every unfinished request: the running ones, then the waiting ones."""
        yield from self.running
        yield from self.waiting

    def add(self, request: Request) -> None:
        """A request joins the waiting queue."""
        config = self.config
        request.max_len = min(request.max_len, config.max_model_len)
        self.waiting.add(request)
        if self.events is not None:
            params = request.sampling_params
            self.events += (_SUBMIT, request.index, request.num_prompt_tokens, params.max_tokens)

    def update(
        self,
        plan: StepPlan,
        token_ids: Sequence[int],
        stops: StopCheck | None = None,
    ) -> list[Request]:
        """Append the sampled tokens, and end the requests that are done.

        Args:
            plan: what `schedule()` returned.
            token_ids: one token a row; ignored in rows that sample nothing.
            stops: extra check of each new token, for stop strings.

        Returns:
            The requests that ended, in the order of the batch. Their seats and blocks can be used
            in the next step.
        """
        events = self.events
        finished: list[Request] = []
        for request, token, sampled in zip(plan.requests, token_ids, plan.samples, strict=True):
            if not sampled:
                continue
            tokens = request.token_ids
            tokens.append(token)
            if events is not None:
                num_output = len(tokens) - request.num_prompt_tokens
                events += (_TOKEN, request.index, token, num_output)
            if token in request.stop_ids or (stops is not None and stops(request, token)):
                request.finish_reason = Reason.STOP
                finished.append(request)
            elif len(tokens) >= request.max_len:
                request.finish_reason = Reason.LENGTH
                finished.append(request)
        if not self.config.use_kv_cache:
            self._forget_computed(plan)
        if finished:
            self.running = [r for r in self.running if r.finish_reason is None]
            for request in finished:
                self._close(request, request.finish_reason)
        return finished

    def abort(self, request: Request, reason: Reason = Reason.ABORT) -> bool:
        """End a request wherever it is, and free its memory at once; False if it had ended."""
        if request.status is Status.FINISHED:
            return False
        if request.status is Status.RUNNING:
            self.running.remove(request)
        else:
            self.waiting.remove(request)
            self._num_preempted_waiting -= request.status is Status.PREEMPTED
        self._close(request, reason)
        return True

    def fail(self, plan: StepPlan) -> list[Request]:
        """End every request of a batch that could not be computed; their blocks hold no KV."""
        for request, start in zip(plan.requests, plan.starts, strict=True):
            self.memory.drop_unwritten(request, start)
        failed = [r for r in plan.requests if self.abort(r, Reason.ERROR)]
        return failed

    def fork(self, parent: Request, child: Request) -> bool:
        """Start a child from its parent's tokens, sharing the parent's blocks (copy-on-write).

        The child must hold a prefix of the parent's tokens, with `num_computed_tokens` at most the
        parent's. Without a free seat, or with memory that cannot be shared, it waits like a new
        request, from the first token.

        Returns:
            True if it shares and runs.
        """
        child.parent = parent.index
        child.max_len = min(child.max_len, self.config.max_model_len)
        shares = parent.status is Status.RUNNING and self._has_seat() and self.memory.can_share
        child.seq_slot = self._seats.take() if shares else -1
        if self.events is not None:
            max_tokens = child.sampling_params.max_tokens
            self.events += (_SUBMIT, child.index, child.num_prompt_tokens, max_tokens)
            self.events += (_FORK, parent.index, child.index, child.seq_slot)
        if shares:
            self.memory.fork(parent, child)
            child.status = Status.RUNNING
            self.running.append(child)
        else:
            child.num_computed_tokens = 0
            self.waiting.add(child)
        return shares

    def _has_seat(self) -> bool:
        return len(self.running) < self.config.max_num_seqs

    def _close(self, request: Request, reason: Reason | None) -> None:
        request.finish_reason = reason
        request.status = Status.FINISHED
        if self.events is not None and reason is not None:
            self.events += (_FINISH, request.index, int(reason), request.seq_slot)
        self._leave_seat(request)
        self.memory.release(request)

    def _leave_seat(self, request: Request) -> None:
        self._seats.give_back(request.seq_slot)
        request.seq_slot = -1

    def _forget_computed(self, plan: StepPlan) -> None:
        """Without a KV cache the next step starts from the first token again."""
        for request in plan.requests:
            request.num_recomputed = max(request.num_recomputed, request.num_computed_tokens)
            request.num_computed_tokens = 0

    def check_invariants(self) -> None:
        """Compare queues, seats and memory.

        Raises:
            EngineError, CacheError: they contradict each other.
        """
        self._seats.check(r.seq_slot for r in self.running)
        for request in self.waiting:
            if request.block_table or request.region or request.seq_slot >= 0:
                raise EngineError(f"{request!r} waits, but holds memory or a seat.")
        for request in self.running:
            if not request.num_computed_tokens <= request.num_tokens:
                raise EngineError(f"{request!r} has computed more tokens than it has.")
        self.memory.check_invariants(self.requests())

    def describe(self) -> str:
        """Queue, seats and pool, for error messages."""
        head = self.waiting.peek() if len(self.waiting) else None
        return (
            f"{len(self.running)} running ({self.running[:3]}), {len(self.waiting)} waiting "
            f"(head: {head}), {self.memory.describe()}"
        )
