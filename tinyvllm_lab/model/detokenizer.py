"""From token ids to text while they come: whole characters only, and stop strings (chapter 04).

A token is a piece of bytes, not of text: an emoji can take three tokens. Printing each token by
itself would show broken characters; decoding everything again for each token costs O(n^2). So we
keep the few bytes that do not make a character yet, and nothing else.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import tokenizers

from tinyvllm_lab.errors import ModelError

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def _byte_of_char() -> dict[str, int]:
    """GPT-2's printable alphabet for the 256 bytes: a printable byte stands for itself."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [b for b in range(256) if b not in printable]
    table = {chr(b): b for b in printable}
    return table | {chr(256 + n): b for n, b in enumerate(others)}


_BYTE_OF_CHAR = _byte_of_char()


class Joiner(Protocol):
    """Joins the pieces of one request's tokens to text."""

    def push(self, token_id: int) -> str:
        """The text that is certain after this token."""

    def flush(self) -> str:
        """What was held back, at the end."""


class TokenPieces:
    """What each token of a vocabulary adds to the text. One object serves all requests."""

    def __init__(self, backend: tokenizers.Tokenizer) -> None:
        self._backend = backend
        self._bytes: dict[int, bytes] = {}

    @staticmethod
    def of(backend: tokenizers.Tokenizer) -> TokenPieces:
        """The pieces as `backend`'s decoder defines them: byte-level or with byte fallback.

        Raises:
            ModelError: the decoder is of another kind.
        """
        steps = _decoder_steps(backend)
        kinds = [step["type"] for step in steps]
        if kinds in (["ByteLevel"], ["ByteLevel", "Fuse"]):
            return ByteLevelPieces(backend)
        if kinds and _matches_fallback(steps, kinds):
            return ByteFallbackPieces(backend, steps)
        raise ModelError(
            f"The decoder of tokenizer.json is {' + '.join(kinds) or 'missing'}.",
            expected="ByteLevel (Llama 3), or Replace + ByteFallback + Fuse + Strip (Llama 2)",
        )

    def bytes_of(self, token_id: int) -> bytes:
        """The token's bytes; none for an id without a token."""
        found = self._bytes.get(token_id)
        if found is None:
            token = self._backend.id_to_token(token_id)
            found = self._bytes[token_id] = b"" if token is None else self._to_bytes(token)
        return found

    def joiner(self) -> Joiner:
        """A fresh joiner for one request."""
        raise NotImplementedError

    def _to_bytes(self, token: str) -> bytes:
        raise NotImplementedError


class ByteLevelPieces(TokenPieces):
    """Every token is a string of bytes (GPT-2, Llama 3, SmolLM)."""

    def joiner(self) -> Joiner:
        """A joiner that holds back at most three bytes."""
        return _Utf8Joiner(self)

    def _to_bytes(self, token: str) -> bytes:
        # An added token may hold characters outside the alphabet: then it is meant literally.
        if all(char in _BYTE_OF_CHAR for char in token):
            return bytes(_BYTE_OF_CHAR[char] for char in token)
        return token.encode()


class _Utf8Joiner:
    def __init__(self, pieces: ByteLevelPieces) -> None:
        self._pieces = pieces
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def push(self, token_id: int) -> str:
        return self._decoder.decode(self._pieces.bytes_of(token_id))

    def flush(self) -> str:
        return self._decoder.decode(b"", final=True)


class ByteFallbackPieces(TokenPieces):
    """Tokens are text; tokens such as <0xE2> are bytes of what the vocabulary lacks (Llama 2)."""

    def __init__(self, backend: tokenizers.Tokenizer, steps: Sequence[dict[str, Any]]) -> None:
        super().__init__(backend)
        self._has_bytes = any(step["type"] == "ByteFallback" for step in steps)
        self._replacements = [
            (step["pattern"]["String"], step["content"])
            for step in steps
            if step["type"] == "Replace"
        ]
        strips = [(step["content"], step["start"]) for step in steps if step["type"] == "Strip"]
        self.strip: tuple[str, int] = strips[0] if strips else ("", 0)

    def joiner(self) -> Joiner:
        """A joiner that holds back a run of byte tokens until it ends."""
        return _ByteRunJoiner(self)

    def is_byte(self, token_id: int) -> bool:
        """True for tokens that stand for one byte."""
        token = self._backend.id_to_token(token_id)
        return self._has_bytes and token is not None and bool(_BYTE_TOKEN.fullmatch(token))

    def _to_bytes(self, token: str) -> bytes:
        byte = _BYTE_TOKEN.fullmatch(token)
        if self._has_bytes and byte:
            return bytes([int(byte[1], 16)])
        for old, new in self._replacements:
            token = token.replace(old, new)
        return token.encode()


