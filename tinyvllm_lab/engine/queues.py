"""Waiting queues and policies: who is admitted next (chapter 13)."""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from tinyvllm_lab.engine.request import Request

Key = Callable[[Request], Any]


def priority_key(request: Request) -> tuple[int, float, str]:
    """Smaller is served first: priority number, then arrival, then id. vLLM's order."""
    return request.priority, request.arrival_time, request.request_id


def shortest_job_key(request: Request) -> tuple[int, float, str]:
    """Smaller is served first: tokens that are still to be computed at most, then arrival."""
    return request.max_len - request.num_computed_tokens, request.arrival_time, request.request_id


KEYS: dict[str, Key | None] = {"fcfs": None, "priority": priority_key, "sjf": shortest_job_key}
"""The key of each policy. None: the order of arrival, with preempted requests in front."""


class WaitingQueue(Protocol):
    """Requests without a seat, in the order in which they will be admitted."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Request]: ...

    def add(self, request: Request) -> None:
        """A new request arrives."""

    def add_preempted(self, request: Request) -> None:
        """A request lost its seat."""

    def peek(self) -> Request:
        """The next one, which stays in the queue."""

    def pop(self) -> Request:
        """Take the next one out."""

    def push_front(self, request: Request) -> None:
        """Put back what was popped last."""

    def remove(self, request: Request) -> None:
        """Take one out, wherever it stands."""


class FcfsQueue:
    """First come, first served. Every operation is O(1)."""

    def __init__(self) -> None:
        self._requests: OrderedDict[int, Request] = OrderedDict()

    def __len__(self) -> int:
        return len(self._requests)

    def __iter__(self) -> Iterator[Request]:
        return iter(self._requests.values())

    def add(self, request: Request) -> None:
        """Join at the end."""
        self._requests[request.index] = request

    def add_preempted(self, request: Request) -> None:
        """Join at the front: it came before all that wait."""
        self._requests[request.index] = request
        self._requests.move_to_end(request.index, last=False)

    def peek(self) -> Request:
        """The head."""
        return next(iter(self._requests.values()))

    def pop(self) -> Request:
        """Take the head out."""
        return self._requests.popitem(last=False)[1]

    push_front = add_preempted

    def remove(self, request: Request) -> None:
        """Take one out."""
        del self._requests[request.index]


class KeyedQueue:
    """Smallest key first: a heap. Removed requests stay in it until they reach the top."""

    def __init__(self, key: Key) -> None:
        self._key = key
        self._heap: list[tuple[Any, int, Request]] = []
        self._live: dict[int, int] = {}
        self._count = 0

    def __len__(self) -> int:
        return len(self._live)

    def __iter__(self) -> Iterator[Request]:
        live = (entry for entry in self._heap if self._live.get(entry[2].index) == entry[1])
        return (request for _, _, request in sorted(live, key=lambda entry: entry[:2]))

    def add(self, request: Request) -> None:
        """Join at the place of its key."""
        self._count += 1
        self._live[request.index] = self._count
        heapq.heappush(self._heap, (self._key(request), self._count, request))

    add_preempted = add
    push_front = add

    def peek(self) -> Request:
        """The request with the smallest key."""
        heap, live = self._heap, self._live
        while live.get(heap[0][2].index) != heap[0][1]:
            heapq.heappop(heap)
        return heap[0][2]

    def pop(self) -> Request:
        """Take the request with the smallest key out."""
        request = self.peek()
        heapq.heappop(self._heap)
        del self._live[request.index]
        return request

    def remove(self, request: Request) -> None:
        """Take one out."""
        del self._live[request.index]


def make_queue(key: Key | None) -> WaitingQueue:
    """The queue of a policy."""
    return FcfsQueue() if key is None else KeyedQueue(key)
