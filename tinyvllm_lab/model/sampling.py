"""Choosing a token from logits: filters, penalties, and one random number a token (chapter 04).

Every row of a batch belongs to another request and has its own settings, so each function below
takes logits `[num_rows, vocab_size]` and one value a row. The order is vLLM's:

1. what changes even a greedy choice: `min_tokens`, `logit_bias`, penalties (`edit_logits`);
2. temperature, then min-p, top-k and top-p, each on the distribution that the one before left
   (`filter_logits`);
3. the draw (`draw`), or the likeliest token where the temperature is 0.

Logprobs are the model's own, before all of this, as in vLLM (`logprobs.py`).
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import torch
from torch import Tensor

from tinyvllm_lab.errors import ModelError
from tinyvllm_lab.model.logprobs import TokenLogprobs, compute_logprobs

if TYPE_CHECKING:
    from tinyvllm_lab.engine.sampling_params import SamplingParams

# A smaller temperature would overflow float32 when we divide by it; vLLM draws the same line.
GREEDY_BELOW = 1e-5
# Probabilities are sums of rounded numbers: 0.5 + 0.3 must count as 0.8.
TOP_P_TOLERANCE = 1e-6
TOP_P_CANDIDATES = (256, 4096)


class Row(Protocol):
    """What the sampler needs of a request; `engine.Request` has it."""

    sampling_params: SamplingParams
    token_ids: list[int]
    num_prompt_tokens: int
    stop_ids: frozenset[int]
    state: Any


class SampleOutput(NamedTuple):
    """One token for each row, and the logprobs of the rows that asked for them."""

    token_ids: list[int]
    logprobs: list[TokenLogprobs | None]


class SamplerState:
    """What sampling remembers of one request: its random numbers and the tokens that it has seen.

    Args:
        seed: None draws a fresh one from the operating system.
    """

    def __init__(self, seed: int | None) -> None:
        # One generator a request: its draws do not depend on who else is in the batch. Python's
        # gives the same numbers on every device.
        self.random = random.Random(seed)
        self._num_counted = 0
        self._in_prompt: Tensor | None = None
        self._output_counts: Tensor | None = None

    def count_tokens(self, row: Row, like: Tensor) -> tuple[Tensor, Tensor]:
        """Which tokens the prompt holds, and how often the output holds each.

        Only tokens that are new since the last call are read.

        Args:
            like: logits `[vocab_size]`, for size and device.

        Returns:
            `[vocab_size]` bool and `[vocab_size]` float32.
        """
        if self._in_prompt is None or self._output_counts is None:
            prompt = torch.tensor(row.token_ids[: row.num_prompt_tokens], device=like.device)
            self._in_prompt = torch.zeros_like(like, dtype=torch.bool)
            self._in_prompt[prompt.long()] = True
            self._output_counts = torch.zeros_like(like)
            self._num_counted = row.num_prompt_tokens
        new = torch.tensor(row.token_ids[self._num_counted :], device=like.device).long()
        self._output_counts.index_add_(0, new, torch.ones_like(new, dtype=like.dtype))
        self._num_counted = len(row.token_ids)
        return self._in_prompt, self._output_counts


class Sampler:
    """Turns logits into one token a row."""

    @torch.inference_mode()
    def sample(self, logits: Tensor, rows: Sequence[Row]) -> SampleOutput:
        """Choose a token for each row by its request's `sampling_params`.

        Args:
            logits: `[num_rows, vocab_size]`, any floating dtype; they are not changed.
            rows: the requests, in the order of the rows. Their `state` is set here.

        Raises:
            ModelError: a row has no finite maximum (NaN or infinity): the model computed nonsense.
        """
        best = logits.max(dim=-1)  # values and indices: [num_rows]
        _check_finite(best.values)
        greedy_ids = best.indices.tolist()
        if all(_takes_argmax(row.sampling_params) for row in rows):
            return SampleOutput(greedy_ids, _logprobs(logits, greedy_ids, rows))
        edited = edit_logits(logits.float(), rows)
        token_ids = edited.argmax(dim=-1).tolist()
        drawing = [i for i, row in enumerate(rows) if not _is_greedy(row.sampling_params)]
        if drawing:
            drawn = draw_rows(edited[drawing], [rows[i] for i in drawing])
            for i, token_id in zip(drawing, drawn, strict=True):
                token_ids[i] = token_id
        return SampleOutput(token_ids, _logprobs(logits, token_ids, rows))


# --- 1. what changes even a greedy choice ---------------------------------------------------------


def edit_logits(logits: Tensor, rows: Sequence[Row]) -> Tensor:
    """`min_tokens`, `logit_bias` and penalties of every row; `logits` itself if nobody has any."""
    if not any(_has_edits(row.sampling_params) for row in rows):
        return logits
    logits = logits.clone()  # [num_rows, vocab_size]
    forbid_stops(logits, rows)
    add_logit_bias(logits, [row.sampling_params.logit_bias for row in rows])
    penalised = [i for i, row in enumerate(rows) if _has_penalties(row.sampling_params)]
    if penalised:
        logits[penalised] = penalise(logits[penalised], [rows[i] for i in penalised])
    return logits


def forbid_stops(logits: Tensor, rows: Sequence[Row]) -> None:
    """In place: -inf for what would end a request that has not `min_tokens` output tokens yet."""
    forbidden = [
        (i, stop_id)
        for i, row in enumerate(rows)
        if len(row.token_ids) - row.num_prompt_tokens < row.sampling_params.min_tokens
        for stop_id in row.stop_ids
        if stop_id < logits.shape[-1]
    ]
    if forbidden:
        row_index, token_index = torch.tensor(forbidden, device=logits.device).T
        logits[row_index, token_index] = -torch.inf


def add_logit_bias(logits: Tensor, biases: Sequence[Mapping[int, float]]) -> None:
    """In place: add each row's biases to the logits of the tokens that they name."""
    for i, bias in enumerate(biases):
        if bias:
            token_ids = torch.tensor(list(bias), device=logits.device)
            logits[i, token_ids] += torch.tensor(list(bias.values()), device=logits.device)


