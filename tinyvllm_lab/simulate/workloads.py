"""`Workload`: who asks what, and when; seeded, saved as JSON lines, shown as a table and a chart.

A request either arrives at a time of its own, or follows another one: the next turn of a chat, the
next tool call of an agent, the next question of a user in a closed loop. Followers make a workload
react to the server, so the same list of requests serves open and closed loops.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tinyvllm_lab.errors import ConfigError

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from tinyvllm_lab.simulate.source import WorkloadSource


MOST_SECONDS, MOST_TOKENS = 1e9, 1 << 24
"""Limits of times and lengths: far above all sense, far below any overflow."""

_SECONDS = f"0 to {MOST_SECONDS:g} seconds"


@dataclass(frozen=True, slots=True)
class WorkloadRequest:
    """One request of a workload.

    Attributes:
        request_id: its name, unique in the workload.
        arrival_s: seconds after the start of the workload; with `after`, seconds after the end of
            that request (thinking, typing, or a tool at work).
        prompt_token_ids: the prompt; with `keep_history`, the new part of it.
        max_tokens: most output tokens; a simulated request uses them all.
        kind: what it is called in tables and charts ("chat", "long_prompt", ...).
        priority: smaller is more urgent (policy "priority").
        after: the request that must have ended before.
        keep_history: the prompt begins with the prompt and the answer of `after`. Such a request is
            dropped if `after` was aborted, refused or failed: the conversation is over.
        abort_after_s: the customer hangs up so long after the arrival.
        abort_after_tokens: the customer hangs up after so many output tokens.
        prompt: the prompt as text, for people.

    Raises:
        ConfigError: a field lies outside its range.
    """

    request_id: str
    arrival_s: float
    prompt_token_ids: tuple[int, ...]
    max_tokens: int
    kind: str = "request"
    priority: int = 0
    after: str | None = None
    keep_history: bool = False
    abort_after_s: float | None = None
    abort_after_tokens: int | None = None
    prompt: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "prompt_token_ids", tuple(self.prompt_token_ids))
        for name, ok, expected in self._rules():
            if not ok:
                value = getattr(self, name)
                raise ConfigError(
                    f"Request {self.request_id!r} has {name}={value!r:.80}.", f"{name}: {expected}"
                )

    def _rules(self) -> Iterator[tuple[str, bool, str]]:
        ids, seconds, tokens = self.prompt_token_ids, self.abort_after_s, self.abort_after_tokens
        yield "request_id", bool(self.request_id), "a name"
        yield "arrival_s", 0 <= self.arrival_s <= MOST_SECONDS, _SECONDS
        yield "prompt_token_ids", bool(ids) and min(ids) >= 0, "token ids, at least one, 0 or more"
        yield "max_tokens", 1 <= self.max_tokens <= MOST_TOKENS, f"1 to {MOST_TOKENS:,}"
        yield "abort_after_s", seconds is None or 0 <= seconds <= MOST_SECONDS, _SECONDS
        yield "abort_after_tokens", tokens is None or tokens >= 1, "at least 1"
        yield "keep_history", not self.keep_history or self.after is not None, "an `after`"


@dataclass(frozen=True)
class Workload:
    """A list of requests with a name.

    Args:
        name: for titles and files.
        requests: those that follow another one come later in the list than it.
        seed: what the workload was drawn with; None: it was recorded or written by hand.
        about: one sentence.

    Raises:
        ConfigError: an id occurs twice, or `after` names no earlier request.
    """

    name: str
    requests: tuple[WorkloadRequest, ...]
    seed: int | None = None
    about: str = ""
    _prompt_tokens: dict[str, int] = field(
        init=False, default_factory=dict, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        object.__setattr__(self, "requests", tuple(self.requests))
        ends: dict[str, int] = {}
        for request in self.requests:
            check_links(request, ends)
            history = ends[request.after] if request.keep_history and request.after else 0
            prompt = history + len(request.prompt_token_ids)
            self._prompt_tokens[request.request_id] = prompt
            ends[request.request_id] = prompt + request.max_tokens

    def __len__(self) -> int:
        return len(self.requests)

    def __iter__(self) -> Iterator[WorkloadRequest]:
        return iter(self.requests)

    def prompt_tokens(self, request: WorkloadRequest) -> int:
        """Length of its whole prompt, history included, if every answer uses its `max_tokens`."""
        return self._prompt_tokens[request.request_id]

    @property
    def longest_context(self) -> int:
        """Tokens of the longest prompt with its answer: `max_model_len` must not be smaller."""
        return max((self.prompt_tokens(r) + r.max_tokens for r in self.requests), default=0)

    @property
    def output_tokens(self) -> int:
        """Sum of all `max_tokens`."""
        return sum(request.max_tokens for request in self.requests)

    @property
    def kinds(self) -> list[str]:
        """The kinds that occur, in the order in which they come."""
        return list(dict.fromkeys(request.kind for request in self.requests))

    def nominal_arrivals(self) -> list[float]:
        """Arrival of each request if every answer came at once: for charts."""
        at: dict[str, float] = {}
        for request in self.requests:
            base = at[request.after] if request.after is not None else 0.0
            at[request.request_id] = base + request.arrival_s
        return list(at.values())

    def summary_rows(self) -> list[dict[str, Any]]:
        """One row per kind, and a last one for all: counts, and percentiles of the lengths."""
        kinds = self.kinds
        rows = [self._row(kind, [r for r in self.requests if r.kind == kind]) for kind in kinds]
        return rows if len(kinds) == 1 else [*rows, self._row("all", self.requests)]

    def _row(self, kind: str, requests: Sequence[WorkloadRequest]) -> dict[str, Any]:
        prompts = sorted(self.prompt_tokens(r) for r in requests)
        outputs = sorted(r.max_tokens for r in requests)
        aborts = [r for r in requests if r.abort_after_s is not None or r.abort_after_tokens]
        return {
            "kind": kind,
            "requests": len(requests),
            "follow-ups": sum(r.after is not None for r in requests),
            "hang up": len(aborts),
            "prompt p50": percentile(prompts, 0.5),
            "prompt p95": percentile(prompts, 0.95),
            "prompt max": percentile(prompts, 1.0),
            "output p50": percentile(outputs, 0.5),
            "output p95": percentile(outputs, 0.95),
            "output sum": sum(outputs),
        }

    def summary(self) -> str:
        """The rows as a text table, under a line that names the workload."""
        seed = "" if self.seed is None else f", seed {self.seed}"
        head = f"{self.name}: {len(self)} requests{seed}. {self.about}".rstrip()
        return "\n".join([head, *text_table(self.summary_rows())])

    def __str__(self) -> str:
        return self.summary()

    def figure(self) -> Figure:
        """Arrivals over time, and prompt against output lengths, coloured by kind (plotly)."""
        from tinyvllm_lab.simulate.workload_figure import workload_figure

        return workload_figure(self)

    def source(self) -> WorkloadSource:
        """A fresh source that plays this workload once."""
        from tinyvllm_lab.simulate.source import WorkloadSource

        return WorkloadSource(self)

    def save(self, path: str | Path) -> None:
        """Write JSON lines: a header, then a request a line."""
        from tinyvllm_lab.simulate.recorded import write_workload

        write_workload(self, path)

    @classmethod
    def load(cls, path: str | Path) -> Workload:
        """Read JSON lines.

        Raises:
            ConfigError: the file cannot be read, or a line is wrong; the message has its number.
        """
        from tinyvllm_lab.simulate.recorded import read_workload

        return read_workload(path)


def check_links(request: WorkloadRequest, earlier: dict[str, int]) -> None:
    """Refuse a name that occurred before, and an `after` that did not.

    Raises:
        ConfigError: it is one of these.
    """
    if request.request_id in earlier:
        raise ConfigError(f"Two requests are called {request.request_id!r}.", "unique names")
    if request.after is not None and request.after not in earlier:
        raise ConfigError(
            f"Request {request.request_id!r} comes after {request.after!r}.",
            expected="the name of a request further up in the workload",
        )


def percentile(ordered: Sequence[int], share: float) -> int:
    """Nearest-rank percentile of ascending numbers; 0 if there are none."""
    return ordered[max(0, -int(-share * len(ordered) // 1) - 1)] if ordered else 0


def text_table(rows: Iterable[dict[str, Any]]) -> list[str]:
    """Lines of a table with right-aligned numbers; the keys of the first row are the header."""
    cells = [[f"{v:,}" if isinstance(v, int) else str(v) for v in row.values()] for row in rows]
    header = [list(row) for row in rows][:1]
    lines = header + cells
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return [
        "  ".join([line[0].ljust(widths[0]), *(map(str.rjust, line[1:], widths[1:]))])
        for line in lines
    ]
