"""Where an engine's requests come from: the `Source` protocol, and a workload that plays itself."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Protocol

from tinyvllm_lab.simulate.workloads import Workload, WorkloadRequest


@dataclass(frozen=True, slots=True)
class Arrival:
    """A request that has arrived, with its whole prompt."""

    request: WorkloadRequest
    arrival_s: float
    prompt_token_ids: Sequence[int]


class Source(Protocol):
    """Gives out requests, and learns when they end: an answer may call forth the next question."""

    def next_arrival_s(self) -> float | None:
        """Time of the next arrival that is known by now; None: none, until something ends."""

    def take(self, until_s: float) -> list[Arrival]:
        """Hand over all that arrive up to this time, in order of arrival."""

    def on_finish(
        self, request_id: str, token_ids: Sequence[int], now_s: float, completed: bool
    ) -> None:
        """A request ended.

        Args:
            token_ids: its prompt and its answer.
            completed: it ended by itself (stop or length), not by an abort, refusal or error.
        """


class WorkloadSource:
    """Plays a workload once.

    Attributes:
        dropped: names of requests that will never arrive, because the conversation ended before.
    """

    def __init__(self, workload: Workload) -> None:
        self.dropped: list[str] = []
        self._order = {r.request_id: i for i, r in enumerate(workload.requests)}
        self._followers: dict[str, list[WorkloadRequest]] = defaultdict(list)
        self._due: list[tuple[float, int, Arrival]] = []
        for request in workload.requests:
            if request.after is None:
                self._push(request, request.arrival_s, request.prompt_token_ids)
            else:
                self._followers[request.after].append(request)

    def next_arrival_s(self) -> float | None:
        """Time of the next arrival that is known by now."""
        return self._due[0][0] if self._due else None

    def take(self, until_s: float) -> list[Arrival]:
        """Hand over all that arrive up to this time; equal times come in the workload's order."""
        taken = []
        while self._due and self._due[0][0] <= until_s:
            taken.append(heappop(self._due)[2])
        return taken

    def on_finish(
        self, request_id: str, token_ids: Sequence[int], now_s: float, completed: bool
    ) -> None:
        """Schedule what follows the request, or drop it if it needed the answer."""
        ended = [(request_id, completed)]
        while ended:
            name, answered = ended.pop()
            for follower in self._followers.pop(name, ()):
                if answered or not follower.keep_history:
                    history = token_ids if follower.keep_history else ()
                    at = now_s + follower.arrival_s
                    self._push(follower, at, [*history, *follower.prompt_token_ids])
                else:
                    self.dropped.append(follower.request_id)
                    ended.append((follower.request_id, False))

    def _push(self, request: WorkloadRequest, at: float, prompt: Sequence[int]) -> None:
        entry = (at, self._order[request.request_id], Arrival(request, at, prompt))
        heappush(self._due, entry)
