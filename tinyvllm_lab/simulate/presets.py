"""Ready workloads: chat, RAG, an agent, code completion, and the three customers of an airport.

Lengths, rates and pauses are assumptions in the range of published traces; each is an argument.
Arrivals, lengths and token ids are drawn from separate streams of one seed: a change of the rate
leaves the lengths as they were, so that two runs can be compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from tinyvllm_lab.errors import ConfigError
from tinyvllm_lab.simulate.arrivals import Arrivals, Poisson, exponential
from tinyvllm_lab.simulate.lengths import Fixed, Lengths, LogNormal, Uniform, zipf_rank
from tinyvllm_lab.simulate.token_ids import synthetic_tokens
from tinyvllm_lab.simulate.workloads import Workload, WorkloadRequest


@dataclass(frozen=True, slots=True)
class Turn:
    """One request of a conversation.

    Attributes:
        prompt_token_ids: what is new in its prompt; the turns before stand in front of it.
        max_tokens: length of the answer.
        pause_s: seconds between the end of the turn before and this one; ignored in the first.
    """

    prompt_token_ids: tuple[int, ...]
    max_tokens: int
    pause_s: float = 0.0
    kind: str = "request"
    priority: int = 0
    abort_after_s: float | None = None
    abort_after_tokens: int | None = None
    prompt: str | None = None


class Draw:
    """The random streams of one seed: none of them disturbs another."""

    def __init__(self, seed: int) -> None:
        self.lengths = Random(f"{seed}/lengths")
        self.arrivals = Random(f"{seed}/arrivals")
        self._tokens = Random(f"{seed}/tokens")

    def tokens(self, count: int) -> tuple[int, ...]:
        """Fresh made-up token ids, shared with nobody."""
        return synthetic_tokens(self._tokens, count)


def make_workload(
    name: str,
    conversations: Sequence[Sequence[Turn]],
    arrivals: Arrivals,
    seed: int = 0,
    about: str = "",
) -> Workload:
    """Give conversations their names and times.

    The turns of a conversation keep its history. Turn t of conversation c is called `name-c.t`, or
    `name-c` if the conversation has one turn only.
    """
    starts = arrivals.starts(len(conversations), Draw(seed).arrivals)
    requests: list[WorkloadRequest] = []
    last: list[str] = []
    for number, (turns, start) in enumerate(zip(conversations, starts, strict=True)):
        after = None if start.after is None else last[start.after]
        pause = start.delay_s
        for t, turn in enumerate(turns):
            request_id = f"{name}-{number}" + (f".{t}" if len(turns) > 1 else "")
            requests.append(_placed(turn, request_id, pause if t == 0 else turn.pause_s, after, t))
            after = request_id
        last.append(requests[-1].request_id)
    return Workload(name, tuple(requests), seed, about)


def _placed(
    turn: Turn, request_id: str, arrival_s: float, after: str | None, t: int
) -> WorkloadRequest:
    return WorkloadRequest(
        request_id, arrival_s, turn.prompt_token_ids, turn.max_tokens, turn.kind, turn.priority,
        after, t > 0, turn.abort_after_s, turn.abort_after_tokens, turn.prompt,
    )  # fmt: skip


def independent(
    num_requests: int = 100,
    arrivals: Arrivals | None = None,
    prompt: Lengths | None = None,
    output: Lengths | None = None,
    seed: int = 0,
) -> Workload:
    """Requests that have nothing in common: the plain workload of load tests."""
    draw, prompt, output = Draw(seed), prompt or Uniform(64, 512), output or Uniform(32, 256)
    conversations = [
        [Turn(draw.tokens(prompt.sample(draw.lengths)), output.sample(draw.lengths))]
        for _ in range(num_requests)
    ]
    about = "Independent requests."
    return make_workload("independent", conversations, arrivals or Poisson(4.0), seed, about)


def chat(
    num_requests: int = 1000,
    arrivals: Arrivals | None = None,
    *,
    turns: Lengths | None = None,
    system_tokens: int = 200,
    question: Lengths | None = None,
    answer: Lengths | None = None,
    think_s: float = 10.0,
    seed: int = 0,
) -> Workload:
    """Conversations of several turns; each prompt holds everything said before.

    All share a system prompt, so prefix caching finds it, and finds each conversation's own past.
    The last conversation is cut so that there are exactly `num_requests` turns.
    """
    draw, turns = Draw(seed), turns or Uniform(2, 8)
    question, answer = question or LogNormal(40, 0.8, 4, 400), answer or LogNormal(160, 0.7, 8, 800)
    system, left = draw.tokens(system_tokens), num_requests
    conversations = []
    while left > 0:
        count = min(left, turns.sample(draw.lengths))
        conversations.append(
            [
                Turn(
                    (system if t == 0 else ()) + draw.tokens(question.sample(draw.lengths)),
                    answer.sample(draw.lengths),
                    exponential(draw.lengths, think_s),
                    kind="chat",
                )
                for t in range(count)
            ]
        )
        left -= count
    about = f"Chat with history; all share a system prompt of {system_tokens} tokens."
    return make_workload("chat", conversations, arrivals or Poisson(1.0), seed, about)


def rag(
    num_requests: int = 200,
    arrivals: Arrivals | None = None,
    *,
    instruction_tokens: int = 150,
    num_documents: int = 100,
    document: Lengths | None = None,
    documents_per_request: int = 4,
    popularity: float = 1.0,
    question: Lengths | None = None,
    answer: Lengths | None = None,
    seed: int = 0,
) -> Workload:
    """Retrieval-augmented answers: instructions, a few documents, a question; short answers.

    Documents are drawn by Zipf rank with exponent `popularity`, best known first in the prompt, so
    that popular beginnings are shared.
    """
    if documents_per_request > num_documents:
        raise ConfigError(
            f"A request cannot hold {documents_per_request} of {num_documents} documents.",
            expected="documents_per_request up to num_documents",
        )
    draw, document = Draw(seed), document or Uniform(300, 500)
    question, answer = (
        question or LogNormal(25, 0.5, 5, 120),
        answer or LogNormal(120, 0.6, 10, 500),
    )
    instructions = draw.tokens(instruction_tokens)
    library = [draw.tokens(document.sample(draw.lengths)) for _ in range(num_documents)]
    conversations = []
    for _ in range(num_requests):
        chosen = _distinct_ranks(draw.lengths, documents_per_request, num_documents, popularity)
        asked = draw.tokens(question.sample(draw.lengths))
        prompt = sum((library[rank] for rank in chosen), instructions) + asked
        conversations.append([Turn(prompt, answer.sample(draw.lengths), kind="rag")])
    about = f"{documents_per_request} of {num_documents} documents in each prompt."
    return make_workload("rag", conversations, arrivals or Poisson(2.0), seed, about)


def _distinct_ranks(rng: Random, count: int, total: int, theta: float) -> list[int]:
    chosen: set[int] = set()
    while len(chosen) < count:
        chosen.add(zipf_rank(rng, total, theta))
    return sorted(chosen)


def agent(
    num_tasks: int = 20,
    arrivals: Arrivals | None = None,
    *,
    tool_calls: int = 10,
    system_tokens: int = 1200,
    task: Lengths | None = None,
    call: Lengths | None = None,
    tool_result: Lengths | None = None,
    tool_s: float = 1.0,
    final_answer: Lengths | None = None,
    seed: int = 0,
) -> Workload:
    """Tasks that call tools, one request a call; the context grows with every result.

    A task is `tool_calls` requests that each write a call, and one that writes the answer. All
    share a system prompt with the descriptions of the tools.
    """
    draw, task, call = Draw(seed), task or Uniform(50, 200), call or Uniform(30, 90)
    tool_result, final_answer = (
        tool_result or LogNormal(250, 0.8, 20, 2000),
        final_answer or Fixed(300),
    )
    system = draw.tokens(system_tokens)
    conversations = []
    for _ in range(num_tasks):
        news = [system + draw.tokens(task.sample(draw.lengths))]
        news += [draw.tokens(tool_result.sample(draw.lengths)) for _ in range(tool_calls)]
        outputs = [call.sample(draw.lengths) for _ in range(tool_calls)]
        outputs.append(final_answer.sample(draw.lengths))
        conversations.append(
            [
                Turn(new, output, exponential(draw.lengths, tool_s), kind="agent")
                for new, output in zip(news, outputs, strict=True)
            ]
        )
    about = f"{tool_calls} tool calls a task; system prompt of {system_tokens} tokens."
    return make_workload("agent", conversations, arrivals or Poisson(0.2), seed, about)


def codegen(
    num_sessions: int = 20,
    arrivals: Arrivals | None = None,
    *,
    completions: int = 15,
    file: Lengths | None = None,
    typed: Lengths | None = None,
    completion: Lengths | None = None,
    pause_s: float = 3.0,
    seed: int = 0,
) -> Workload:
    """Code completion: an open file as prompt, a few lines as answer, again after every pause.

    The programmer takes each completion and types on, so the next prompt contains the last one.
    """
    draw, file = Draw(seed), file or LogNormal(1500, 0.5, 200, 4000)
    typed, completion = typed or Uniform(5, 40), completion or Uniform(10, 60)
    conversations = [
        [
            Turn(
                draw.tokens((file if t == 0 else typed).sample(draw.lengths)),
                completion.sample(draw.lengths),
                exponential(draw.lengths, pause_s),
                kind="codegen",
            )
            for t in range(completions)
        ]
        for _ in range(num_sessions)
    ]
    about = f"Editing sessions of {completions} completions each."
    return make_workload("codegen", conversations, arrivals or Poisson(0.5), seed, about)


def airport(
    num_requests: int = 60,
    arrivals: Arrivals | None = None,
    *,
    shares: tuple[float, float, float] = (0.2, 0.6, 0.2),
    long_prompt: Lengths | None = None,
    short_answer: Lengths | None = None,
    abort_after_tokens: int = 40,
    seed: int = 0,
) -> Workload:
    """The three customers: one with a huge prompt, one with a short answer, one who hangs up.

    Args:
        shares: of "long_prompt", "short_answer" and "hangs_up"; they need not add up to 1.
        long_prompt: prompt of the first; the others bring 16 to 64 tokens.
        short_answer: answer of the second; the first gets 64 tokens, the third asks for 400.
        abort_after_tokens: when the third hangs up.
    """
    draw = Draw(seed)
    long_prompt, short_answer = long_prompt or Uniform(1500, 3000), short_answer or Uniform(8, 32)
    small = Uniform(16, 64)
    conversations = []
    for kind in draw.lengths.choices(
        ("long_prompt", "short_answer", "hangs_up"), shares, k=num_requests
    ):
        prompt = draw.tokens((long_prompt if kind == "long_prompt" else small).sample(draw.lengths))
        answer = {"long_prompt": 64, "hangs_up": 400}.get(kind) or short_answer.sample(draw.lengths)
        hang_up = abort_after_tokens if kind == "hangs_up" else None
        conversations.append([Turn(prompt, answer, kind=kind, abort_after_tokens=hang_up)])
    about = "A long prompt, a short answer, and somebody who hangs up midway."
    return make_workload("airport", conversations, arrivals or Poisson(3.0), seed, about)


PRESETS = {
    "chat": chat,
    "rag": rag,
    "agent": agent,
    "codegen": codegen,
    "airport": airport,
    "independent": independent,
}
"""The workloads by name, for sliders and the command line."""
