"""The door: what can never run is refused by name, before it joins a queue (chapter 14)."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tinyvllm_lab.cache import KVAllocator
from tinyvllm_lab.engine.config import EngineConfig
from tinyvllm_lab.engine.request import Request
from tinyvllm_lab.errors import RequestRefused


def check_request(
    request: Request, config: EngineConfig, memory: KVAllocator, vocab_size: int | None
) -> None:
    """Refuse a request that no step could ever serve.

    Raises:
        RequestRefused: the prompt is empty, holds ids that are not of the vocabulary, is too long
            for the model, or needs more KV memory (or a larger step) than the engine has.
    """
    name = f"Request {request.request_id!r}"
    _check_ids(name, "prompt", request.token_ids, vocab_size)
    params = request.sampling_params
    _check_ids(name, "stop_token_ids", params.stop_token_ids, vocab_size)
    _check_ids(name, "logit_bias", params.logit_bias, vocab_size)
    prompt = request.num_prompt_tokens
    if prompt == 0:
        raise RequestRefused(f"{name} has an empty prompt.", "at least one token")
    if prompt >= config.max_model_len:
        raise RequestRefused(
            f"{name} has a prompt of {prompt} tokens, and the engine's max_model_len is "
            f"{config.max_model_len}.",
            f"at most {config.max_model_len - 1} prompt tokens, to leave room for one of output",
            "Shorten the prompt, or raise max_model_len.",
        )
    kv_tokens = longest_kv(request, config)
    _check_memory(name, kv_tokens, memory)
    if needs_whole_steps(config) and kv_tokens > config.max_num_batched_tokens:
        raise RequestRefused(
            f"{name} can grow to {kv_tokens} tokens, and a step may compute "
            f"{config.max_num_batched_tokens}.",
            "a sequence that fits into one step, because this engine cannot cut it into chunks",
            "Lower max_tokens, raise max_num_batched_tokens, or switch "
            + ("chunked prefill on." if config.use_kv_cache else "the KV cache on."),
        )


def longest_kv(request: Request, config: EngineConfig) -> int:
    """Tokens whose KV the request can need at most: the last sampled one never gets any."""
    return min(request.max_len, config.max_model_len) - 1


def needs_whole_steps(config: EngineConfig) -> bool:
    """True if a sequence must fit into one step: nothing cuts it into chunks."""
    return not (config.enable_chunked_prefill and config.use_kv_cache)


def _check_memory(name: str, kv_tokens: int, memory: KVAllocator) -> None:
    needed = memory.required(kv_tokens)
    if needed > memory.num_total:
        raise RequestRefused(
            f"{name} can grow to {kv_tokens} KV tokens, which needs {needed} blocks or slots; "
            f"the pool has {memory.num_total}.",
            f"a request that fits into the pool when it is alone ({memory.describe()})",
            "Lower max_tokens, shorten the prompt, or raise num_blocks.",
        )


def _check_ids(name: str, field: str, ids: Collection[int], vocab_size: int | None) -> None:
    limit = vocab_size or 1 << 62
    if not ids or (set(map(type, ids)) == {int} and min(ids) >= 0 and max(ids) < limit):
        return
    bad = next(i for i in ids if type(i) is not int or not 0 <= i < limit)
    raise RequestRefused(
        f"{name} has {bad!r} in its {field}.",
        f"token ids from 0 to {limit - 1}" if vocab_size else "token ids, 0 or more",
    )


def too_long_for_a_step(requests: Sequence[Request], config: EngineConfig) -> list[Request]:
    """Unfinished requests that a config change would shut out for ever."""
    if not needs_whole_steps(config):
        return []
    return [r for r in requests if longest_kv(r, config) > config.max_num_batched_tokens]
