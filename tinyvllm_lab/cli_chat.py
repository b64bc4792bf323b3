"""A conversation in the terminal."""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Generator
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape

from tinyvllm_lab.engine.sampling_params import SamplingParams
from tinyvllm_lab.errors import TinyVllmError

if TYPE_CHECKING:
    from tinyvllm_lab.llm import LLM

PROMPT = "you> "
HELP = "[dim]/reset forgets the conversation, /quit or Ctrl-D ends, Ctrl-C stops an answer[/]"


class Chat:
    """Reads a line, streams the answer, remembers both.

    Args:
        llm: the engine.
        sampling_params: for each answer.
        system: a system message, or "".
        console: where remarks go; answers go to stdout as they come.
    """

    def __init__(
        self, llm: LLM, sampling_params: SamplingParams, system: str, console: Console
    ) -> None:
        self.llm, self.sampling_params, self.console = llm, sampling_params, console
        self.opening = [{"role": "system", "content": system}] if system else []
        self.messages = list(self.opening)

    def loop(self) -> None:
        """Until /quit, the end of the input, or Ctrl-C where no answer is running."""
        with contextlib.suppress(ImportError):
            importlib.import_module("readline")  # gives input() a history and line editing
        self.console.print(HELP)
        while (line := self._read()) is not None:
            if line == "/reset":
                self.messages = list(self.opening)
                self.console.print("[dim]forgotten[/]")
            elif line.startswith("/"):
                self.console.print(HELP)
            elif line:
                self._answer(line)

    def _read(self) -> str | None:
        try:
            line = input(PROMPT).strip()
        except (EOFError, KeyboardInterrupt):
            print()
            return None
        return None if line == "/quit" else line

    def _answer(self, line: str) -> None:
        """Stream an answer; one that was stopped or refused leaves no trace in the memory."""
        question = {"role": "user", "content": line}
        pieces: list[str] = []
        try:
            # Closing the stream aborts its request: a stopped answer must not go on unseen.
            with contextlib.closing(self._stream([*self.messages, question])) as stream:
                for piece in stream:
                    pieces.append(piece)
                    sys.stdout.write(piece)
                    sys.stdout.flush()
        except KeyboardInterrupt:
            self.console.print(" [dim](stopped)[/]")
        except TinyVllmError as error:
            self.console.print(f"[red]{escape(str(error))}[/]")
        else:
            print()
            self.messages += [question, {"role": "assistant", "content": "".join(pieces)}]

    def _stream(self, messages: list[dict[str, str]]) -> Generator[str, None, None]:
        prompt = self.llm.tokenizer.encode_chat(messages)
        yield from self.llm.stream(prompt, self.sampling_params)
