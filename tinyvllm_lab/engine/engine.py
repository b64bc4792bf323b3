"""The engine: one loop around scheduler, executor and event log (chapters 09 and 14).

A step is, in this order and in no other: the inbox (knobs, then aborts and expired deadlines, then
arrivals), `schedule()`, the plan's copies, `execute(plan)`, `update(result)`, flush of the events.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from tinyvllm_lab.cache import BlockPool
from tinyvllm_lab.engine.clock import Clock, WallClock
from tinyvllm_lab.engine.config import EngineConfig
from tinyvllm_lab.engine.events import Kind
from tinyvllm_lab.engine.front_desk import FrontDesk
from tinyvllm_lab.engine.log import EventLog
from tinyvllm_lab.engine.plan import Executor, StepPlan, StepResult
from tinyvllm_lab.engine.queues import Key
from tinyvllm_lab.engine.request import Request
from tinyvllm_lab.engine.scheduler import Scheduler
from tinyvllm_lab.engine.static import StaticBatchScheduler
from tinyvllm_lab.engine.text import TextTokenizer, stops_by_text
from tinyvllm_lab.errors import ConfigError, EngineError, KnobRefused, StepFailed

_STEP, _STEP_END = int(Kind.STEP), int(Kind.STEP_END)

STUCK_AFTER = 3
"""Steps in a row that compute nothing although work is left, before the watchdog barks."""

SchedulerFactory = Callable[[EngineConfig, list[int] | None], Scheduler]


@dataclass(slots=True)
class StepOutput:
    """What one step brought.

    Attributes:
        plan: what was computed.
        tokens: (request, token id, new text) of each request that got a token; the text is empty
            without a tokenizer, and while a character or a possible stop string is incomplete.
        finished: requests that ended in this step, for whatever reason.
        refused: knob changes that an unfinished request made impossible.
    """

    plan: StepPlan
    tokens: list[tuple[Request, int, str]] = field(default_factory=list)
    finished: list[Request] = field(default_factory=list)
    refused: list[KnobRefused] = field(default_factory=list)


class Engine(FrontDesk):
    """Many requests, one model. Not thread-safe but for the inbox: `EngineRunner` owns a thread.

    Args:
        config: the knobs.
        executor: runs the plans: `TorchExecutor`, `SimulatedExecutor`, or your own.
        tokenizer: for prompts given as text, streamed text and stop strings.
        scheduler: an object, or a factory called with (config, events); None: the config decides.
        block_pool: your own pool, or a factory called with (num_blocks, events).
        policy_key: your own policy: request -> sort key, the smallest is admitted first.
        clock: None: wall time.
        log: an `EventLog`, None for a new one, or False for none.
        vocab_size: ids from here on are refused; None: not checked.
        eos_token_ids: tokens that end an answer.
    """

    def __init__(
        self,
        config: EngineConfig,
        executor: Executor,
        *,
        tokenizer: TextTokenizer | None = None,
        scheduler: Scheduler | SchedulerFactory | None = None,
        block_pool: BlockPool | Callable[[int, Any], BlockPool] | None = None,
        policy_key: Key | None = None,
        clock: Clock | None = None,
        log: EventLog | Literal[False] | None = None,
        vocab_size: int | None = None,
        eos_token_ids: Sequence[int] = (),
    ) -> None:
        event_log = EventLog(config) if log is None else None if log is False else log
        events = event_log.buffer if event_log is not None else None
        super().__init__(
            config,
            _make_scheduler(config, events, scheduler, block_pool, policy_key),
            executor,
            tokenizer=tokenizer,
            clock=clock or WallClock(),
            log=event_log,
            vocab_size=vocab_size,
            eos_token_ids=eos_token_ids,
        )
        self.num_steps = 0
        self._events = events
        self._empty_steps = 0
        self._times = (0, 0)

    @property
    def has_work(self) -> bool:
        """True while a request waits or runs, or the inbox holds something."""
        return bool(self.inbox) or self.scheduler.has_work

    def close(self) -> None:
        """End all requests, and give back KV memory and device resources."""
        for request_id in list(self.requests):
            self.abort(request_id)
        if self.has_work:
            self._begin_step()
            self._read_inbox()
            self._end_step()
        self.executor.close()

    # ------------------------------------------------------------------- a step

    def step(self) -> StepOutput:
        """Do one step.

        Raises:
            StepFailed: the executor failed. The requests of its batch ended with `Reason.ERROR`;
                the others can go on.
            EngineError: work is left but nothing moves.
        """
        self._begin_step()
        ended, refused = self._read_inbox()
        started = time.perf_counter_ns()
        try:
            plan = self.scheduler.schedule()
        except BaseException:
            self._end_step()  # the log must not hold half a step
            raise
        plan.step = self.num_steps
        scheduled = time.perf_counter_ns()
        output = StepOutput(plan, finished=ended, refused=refused)
        try:
            result = self._execute(plan)
        except BaseException as error:
            self._fail(output, error)
            raise
        self._times = (scheduled - started, time.perf_counter_ns() - scheduled)
        self._update(output, result)
        self._end_step()
        self._watch(plan)
        return output

    def _begin_step(self) -> None:
        if self._events is not None:
            clock_us = round(self.clock.now() * 1e6)
            scheduler = self.scheduler
            self._events += (_STEP, len(scheduler.waiting), scheduler.memory.num_used, clock_us)

    def _execute(self, plan: StepPlan) -> StepResult:
        if plan.has_copies:
            self.executor.run_copies(plan)
        if plan.is_empty:
            return StepResult([])
        result = self.executor.execute(plan)
        _check_result(plan, result)
        if result.elapsed_us is not None:
            self.clock.advance_us(result.elapsed_us)
            if self.log is not None:
                self.log.info.setdefault("time", "simulated")
        return result

    def _update(self, output: StepOutput, result: StepResult) -> None:
        plan = output.plan
        if self._families:
            self._fork_samples(plan)
        stops = stops_by_text if self.tokenizer is not None else None
        finished = self.scheduler.update(plan, result.token_ids, stops)
        if result.logprobs is not None:
            _keep_logprobs(plan, result.logprobs)
        for request in finished:
            self._forget(request)
        output.finished += finished
        rows = zip(plan.requests, result.token_ids, plan.samples, strict=True)
        has_text = self.tokenizer is not None
        output.tokens = [
            (r, token, _new_text(r) if has_text else "") for r, token, sampled in rows if sampled
        ]
        if self.log is not None and self.tokenizer is not None:
            self._note_texts(output)

    def _note_texts(self, output: StepOutput) -> None:
        """The log's table of texts, for panels that show tokens."""
        assert self.log is not None
        assert self.tokenizer is not None
        texts = self.log.texts
        for _, token, _ in output.tokens:
            if token not in texts:
                texts[token] = self.tokenizer.token_text(token)

    def _end_step(self) -> None:
        self.num_steps += 1
        if self.log is not None:
            schedule_ns, execute_ns = self._times
            clock_us = round(self.clock.now() * 1e6)
            self.log.buffer += (_STEP_END, clock_us, schedule_ns // 1000, execute_ns // 1000)
            self.log.flush()
        if self.config.check_invariants:
            self.scheduler.check_invariants()

    def _fail(self, output: StepOutput, error: BaseException) -> None:
        """The executor raised: its batch is lost, everything else goes on."""
        failed = self.scheduler.fail(output.plan)
        for request in failed:
            self._forget(request)
        self._end_step()
        if isinstance(error, Exception):
            names = ", ".join(r.request_id for r in failed)
            raise StepFailed(
                f"Step {output.plan.step} could not be computed: {type(error).__name__}: {error}",
                fix=f"These requests ended with an error, the others can go on: {names}.",
            ) from error

    def _watch(self, plan: StepPlan) -> None:
        """The watchdog: work is left, but nothing is computed."""
        stuck = plan.is_empty and not plan.preempted and self.scheduler.has_work
        self._empty_steps = self._empty_steps + 1 if stuck else 0
        if self._empty_steps >= STUCK_AFTER:
            self._empty_steps = 0
            raise EngineError(
                f"Nothing was computed in {STUCK_AFTER} steps, but work is left: "
                f"{self.scheduler.describe()}.",
                "a scheduler that serves somebody in each step while somebody can be served",
                "Abort the request at the head of the queue, or repair the scheduler.",
            )

    def _fork_samples(self, plan: StepPlan) -> None:
        """A parent whose prompt is computed now gets its other samples."""
        for request, sampled in zip(plan.requests, plan.samples, strict=True):
            unforked = [c for c in request.children if c.is_unforked] if sampled else []
            for child in unforked:
                self._start_fork(request, child)


def _make_scheduler(
    config: EngineConfig, events: Any, scheduler: Any, block_pool: Any, policy_key: Key | None
) -> Scheduler:
    """The caller's scheduler (object or factory), or the one that the config names."""
    if scheduler is not None and block_pool is not None:
        raise ConfigError(
            "Both a scheduler and a block_pool were passed.",
            "one of them: a scheduler of your own brings its own memory",
        )
    if scheduler is not None:
        is_factory = isinstance(scheduler, type) or not hasattr(scheduler, "schedule")
        return scheduler(config, events) if is_factory else scheduler
    if callable(block_pool):
        block_pool = block_pool(config.num_blocks, events)
    if block_pool is not None:
        _adopt_pool(block_pool, config, events)
    kind = StaticBatchScheduler if config.batching == "static" else Scheduler
    return kind(config, events, block_pool=block_pool, policy_key=policy_key)


def _adopt_pool(pool: BlockPool, config: EngineConfig, events: Any) -> None:
    """A pool that was made elsewhere must have the size of the KV tensors, and log its events."""
    if pool.num_blocks != config.num_blocks:
        raise ConfigError(
            f"The block pool has {pool.num_blocks} blocks, EngineConfig.num_blocks is "
            f"{config.num_blocks}.",
            "equal numbers",
        )
    if pool.events is None:
        pool.events = events


def _check_result(plan: StepPlan, result: StepResult) -> None:
    """An executor of one's own must answer every row, with a whole number."""
    tokens = result.token_ids
    if len(tokens) != len(plan.requests) or not set(map(type, tokens)) <= {int}:
        raise EngineError(
            f"The executor answered {len(plan.requests)} rows with {str(tokens)[:80]}.",
            "one token id (an int) a row, -1 in rows that sample nothing",
        )


def _new_text(request: Request) -> str:
    return request.text_stream.take() if request.text_stream is not None else ""


def _keep_logprobs(plan: StepPlan, logprobs: Sequence[Any]) -> None:
    for request, row in zip(plan.requests, logprobs, strict=True):
        if row is not None:
            request.logprobs.append(row)
