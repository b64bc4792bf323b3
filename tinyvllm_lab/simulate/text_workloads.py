"""Workloads in words, for real decoding: what the shipped model can do, with lengths on demand.

"Count from 3 to 40." makes an answer of a known length, a capital a very short one, a story a long
one of a length that nobody knows before. Token ids come from the model's own tokenizer, so the same
workload also runs in simulated time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any, NamedTuple, Protocol

from tinyvllm_lab.errors import ConfigError
from tinyvllm_lab.simulate.arrivals import Arrivals, Poisson, exponential
from tinyvllm_lab.simulate.presets import Draw, Turn, make_workload
from tinyvllm_lab.simulate.workloads import Workload

Message = dict[str, str]


class ChatEncoder(Protocol):
    """What is needed of a tokenizer."""

    def encode_chat(
        self, messages: Sequence[Message], add_generation_prompt: bool = True, **variables: Any
    ) -> list[int]:
        """Token ids of a conversation; with `add_generation_prompt` the answer may follow."""


class Task(NamedTuple):
    """Something to ask.

    Attributes:
        messages: the conversation up to and with the question.
        max_tokens: room for the answer.
        abort_after_tokens: when the customer hangs up.
    """

    messages: list[Message]
    max_tokens: int
    abort_after_tokens: int | None = None


CAPITALS = {
    "France": "Paris", "Germany": "Berlin", "Italy": "Rome", "Spain": "Madrid",
    "Portugal": "Lisbon", "Poland": "Warsaw", "Austria": "Vienna", "Greece": "Athens",
    "Norway": "Oslo", "Sweden": "Stockholm", "Finland": "Helsinki", "Ireland": "Dublin",
    "Japan": "Tokyo", "China": "Beijing", "Egypt": "Cairo", "Kenya": "Nairobi",
    "Canada": "Ottawa", "Peru": "Lima",
}  # fmt: skip
GLOSSARY = (
    "a token", "a tokenizer", "a language model", "prefill", "decode", "a KV cache", "attention",
    "a query", "PagedAttention",
)  # fmt: skip
HEROES = (
    "a brave fox named Ruby", "a shy penguin named Otto", "a clever owl named Hazel",
    "a curious cat named Luna", "a gentle bear named Bruno", "a small mouse named Pip",
)  # fmt: skip
THINGS = ("kite", "lantern", "drum", "boat", "whistle", "book")


def _ask(question: str) -> list[Message]:
    return [{"role": "user", "content": question}]


def _count(rng: Random) -> Task:
    first, numbers = rng.randint(1, 20), rng.randint(5, 40)
    # A number and its comma are up to four tokens.
    return Task(_ask(f"Count from {first} to {first + numbers}."), 4 * numbers + 8)


def _story(rng: Random) -> Task:
    hero, thing = rng.choice(HEROES), rng.choice(THINGS)
    return Task(_ask(f"Tell me a story about {hero} and a lost {thing}."), 320)


def _glossary(rng: Random) -> Task:
    return Task(_ask(f"What is {rng.choice(GLOSSARY)}?"), 80)


def _short_answer(rng: Random) -> Task:
    return Task(_ask(f"What is the capital of {rng.choice(list(CAPITALS))}?"), 24)


def _long_prompt(rng: Random) -> Task:
    """A long conversation that ends with one more question."""
    *told, asked = rng.sample(list(CAPITALS), 15)
    messages = []
    for country in told:
        messages += _ask(f"What is the capital of {country}?")
        answer = f"The capital of {country} is {CAPITALS[country]}."
        messages.append({"role": "assistant", "content": answer})
    return Task(messages + _ask(f"What is the capital of {asked}?"), 24)


def _hangs_up(rng: Random) -> Task:
    return _story(rng)._replace(abort_after_tokens=rng.randint(8, 40))


TASKS: dict[str, Callable[[Random], Task]] = {
    "count": _count,
    "story": _story,
    "glossary": _glossary,
    "short_answer": _short_answer,
    "long_prompt": _long_prompt,
    "hangs_up": _hangs_up,
}
"""What can be asked. The last three are the customers of the airport."""


def text_workload(
    tokenizer: ChatEncoder,
    num_conversations: int = 24,
    arrivals: Arrivals | None = None,
    *,
    kinds: Sequence[str] = ("count", "story", "glossary", "short_answer"),
    turns: int = 1,
    think_s: float = 2.0,
    seed: int = 0,
) -> Workload:
    """Conversations in words, each turn of a kind drawn at random.

    Args:
        tokenizer: the model's; anything with `encode_chat`.
        kinds: names of `TASKS`; one that stands twice is drawn twice as often.
        turns: questions of one conversation; later ones keep the history.
        think_s: mean pause before a later question.

    Raises:
        ConfigError: a kind is unknown, or `turns` is less than 1.
    """
    unknown = [kind for kind in kinds if kind not in TASKS]
    if unknown or not kinds or turns < 1:
        raise ConfigError(
            f"A workload cannot have kinds={list(kinds)} and turns={turns}.",
            expected="one or more of " + ", ".join(TASKS) + "; at least one turn",
        )
    draw = Draw(seed)
    conversations = []
    for _ in range(num_conversations):
        conversation = []
        for t in range(turns):
            kind = draw.lengths.choice(kinds)
            pause = exponential(draw.lengths, think_s)
            conversation.append(_turn(tokenizer, kind, TASKS[kind](draw.lengths), pause, t > 0))
        conversations.append(conversation)
    about = "Questions in words: " + ", ".join(dict.fromkeys(kinds)) + "."
    return make_workload("text", conversations, arrivals or Poisson(2.0), seed, about)


def _turn(tokenizer: ChatEncoder, kind: str, task: Task, pause_s: float, follows: bool) -> Turn:
    encode = _encode_follow_up if follows else _encode_first
    return Turn(
        encode(tokenizer, task.messages),
        task.max_tokens,
        pause_s,
        kind=kind,
        abort_after_tokens=task.abort_after_tokens,
        prompt=task.messages[-1]["content"],
    )


def _encode_first(tokenizer: ChatEncoder, messages: Sequence[Message]) -> tuple[int, ...]:
    return tuple(tokenizer.encode_chat(messages))


def _encode_follow_up(tokenizer: ChatEncoder, messages: Sequence[Message]) -> tuple[int, ...]:
    """Tokens that a template puts between an answer and the next one.

    The answer ends with its end-of-turn token, as generation leaves it. What comes before is the
    same in both renderings and falls away.
    """
    before = [*_ask("Hello."), {"role": "assistant", "content": "Hello."}]
    common = tokenizer.encode_chat(before, add_generation_prompt=False)
    return tuple(tokenizer.encode_chat([*before, *messages])[len(common) :])
