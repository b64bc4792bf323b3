"""`TextStream`: the text of one request, as its tokens come (chapter 04)."""

from __future__ import annotations

from typing import Any, Protocol

from tinyvllm_lab.engine.request import Request
from tinyvllm_lab.model.detokenizer import IncrementalDetokenizer, StopStringChecker


class TextTokenizer(Protocol):
    """The part of a tokenizer that an engine needs."""

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """Token ids of a text."""

    def token_text(self, token_id: int) -> str:
        """One token as people can read it."""

    def detokenizer(self, skip_special_tokens: bool = True) -> IncrementalDetokenizer:
        """A detokenizer for one request."""


class TextStream:
    """Turns tokens into text that never breaks a character, and ends at stop strings.

    Attributes:
        text: everything that may be shown so far.
    """

    def __init__(self, tokenizer: TextTokenizer, request: Request) -> None:
        params = request.sampling_params
        self.text = ""
        self._detokenizer = tokenizer.detokenizer()
        self._checker = StopStringChecker(params.stop)
        self._min_tokens = params.min_tokens
        self._num_tokens = 0
        self._taken = 0

    def push(self, token_id: int) -> bool:
        """Add a token; True if a stop string is complete."""
        self._num_tokens += 1
        piece = self._detokenizer.push((token_id,))
        self.text += self._checker.push(piece, self._num_tokens >= self._min_tokens)
        return self._checker.found is not None

    def finish(self) -> None:
        """The last token has come: show what was held back, unless a stop string cut it off."""
        if self._checker.found is None:
            self.text += self._checker.push(self._detokenizer.flush()) + self._checker.flush()

    def take(self) -> str:
        """The text that is new since the last call."""
        new = self.text[self._taken :]
        self._taken = len(self.text)
        return new


def stops_by_text(request: Request, token_id: int) -> bool:
    """The scheduler's extra check of a new token: does the text end here?"""
    stream: Any = request.text_stream
    return stream is not None and stream.push(token_id)