def penalise(logits: Tensor, rows: Sequence[Row]) -> Tensor:
    """The three penalties, each by what its row has seen so far."""
    tokens = [_state(row).count_tokens(row, logits[i]) for i, row in enumerate(rows)]
    in_prompt = torch.stack([prompt for prompt, _ in tokens])  # [num_rows, vocab_size]
    counts = torch.stack([output for _, output in tokens])  # [num_rows, vocab_size]
    params = [row.sampling_params for row in rows]
    repetition = _column([p.repetition_penalty for p in params], logits)
    frequency = _column([p.frequency_penalty for p in params], logits)
    presence = _column([p.presence_penalty for p in params], logits)
    logits = apply_repetition_penalty(logits, in_prompt | (counts > 0), repetition)
    return logits - frequency * counts - presence * (counts > 0)


def apply_repetition_penalty(logits: Tensor, seen: Tensor, penalty: Tensor) -> Tensor:
    """Make seen tokens less likely: divide positive logits, multiply negative ones (CTRL paper).

    Args:
        seen: `[num_rows, vocab_size]` bool, tokens of prompt and output.
        penalty: `[num_rows, 1]`.
    """
    return torch.where(seen, torch.where(logits > 0, logits / penalty, logits * penalty), logits)


# --- 2. temperature and filters -------------------------------------------------------------------


def filter_logits(logits: Tensor, params: Sequence[SamplingParams]) -> Tensor:
    """Temperature, min-p, top-k and top-p: what is left to draw from; the rest is -inf."""
    logits = apply_temperature(logits, _column([p.temperature for p in params], logits))
    if any(p.min_p > 0 for p in params):
        logits = keep_min_p(logits, _column([p.min_p for p in params], logits))
    if any(p.top_k for p in params):
        logits = keep_top_k(logits, [p.top_k for p in params])
    if any(p.top_p < 1 for p in params):
        logits = keep_top_p(logits, _column([p.top_p for p in params], logits))
    return logits


def apply_temperature(logits: Tensor, temperature: Tensor) -> Tensor:
    """Divide by the temperature: below 1 the likely tokens gain, above 1 the unlikely ones.

    Args:
        temperature: `[num_rows, 1]`, more than 0.
    """
    # -inf divided by an infinite temperature would be NaN.
    return logits / temperature.clamp(max=torch.finfo(logits.dtype).max)


def keep_min_p(logits: Tensor, min_p: Tensor) -> Tensor:
    """Drop tokens less likely than `min_p` times the likeliest one.

    Args:
        min_p: `[num_rows, 1]`; 0 drops nothing.
    """
    probs = logits.softmax(dim=-1)  # [num_rows, vocab_size]
    return logits.masked_fill(probs < min_p * probs.amax(dim=-1, keepdim=True), -torch.inf)


