"""The front desk: what comes from outside, and how it reaches the engine at the top of a step.

Requests, aborts and knob changes may come from any thread at any time. They wait in the inbox; the
engine reads it between two steps: knobs, then aborts and expired deadlines, then arrivals.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tinyvllm_lab.engine.clock import Clock
from tinyvllm_lab.engine.config import EngineConfig, field_specs
from tinyvllm_lab.engine.door import check_request, too_long_for_a_step
from tinyvllm_lab.engine.events import Kind, Reason
from tinyvllm_lab.engine.inbox import Inbox, drain
from tinyvllm_lab.engine.intake import make_children, make_request
from tinyvllm_lab.engine.log import EventLog
from tinyvllm_lab.engine.plan import Executor
from tinyvllm_lab.engine.request import Request, Status
from tinyvllm_lab.engine.sampling_params import SamplingParams
from tinyvllm_lab.engine.scheduler import Scheduler
from tinyvllm_lab.engine.text import TextStream, TextTokenizer
from tinyvllm_lab.errors import KnobRefused, RequestRefused

_KNOB, _REJECT = int(Kind.KNOB), int(Kind.REJECT)


class FrontDesk:
    """The outside half of an engine; see `Engine` for the arguments."""

    def __init__(
        self,
        config: EngineConfig,
        scheduler: Scheduler,
        executor: Executor,
        *,
        tokenizer: TextTokenizer | None,
        clock: Clock,
        log: EventLog | None,
        vocab_size: int | None,
        eos_token_ids: Sequence[int],
    ) -> None:
        self.config = config
        self.scheduler = scheduler
        self.executor = executor
        self.tokenizer = tokenizer
        self.clock = clock
        self.log = log
        self.vocab_size = vocab_size
        self.eos_token_ids = tuple(eos_token_ids)
        self.inbox = Inbox()
        self.requests: dict[str, Request] = {}
        self._numbers = itertools.count()
        self._names = itertools.count()
        self._deadlines: list[tuple[float, int, Request]] = []
        self._families: dict[str, Request] = {}

    def add_request(
        self,
        prompt: str | Sequence[int],
        sampling_params: SamplingParams | None = None,
        *,
        request_id: str | None = None,
        priority: int = 0,
        timeout_s: float | None = None,
        cache_salt: str | None = None,
        arrival_time: float | None = None,
    ) -> Request:
        """Send a request; it joins the queue at the top of the next step. Callable from any thread.

        Args:
            prompt: text (needs a tokenizer) or token ids.
            sampling_params: how to sample, and when to stop.
            request_id: your name for it; None: the engine finds one.
            priority: a smaller number goes first, under the priority policy.
            timeout_s: the request ends with `Reason.TIMEOUT` so many seconds after its arrival.
            cache_salt: requests share cached prefixes only with the same salt.
            arrival_time: engine clock of the arrival, in seconds; None: now.

        Returns:
            The request. With `n > 1` it is the first sample, and `children` are the others.

        Raises:
            RequestRefused: it could never run, or its name is taken. The others go on.
        """
        arrival = self.clock.now() if arrival_time is None else arrival_time
        request_id = request_id or self._free_name()
        request = make_request(
            request_id, prompt, sampling_params, self.tokenizer,
            arrival_time=arrival,
            priority=priority,
            deadline=_deadline(request_id, arrival, timeout_s),
            cache_salt=cache_salt,
            eos_token_ids=self.eos_token_ids,
        )  # fmt: skip
        request.children = make_children(request)
        samples = [request, *request.children]
        try:
            self._check_at_door(samples)
        except RequestRefused:
            self.inbox.refusals.append(request)
            raise
        self.requests.update((sample.request_id, sample) for sample in samples)
        if request.children:
            self._families[request.request_id] = request
        self.inbox.arrivals.append(request)
        return request

    def _free_name(self) -> str:
        names = (f"request-{number}" for number in self._names)
        return next(name for name in names if name not in self.requests)

    def _check_at_door(self, samples: list[Request]) -> None:
        for sample in samples:
            if sample.request_id in self.requests:
                raise RequestRefused(
                    f"A request named {sample.request_id!r} is unfinished.", "a name of its own"
                )
        check_request(samples[0], self.config, self.scheduler.memory, self.vocab_size)

    def fork(
        self,
        request_id: str,
        sampling_params: SamplingParams | None = None,
        *,
        new_id: str | None = None,
    ) -> Request:
        """Let a second request go on from where one is now, sharing its blocks (chapter 12).

        The child's prompt is all that its parent holds at this moment, prompt and output. It starts
        at the top of the next step, without computing that again if the parent runs and a seat is
        free; else it waits like any request. Whoever writes into a shared block first copies it.

        Args:
            request_id: the parent, unfinished.
            sampling_params: of the child; None: the parent's. `n` does not count.
            new_id: your name for the child; None: the engine finds one.

        Raises:
            RequestRefused: there is no such parent, or the child could never run.
        """
        parent = self.requests.get(request_id)
        if parent is None or parent.is_unforked:
            raise RequestRefused(
                f"No request that has begun and is unfinished is named {request_id!r}.",
                "the name of a request that waits or runs",
            )
        child = make_request(
            new_id or self._free_name(), list(parent.token_ids),
            replace(sampling_params or parent.sampling_params, n=1), None,
            arrival_time=self.clock.now(),
            priority=parent.priority,
            deadline=parent.deadline,
            cache_salt=parent.cache_salt,
            eos_token_ids=self.eos_token_ids,
        )  # fmt: skip
        self._check_at_door([child])
        self.requests[child.request_id] = child
        self.inbox.forks.append((parent, child))
        return child

    def abort(self, request_id: str, reason: Reason = Reason.ABORT) -> None:
        """End a request, and its other samples, at the top of the next step.

        An unknown or finished name is ignored: clients hang up late. Callable from any thread.
        """
        self.inbox.aborts.append((request_id, reason))

    def set_knob(self, name: str, value: Any) -> None:
        """Change a knob at the top of the next step. Callable from any thread.

        Raises:
            KnobRefused: the knob needs a restart, or does not exist.
            ConfigError: the value is out of range.
        """
        spec = next((s for s in field_specs() if s.name == name), None)
        if spec is None or not spec.live:
            live = ", ".join(s.name for s in field_specs() if s.live)
            raise KnobRefused(
                f"{name!r} cannot change while the engine runs.",
                f"one of {live}",
                "Make a new engine with another EngineConfig.",
            )
        replace(self.config, **{name: value})
        self.inbox.knobs.append((name, value))

    # ------------------------------------------------------------ top of a step

    def _read_inbox(self) -> tuple[list[Request], list[KnobRefused]]:
        """Knobs, then aborts and expired deadlines, then arrivals.

        Returns:
            Requests that ended here, and knob changes that came too late to be possible.
        """
        inbox = self.inbox
        if not inbox and not self._deadlines:
            return [], []
        refused = [r for change in drain(inbox.knobs) if (r := self._turn_knob(*change))]
        ended = [r for order in drain(inbox.aborts) for r in self._abort_now(*order)]
        ended += self._expire()
        for request in drain(inbox.refusals):
            self._log_refusal(request)
        for request in drain(inbox.arrivals):
            if not request.is_finished:
                self._submit(request)
        for parent, child in drain(inbox.forks):
            if not child.is_finished:
                self._start_fork(parent, child)
        return ended, refused

    def _turn_knob(self, name: str, value: Any) -> KnobRefused | None:
        old = getattr(self.config, name)
        config = replace(self.config, **{name: value})
        everybody = [*self.scheduler.requests(), *self.inbox.arrivals]
        if shut_out := too_long_for_a_step(everybody, config):
            return KnobRefused(
                f"With {name}={value!r} these requests could never run again: "
                + ", ".join(r.request_id for r in shut_out[:5]),
                fix="Wait until they have ended, or abort them.",
            )
        self.config = config
        self.scheduler.configure(config)
        if self.log is not None:
            intern = self.log.intern_knob
            self.log.buffer += (_KNOB, intern(name), intern(old), intern(value))
        return None

    def _abort_now(self, request_id: str, reason: Reason) -> list[Request]:
        """End a request and its other samples; a name that nobody has is ignored."""
        request = self._families.get(request_id) or self.requests.get(request_id)
        if request is None:
            return []
        if request.is_unforked:
            return [self._drop_unforked(request, reason)]
        if request.index < 0:  # it was sent and called back between two steps: log both
            self._submit(request)
        family = [request, *(child for child in request.children if child.index >= 0)]
        ended = [sample for sample in family if self.scheduler.abort(sample, reason)]
        for sample in ended:
            self._forget(sample)
        return ended

    def _drop_unforked(self, child: Request, reason: Reason | None) -> Request:
        """End a sample that never started: its parent's prompt is not computed yet."""
        child.status, child.finish_reason = Status.FINISHED, reason
        self.requests.pop(child.request_id, None)
        return child

    def _expire(self) -> list[Request]:
        now, ended = self.clock.now(), []
        while self._deadlines and self._deadlines[0][0] <= now:
            request = heapq.heappop(self._deadlines)[2]
            if not request.is_finished:
                ended += self._abort_now(request.request_id, Reason.TIMEOUT)
        return ended

    def _expect(self, request: Request) -> None:
        """Remember a deadline; those of requests that ended long ago are forgotten by and by."""
        if request.deadline is None:
            return
        if len(self._deadlines) > 2 * len(self.requests) + 64:
            self._deadlines = [d for d in self._deadlines if not d[2].is_finished]
            heapq.heapify(self._deadlines)
        heapq.heappush(self._deadlines, (request.deadline, request.index, request))

    def _submit(self, request: Request) -> None:
        self._register(request)
        self._expect(request)
        self.scheduler.add(request)

    def _start_fork(self, parent: Request, child: Request) -> None:
        """The child takes over what its parent has computed, but for the last of its tokens:
        it computes that one itself, and samples from it."""
        child.parent = parent.index
        self._register(child)
        self._expect(child)
        child.num_computed_tokens = min(parent.num_computed_tokens, child.num_tokens - 1)
        self.scheduler.fork(parent, child)

    def _register(self, request: Request) -> None:
        """Give the request its number, its place in the log and its text stream."""
        request.index = next(self._numbers)
        if self.log is not None:
            self.log.add_request(
                request.index, request.request_id,
                prompt_tokens=request.num_prompt_tokens,
                max_tokens=request.sampling_params.max_tokens,
                priority=request.priority,
                parent=request.parent,
                arrival_us=round(request.arrival_time * 1e6),
            )  # fmt: skip
        if self.tokenizer is not None:
            request.text_stream = TextStream(self.tokenizer, request)

    def _log_refusal(self, request: Request) -> None:
        if self.log is not None:
            self._register(request)
            max_tokens = request.sampling_params.max_tokens
            self.log.buffer += (_REJECT, request.index, request.num_prompt_tokens, max_tokens)

    def _forget(self, request: Request) -> None:
        """A request has ended: nothing of it stays in the engine."""
        self.requests.pop(request.request_id, None)
        if request.text_stream is not None:
            request.text_stream.finish()
        self.executor.finish(request)
        for child in request.children:
            if child.is_unforked:
                self._drop_unforked(child, request.finish_reason)
        for name in [request.request_id, request.request_id.rsplit("/", 1)[0]]:
            family = self._families.get(name)
            if family is not None and all(r.is_finished for r in (family, *family.children)):
                del self._families[name]


def _deadline(request_id: str, arrival: float, timeout_s: float | None) -> float | None:
    if timeout_s is None:
        return None
    if not isinstance(timeout_s, int | float) or not math.isfinite(timeout_s):
        raise RequestRefused(
            f"Request {request_id!r} has the timeout {timeout_s!r}.", "seconds, or None"
        )
    return arrival + timeout_s
