"""`Request`: one prompt on its way through the engine."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Any

from tinyvllm_lab.engine.events import Reason
from tinyvllm_lab.engine.sampling_params import SamplingParams


class Status(Enum):
    """Where a request is."""

    WAITING = "waiting"
    RUNNING = "running"
    PREEMPTED = "preempted"
    FINISHED = "finished"


class Request:
    """State of one request. Slots and plain attributes: the scheduler touches them per token.

    Attributes:
        request_id: the caller's name for it.
        index: the engine's running number; events use it.
        prompt_token_ids: the prompt, as token ids.
        token_ids: prompt and sampled tokens so far.
        num_prompt_tokens: length of the prompt.
        num_computed_tokens: tokens whose keys and values are (being) written.
        block_table: ids of the KV blocks that hold its tokens, in order (paged).
        kv_capacity: tokens that its blocks or its region can hold.
        seq_slot: its seat, stable while it runs; -1 without one.
        deadline: engine clock, in seconds, after which it times out; None: never.
        parent: index of the request it was forked from; -1: not forked yet; None: no parent.
        children: the other samples of `n > 1`; they fork from this one after its prompt.
        text_stream: its text so far (`TextStream`), if the engine has a tokenizer.
    """

    __slots__ = (
        "arrival_time",
        "block_hashes",
        "block_table",
        "cache_salt",
        "children",
        "cumulative_logprob",
        "deadline",
        "eos_token_ids",
        "finish_reason",
        "forked",
        "index",
        "kv_capacity",
        "logprobs",
        "max_len",
        "num_cached_blocks",
        "num_computed_tokens",
        "num_preemptions",
        "num_prompt_tokens",
        "num_recomputed",
        "parent",
        "priority",
        "prompt",
        "region",
        "request_id",
        "sampling_params",
        "seq_slot",
        "state",
        "status",
        "stop_ids",
        "swapped_blocks",
        "text_stream",
        "token_ids",
    )  # fmt: skip

    def __init__(
        self,
        request_id: str,
        prompt_token_ids: Sequence[int],
        sampling_params: SamplingParams | None = None,
        *,
        index: int = 0,
        arrival_time: float = 0.0,
        priority: int = 0,
        deadline: float | None = None,
        eos_token_ids: Sequence[int] = (),
        cache_salt: str | None = None,
        prompt: str | None = None,
    ) -> None:
        self.request_id = request_id
        self.index = index
        self.prompt = prompt
        self.sampling_params = sampling_params or SamplingParams()
        self.arrival_time = arrival_time
        self.priority = priority
        self.deadline = deadline
        self.eos_token_ids = tuple(eos_token_ids)
        self.cache_salt = cache_salt
        self.parent: int | None = None
        self.children: list[Request] = []

        self.token_ids: list[int] = list(prompt_token_ids)
        self.num_prompt_tokens = len(self.token_ids)
        self.num_computed_tokens = 0
        # Tokens below this number were computed before a preemption: computing them again is waste.
        self.num_recomputed = 0
        self.status = Status.WAITING
        self.finish_reason: Reason | None = None
        self.seq_slot = -1
        self.num_preemptions = 0

        self.block_table: list[int] = []
        self.block_hashes: list[Any] = []
        self.num_cached_blocks = 0
        self.swapped_blocks: list[int] = []
        self.region: tuple[int, int] | None = None
        self.kv_capacity = 0
        self.forked = False

        params = self.sampling_params
        # Length at which "length" ends the request; the scheduler lowers it to max_model_len.
        self.max_len = self.num_prompt_tokens + params.max_tokens
        eos = () if params.ignore_eos else self.eos_token_ids
        self.stop_ids = frozenset((*eos, *params.stop_token_ids))

        # For the sampler (its generator and counts), and for the front doors.
        self.state: Any = None
        self.text_stream: Any = None
        self.logprobs: list[Any] = []
        self.cumulative_logprob = 0.0

    @property
    def num_tokens(self) -> int:
        """Prompt and output tokens so far."""
        return len(self.token_ids)

    @property
    def num_output_tokens(self) -> int:
        """Sampled tokens so far."""
        return len(self.token_ids) - self.num_prompt_tokens

    @property
    def prompt_token_ids(self) -> list[int]:
        """The prompt."""
        return self.token_ids[: self.num_prompt_tokens]

    @property
    def output_token_ids(self) -> list[int]:
        """What was sampled."""
        return self.token_ids[self.num_prompt_tokens :]

    @property
    def text(self) -> str:
        """Output text so far; empty without a tokenizer."""
        return self.text_stream.text if self.text_stream is not None else ""

    @property
    def is_unforked(self) -> bool:
        """True for a sample of `n > 1` that waits for its parent's prompt to be computed."""
        return self.parent == -1 and self.status is not Status.FINISHED

    @property
    def is_finished(self) -> bool:
        """True once it ended, for whatever reason."""
        return self.status is Status.FINISHED

    def __repr__(self) -> str:
        return (
            f"Request({self.request_id!r}, {self.status.value}, {self.num_computed_tokens} of "
            f"{self.num_tokens} tokens computed, {len(self.block_table)} blocks)"
        )
