"""`WorkloadFeed`: lets a source's customers come, wait and hang up at an engine (chapter 15)."""

from __future__ import annotations

from dataclasses import replace
from heapq import heappop, heappush

from tinyvllm_lab.engine.engine import Engine, StepOutput
from tinyvllm_lab.engine.events import Reason
from tinyvllm_lab.engine.request import Request
from tinyvllm_lab.engine.sampling_params import SamplingParams
from tinyvllm_lab.errors import ConfigError, RequestRefused
from tinyvllm_lab.simulate.source import Arrival, Source
from tinyvllm_lab.simulate.workloads import Workload


class WorkloadFeed:
    """A `Feed` for `run_to_end` and `EngineRunner`, in simulated time or in real time.

    Args:
        workload: a `Workload`, or a `Source` of your own.
        sampling_params: how all requests sample; each gets its own `max_tokens`.

    Attributes:
        source: where the requests come from.
        refused: what the engine's door said to each request that it refused, by name.
        num_sent: requests that the engine took.
    """

    def __init__(
        self, workload: Workload | Source, sampling_params: SamplingParams | None = None
    ) -> None:
        self.source: Source = workload.source() if isinstance(workload, Workload) else workload
        if not callable(getattr(self.source, "take", None)):
            raise ConfigError(f"The workload is {workload!r}.", "a Workload, or a Source")
        self.refused: dict[str, RequestRefused] = {}
        self.num_sent = 0
        self._sampling_params = sampling_params or SamplingParams()
        self._params_by_limit: dict[int, SamplingParams] = {}
        self._open: dict[str, Request] = {}
        self._sent: list[tuple[Request, str]] = []
        self._hang_ups: list[tuple[float, str]] = []
        self._token_limits: dict[str, int] = {}

    def before_step(self, engine: Engine) -> None:
        """Hang up and send what is due at the engine's clock."""
        now = engine.clock.now()
        while self._hang_ups and self._hang_ups[0][0] <= now:
            engine.abort(heappop(self._hang_ups)[1])
        # A refusal may call forth the next request at once: ask until nothing is due.
        while arrivals := self.source.take(now):
            for arrival in arrivals:
                self._send(engine, arrival, now)

    def _send(self, engine: Engine, arrival: Arrival, now: float) -> None:
        asked = arrival.request
        name = asked.request_id
        try:
            request = engine.add_request(
                arrival.prompt_token_ids,
                self._params(asked.max_tokens),
                request_id=name,
                priority=asked.priority,
                arrival_time=arrival.arrival_s,
            )
        except RequestRefused as refusal:
            self.refused[name] = refusal
            self.source.on_finish(name, arrival.prompt_token_ids, now, completed=False)
            return
        self.num_sent += 1
        self._open[name] = request
        self._sent.append((request, asked.kind))
        if asked.abort_after_s is not None:
            heappush(self._hang_ups, (arrival.arrival_s + asked.abort_after_s, name))
        if asked.abort_after_tokens is not None:
            self._token_limits[name] = asked.abort_after_tokens

    def _params(self, max_tokens: int) -> SamplingParams:
        """Parameters are frozen, and checking them takes time: requests share equal ones."""
        params = self._params_by_limit.get(max_tokens)
        if params is None:
            params = replace(self._sampling_params, max_tokens=max_tokens)
            self._params_by_limit[max_tokens] = params
        return params

    def after_step(self, engine: Engine, output: StepOutput) -> None:
        """Tell the source who has ended, and hang up on those who have heard enough."""
        self._note_kinds(engine)
        now = engine.clock.now()
        for request in output.finished:
            if self._open.pop(request.request_id, None) is not None:
                self._token_limits.pop(request.request_id, None)
                completed = request.finish_reason in (Reason.STOP, Reason.LENGTH)
                self.source.on_finish(request.request_id, request.token_ids, now, completed)
        heard = [
            n for n, most in self._token_limits.items() if self._open[n].num_output_tokens >= most
        ]
        for name in heard:
            del self._token_limits[name]
            engine.abort(name)

    def _note_kinds(self, engine: Engine) -> None:
        """Write each new request's kind into the log, beside its name."""
        if engine.log is not None:
            for request, kind in self._sent:
                if request.index in engine.log.requests:
                    engine.log.requests[request.index]["kind"] = kind
        self._sent.clear()

    def next_time(self) -> float | None:
        """Engine clock of the next arrival or hang-up that is known by now; None: there is none."""
        while self._hang_ups and self._hang_ups[0][1] not in self._open:
            heappop(self._hang_ups)
        times = [self.source.next_arrival_s()] + [at for at, _ in self._hang_ups[:1]]
        return min((at for at in times if at is not None), default=None)