class _ByteRunJoiner:
    """One wrong byte turns its whole run of byte tokens into U+FFFD, so a run must end first."""

    def __init__(self, pieces: ByteFallbackPieces) -> None:
        self._pieces = pieces
        self._run = bytearray()
        self._strip_char, self._num_to_strip = pieces.strip

    def push(self, token_id: int) -> str:
        piece = self._pieces.bytes_of(token_id)
        if self._pieces.is_byte(token_id):
            self._run += piece
            return ""
        return self._end_run() + self._strip_start(piece.decode()) if piece else ""

    def flush(self) -> str:
        return self._end_run()

    def _end_run(self) -> str:
        run, self._run = bytes(self._run), bytearray()
        try:
            return self._strip_start(run.decode())
        except UnicodeDecodeError:
            return self._strip_start(REPLACEMENT * len(run))

    def _strip_start(self, text: str) -> str:
        while text and self._num_to_strip:
            if text[0] != self._strip_char:
                self._num_to_strip = 0
                break
            text = text[1:]
            self._num_to_strip -= 1
        return text


def _decoder_steps(backend: tokenizers.Tokenizer) -> list[dict[str, Any]]:
    if backend.decoder is None:
        return []
    state = json.loads(backend.decoder.__getstate__())
    return state["decoders"] if state["type"] == "Sequence" else [state]


def _matches_fallback(steps: Sequence[dict[str, Any]], kinds: Sequence[str]) -> bool:
    """True for Replace* ByteFallback? Fuse? Strip?, with plain patterns and no cut at the end."""
    order = re.fullmatch(
        "(Replace )*(ByteFallback )?(Fuse (Strip )?)?", "".join(f"{kind} " for kind in kinds)
    )
    plain = all("String" in step["pattern"] for step in steps if step["type"] == "Replace")
    return bool(order) and plain and all(not step.get("stop") for step in steps)


class IncrementalDetokenizer:
    """Text of one request's tokens, as they come. What it emits is final and has whole characters.

    The pieces of `push` and the last one of `flush`, joined, equal decoding all ids at once,
    however the ids are split. Costs O(1) a token.

    Args:
        pieces: of the vocabulary.
        skipped_ids: ids that add no text.
    """

    def __init__(self, pieces: TokenPieces, skipped_ids: frozenset[int] = frozenset()) -> None:
        self._joiner = pieces.joiner()
        self._skipped_ids = skipped_ids

    def push(self, token_ids: Iterable[int]) -> str:
        """The new text that is certain after these tokens; may be empty."""
        return "".join(self._joiner.push(i) for i in token_ids if i not in self._skipped_ids)

    def flush(self) -> str:
        """The rest, after the last token: bytes that never became a character are U+FFFD."""
        return self._joiner.flush()


class StopStringChecker:
    """Finds stop strings in a stream of text, and holds back what could become one.

    The first stop string to be complete wins; of two that end at the same character, the longer.
    So the answer does not depend on how the text was cut into pieces.

    Args:
        stop: non-empty strings.

    Attributes:
        found: the stop string that ended the text, or None.
    """

    def __init__(self, stop: Sequence[str]) -> None:
        self._stop = tuple(sorted(set(stop), key=len, reverse=True))
        self._held = ""
        self.found: str | None = None

    def push(self, text: str, may_stop: bool = True) -> str:
        """Text that is certain to be shown: it ends before a stop string.

        Args:
            text: the new text.
            may_stop: False: a stop string that becomes complete in `text` does not count
                (`min_tokens` is not reached).
        """
        if self.found is not None:
            return ""
        buffer = self._held + text
        if may_stop and (end := self._first_end(buffer)) is not None:
            self._held = ""
            return buffer[: end - len(self.found or "")]
        num_shown = len(buffer) - self._num_held(buffer)
        self._held = buffer[num_shown:]
        return buffer[:num_shown]

    def flush(self) -> str:
        """What was held back, at the end."""
        held, self._held = self._held, ""
        return held

    def _first_end(self, buffer: str) -> int | None:
        """Where the winner ends in `buffer`; sets `found`."""
        first = None
        for stop in self._stop:  # longest first, so that a tie leaves the longer one
            start = buffer.find(stop, max(0, len(self._held) - len(stop) + 1))
            if start >= 0 and (first is None or start + len(stop) < first):
                first, self.found = start + len(stop), stop
        return first

    def _num_held(self, buffer: str) -> int:
        """Length of the longest end of `buffer` with which a stop string starts."""
        longest = min(len(buffer), len(self._stop[0]) - 1) if self._stop else 0
        for length in range(longest, 0, -1):
            if any(stop.startswith(buffer[-length:]) for stop in self._stop):
                return length
        return 0
