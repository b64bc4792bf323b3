"""`OutputStream`: one request's tokens, handed from the engine's thread to a reader's."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from queue import SimpleQueue

from tinyvllm_lab.engine.request import Request


@dataclass(frozen=True, slots=True)
class TokenOutput:
    """One token of a request.

    Attributes:
        token_id: the token; -1 if the request ended without one (abort, timeout, error).
        text: the text that became certain with it.
        finish_reason: "stop", "length", "abort", "timeout" or "error" in the last one; else None.
    """

    token_id: int
    text: str
    finish_reason: str | None = None


class OutputStream:
    """Iterates over the tokens of one request, and ends with it.

    Attributes:
        request: the request.
        others: with `n > 1`, the streams of its other samples.
    """

    def __init__(self, request: Request) -> None:
        self.request = request
        self.others: list[OutputStream] = []
        self._queue: SimpleQueue[TokenOutput] = SimpleQueue()
        self._ended = False

    def put(self, output: TokenOutput) -> None:
        """Engine thread: hand over a token."""
        self._queue.put(output)

    def __iter__(self) -> Iterator[TokenOutput]:
        while not self._ended:
            output = self._queue.get()
            self._ended = output.finish_reason is not None
            yield output

    def text(self) -> Iterator[str]:
        """The pieces of text as they come."""
        return (output.text for output in self if output.text)


def finish_word(request: Request) -> str | None:
    """The finish reason as people read it; None while the request goes on."""
    return None if request.finish_reason is None else request.finish_reason.name.lower()
