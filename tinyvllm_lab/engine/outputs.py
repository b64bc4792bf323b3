"""What a caller gets for a prompt: text, tokens, logprobs and times (chapters 00 and 04)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from tinyvllm_lab.engine.request import Request
from tinyvllm_lab.engine.streams import finish_word

if TYPE_CHECKING:
    from tinyvllm_lab.model.logprobs import TokenLogprobs


@dataclass(frozen=True)
class CompletionOutput:
    """One sample.

    Attributes:
        index: its number among the samples of its prompt.
        text: without special tokens, and without the stop string that ended it.
        token_ids: what was sampled, with the token that ended it.
        finish_reason: "stop", "length", "abort", "timeout" or "error".
        logprobs: one entry a token; None if `SamplingParams.logprobs` is None.
        ttft_s: time to first token, from the arrival of the prompt, in seconds; None without one.
        itl_s: inter-token latencies, in seconds: one less than there are tokens.
        e2e_s: from the arrival to the last token, in seconds; None without one.
    """

    index: int
    text: str
    token_ids: list[int]
    finish_reason: str
    logprobs: list[TokenLogprobs] | None
    ttft_s: float | None
    itl_s: list[float]
    e2e_s: float | None

    @classmethod
    def of(cls, index: int, sample: Request, token_times: Sequence[float]) -> CompletionOutput:
        """The output of a sample that has ended.

        Args:
            token_times: engine clock of each of its tokens, in seconds.
        """
        arrival = sample.arrival_time
        return cls(
            index=index,
            text=sample.text,
            token_ids=sample.output_token_ids,
            finish_reason=finish_word(sample) or "",
            logprobs=None if sample.sampling_params.logprobs is None else list(sample.logprobs),
            ttft_s=token_times[0] - arrival if token_times else None,
            itl_s=[after - before for before, after in pairwise(token_times)],
            e2e_s=token_times[-1] - arrival if token_times else None,
        )


@dataclass(frozen=True)
class RequestOutput:
    """The answer to one prompt. Text, ids and timings of its first sample are at hand directly.

    Attributes:
        request_id: the engine's name for the request.
        prompt: the prompt, if it was text.
        prompt_token_ids: the prompt as the model saw it.
        outputs: `SamplingParams.n` samples.
    """

    request_id: str
    prompt: str | None
    prompt_token_ids: list[int]
    outputs: list[CompletionOutput]

    @property
    def text(self) -> str:
        """Text of the first sample."""
        return self.outputs[0].text

    @property
    def token_ids(self) -> list[int]:
        """Sampled tokens of the first sample."""
        return self.outputs[0].token_ids

    @property
    def finish_reason(self) -> str:
        """Why the first sample ended."""
        return self.outputs[0].finish_reason

    @property
    def logprobs(self) -> list[TokenLogprobs] | None:
        """Logprobs of the first sample."""
        return self.outputs[0].logprobs

    @property
    def ttft_s(self) -> float | None:
        """Time to first token of the first sample."""
        return self.outputs[0].ttft_s

    @property
    def itl_s(self) -> list[float]:
        """Inter-token latencies of the first sample."""
        return self.outputs[0].itl_s

    @property
    def e2e_s(self) -> float | None:
        """End-to-end time of the first sample."""
        return self.outputs[0].e2e_s
