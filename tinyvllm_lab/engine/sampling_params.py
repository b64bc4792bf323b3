"""`SamplingParams`: how one request turns logits into tokens, and when it stops (chapter 04)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tinyvllm_lab.errors import ConfigError

MOST_TOKENS = (1 << 31) - 1
"""More output than any request can want."""


@dataclass(frozen=True)
class SamplingParams:
    """Sampling and stopping rules of one request. Names and meanings are vLLM's.

    Args:
        n: samples drawn from one prompt; they share the prompt's blocks (chapter 12).
        max_tokens: most output tokens.
        min_tokens: no end-of-sequence and no stop before this many output tokens.
        temperature: 0 is greedy; 1 samples from the model's own distribution.
        top_k: keep the k most likely tokens; 0 keeps all.
        top_p: keep the smallest set of most likely tokens whose probabilities reach p.
        min_p: drop tokens less likely than min_p times the most likely one.
        repetition_penalty: > 1 makes tokens of prompt and output less likely (CTRL paper).
        presence_penalty: subtracted once from the logit of each token in the output.
        frequency_penalty: subtracted per occurrence in the output.
        logit_bias: token id -> number added to its logit.
        seed: makes a request's random draws repeatable; None draws a fresh seed.
        logprobs: None: none; 0: of the chosen token; n: of the n most likely ones too.
        stop: strings that end the output; they are cut off.
        stop_token_ids: ids that end the output; they count as output, and their text is hidden.
        ignore_eos: go on after end-of-sequence tokens (but not after stop_token_ids).

    Raises:
        ConfigError: a value lies outside its range.
    """

    n: int = 1
    max_tokens: int = 128
    min_tokens: int = 0
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    seed: int | None = None
    logprobs: int | None = None
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.stop, str):
            object.__setattr__(self, "stop", (self.stop,))
        for name, (types, expected) in _TYPES.items():
            self._require(name, _is_a(getattr(self, name), types), expected)
        object.__setattr__(self, "stop", tuple(self.stop))
        object.__setattr__(self, "stop_token_ids", tuple(self.stop_token_ids))
        for name, ok, expected in self._rules():
            self._require(name, ok, expected)

    def _require(self, name: str, ok: bool, expected: str) -> None:
        if not ok:
            raise ConfigError(f"SamplingParams.{name} is {getattr(self, name)!r}.", expected)

    def _rules(self) -> list[tuple[str, bool, str]]:
        return [
            ("n", 1 <= self.n <= 64, "1 to 64"),
            ("max_tokens", 1 <= self.max_tokens <= MOST_TOKENS, f"1 to {MOST_TOKENS}"),
            ("min_tokens", 0 <= self.min_tokens <= self.max_tokens, "0 to max_tokens"),
            ("temperature", 0.0 <= self.temperature < float("inf"), "0 or more, and finite"),
            ("top_k", self.top_k >= 0, "0 (off) or more"),
            ("top_p", 0.0 <= self.top_p <= 1.0, "0 to 1"),
            ("min_p", 0.0 <= self.min_p <= 1.0, "0 to 1"),
            ("repetition_penalty", 0.01 <= self.repetition_penalty <= 100.0, "0.01 to 100"),
            ("presence_penalty", -2.0 <= self.presence_penalty <= 2.0, "-2 to 2"),
            ("frequency_penalty", -2.0 <= self.frequency_penalty <= 2.0, "-2 to 2"),
            ("logit_bias", _are_biases(self.logit_bias), "token ids -> -100 to 100"),
            ("logprobs", self.logprobs is None or 0 <= self.logprobs <= 50, "None or 0 to 50"),
            ("stop", all(isinstance(s, str) and s for s in self.stop), "non-empty strings"),
            (
                "stop_token_ids",
                all(type(i) is int and i >= 0 for i in self.stop_token_ids),
                "token ids, 0 or more",
            ),
        ]


_WHOLE, _NUMBER, _MAYBE = (int,), (int, float), (int, type(None))
_TYPES: dict[str, tuple[tuple[type, ...], str]] = {
    "n": (_WHOLE, "a whole number"),
    "max_tokens": (_WHOLE, "a whole number"),
    "min_tokens": (_WHOLE, "a whole number"),
    "temperature": (_NUMBER, "a number"),
    "top_k": (_WHOLE, "a whole number"),
    "top_p": (_NUMBER, "a number"),
    "min_p": (_NUMBER, "a number"),
    "repetition_penalty": (_NUMBER, "a number"),
    "presence_penalty": (_NUMBER, "a number"),
    "frequency_penalty": (_NUMBER, "a number"),
    "logit_bias": ((Mapping,), "a dict: token id -> number"),
    "seed": (_MAYBE, "a whole number or None"),
    "logprobs": (_MAYBE, "a whole number or None"),
    "stop": ((tuple, list), "strings"),
    "stop_token_ids": ((tuple, list, set, frozenset), "token ids"),
    "ignore_eos": ((bool,), "True or False"),
}


def _is_a(value: object, types: tuple[type, ...]) -> bool:
    """True for a value of these types; True and False are no numbers here."""
    return isinstance(value, types) and (bool in types or not isinstance(value, bool))


def _are_biases(logit_bias: Mapping[int, float]) -> bool:
    return all(type(i) is int and i >= 0 and -100 <= b <= 100 for i, b in logit_bias.items())