def keep_top_k(logits: Tensor, top_k: Sequence[int]) -> Tensor:
    """Keep each row's k largest logits, and what equals the k-th; 0 keeps all."""
    vocab_size = logits.shape[-1]
    k = torch.tensor([min(k, vocab_size) for k in top_k], device=logits.device)[:, None]
    best = logits.topk(int(k.max())).values  # [num_rows, max k], descending
    kth_best = best.gather(-1, (k - 1).clamp(min=0))  # [num_rows, 1]
    return logits.masked_fill((logits < kth_best) & (k > 0), -torch.inf)


def keep_top_p(logits: Tensor, top_p: Tensor) -> Tensor:
    """Keep the fewest likeliest tokens whose probabilities together reach p, at least one.

    Args:
        top_p: `[num_rows, 1]`; 1 keeps all.
    """
    probs, keeps_all = logits.softmax(dim=-1), top_p >= 1  # [num_rows, vocab_size], [num_rows, 1]
    # Sorting 128,000 numbers takes 30 times as long as finding the best 256 of them, and these
    # reach p unless the distribution is very flat.
    for num_best in (*TOP_P_CANDIDATES, logits.shape[-1]):
        best, token_ids = probs.topk(min(num_best, logits.shape[-1]))  # [num_rows, num_best]
        mass = best.cumsum(dim=-1)
        if bool(((mass[:, -1:] >= top_p) | keeps_all).all()):
            break
    # A token stays if the likelier ones do not reach p without it.
    stays = mass - best < top_p - TOP_P_TOLERANCE  # [num_rows, num_best]
    stays[:, 0] = True
    kept = torch.zeros_like(probs, dtype=torch.bool).scatter(-1, token_ids, stays)
    return logits.masked_fill(~(kept | keeps_all), -torch.inf)


# --- 3. the draw ----------------------------------------------------------------------------------


def draw_rows(logits: Tensor, rows: Sequence[Row]) -> list[int]:
    """Filter the rows, and draw a token of each with the next random number of its request."""
    filtered = filter_logits(logits, [row.sampling_params for row in rows])
    return draw(filtered, [_state(row).random.random() for row in rows])


def draw(logits: Tensor, uniforms: Sequence[float]) -> list[int]:
    """Lay the probabilities end to end; the token in whose stretch the random number falls.

    Args:
        uniforms: one number a row, in [0, 1).
    """
    # In float64 a number below 1 stays below the sum, and never falls on a token of probability 0.
    ends = logits.softmax(dim=-1).cumsum(dim=-1, dtype=torch.float64)  # [num_rows, vocab_size]
    points = torch.tensor(uniforms, dtype=torch.float64, device=logits.device)[:, None]
    return torch.searchsorted(ends, points * ends[:, -1:], right=True)[:, 0].tolist()


def _logprobs(
    logits: Tensor, token_ids: list[int], rows: Sequence[Row]
) -> list[TokenLogprobs | None]:
    return compute_logprobs(logits, token_ids, [row.sampling_params.logprobs for row in rows])


# --- questions about settings ---------------------------------------------------------------------


def _is_greedy(params: SamplingParams) -> bool:
    return params.temperature < GREEDY_BELOW


def _has_penalties(params: SamplingParams) -> bool:
    penalties = (params.repetition_penalty, params.presence_penalty, params.frequency_penalty)
    return penalties != (1.0, 0.0, 0.0)


def _has_edits(params: SamplingParams) -> bool:
    return bool(params.min_tokens or params.logit_bias) or _has_penalties(params)


def _takes_argmax(params: SamplingParams) -> bool:
    return _is_greedy(params) and not _has_edits(params)


def _state(row: Row) -> SamplerState:
    if row.state is None:
        row.state = SamplerState(row.sampling_params.seed)
    return row.state


def _column(values: Sequence[float], like: Tensor) -> Tensor:
    """`[num_rows, 1]`, so that it applies to whole rows."""
    return torch.tensor(values, dtype=like.dtype, device=like.device)[:, None]


def _check_finite(row_maxima: Tensor) -> None:
    wrong = (~row_maxima.isfinite()).nonzero()
    if len(wrong):
        raise ModelError(
            f"Row {int(wrong[0])} of the logits has the maximum {row_maxima[wrong[0]].item()}.",
            expected="finite logits",
            fix="A kernel or the weights are broken: compare each layer with the torch twin.",
        )
