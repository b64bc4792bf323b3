"""From what a caller sends to a `Request` (and its samples, for `n > 1`)."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tinyvllm_lab.engine.request import Request
from tinyvllm_lab.engine.sampling_params import SamplingParams
from tinyvllm_lab.engine.text import TextTokenizer
from tinyvllm_lab.errors import RequestRefused


def make_request(
    request_id: str,
    prompt: str | Sequence[int],
    sampling_params: SamplingParams | None,
    tokenizer: TextTokenizer | None,
    **details: Any,
) -> Request:
    """A request that has no number yet (`index` is -1 until it joins the queue).

    Raises:
        RequestRefused: the prompt is text and there is no tokenizer, or it is not token ids.
    """
    _check_details(request_id, details)
    text = prompt if isinstance(prompt, str) else None
    if text is not None and tokenizer is None:
        raise RequestRefused(
            f"Request {request_id!r} is text, and this engine has no tokenizer.",
            "token ids",
            "Pass tokenizer= to the engine, or encode the prompt yourself.",
        )
    ids = tokenizer.encode(text) if text is not None and tokenizer else _as_ids(request_id, prompt)
    return Request(request_id, ids, sampling_params, index=-1, prompt=text, **details)


def _check_details(request_id: str, details: dict[str, Any]) -> None:
    salt = details.get("cache_salt")
    if salt is not None and not isinstance(salt, str):
        raise RequestRefused(f"Request {request_id!r} has the cache_salt {salt!r}.", "a string")
    if type(details.get("priority", 0)) is not int:
        raise RequestRefused(
            f"Request {request_id!r} has the priority {details['priority']!r}.", "a whole number"
        )


def _as_ids(request_id: str, prompt: Any) -> list[int]:
    try:
        return list(map(operator.index, prompt))
    except TypeError as error:
        raise RequestRefused(
            f"Request {request_id!r} has a prompt that is not a list of token ids: {error}.",
            "text, or whole numbers",
        ) from error


def make_children(request: Request) -> list[Request]:
    """The samples 2 .. n of a prompt. Each draws from a seed of its own."""
    params = request.sampling_params
    children = [
        Request(
            f"{request.request_id}/{k}", request.token_ids,
            replace(params, n=1, seed=None if params.seed is None else params.seed + k),
            index=-1,
            arrival_time=request.arrival_time,
            priority=request.priority,
            deadline=request.deadline,
            eos_token_ids=request.eos_token_ids,
            cache_salt=request.cache_salt,
            prompt=request.prompt,
        )
        for k in range(1, params.n)
    ]  # fmt: skip
    for child in children:
        child.parent = -1
    return children
