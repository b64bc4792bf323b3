"""Who is preempted when KV memory runs out (chapters 12 and 13)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tinyvllm_lab.engine.request import Request

VictimRule = Callable[[Sequence[Request]], Request]
"""Picks one of the running requests, given in the order of admission."""


def last(candidates: Sequence[Request]) -> Request:
    """The one admitted last: the oldest requests are safe (vLLM, fcfs)."""
    return candidates[-1]


def lowest_priority(candidates: Sequence[Request]) -> Request:
    """The least urgent one, of equals the latest arrival (vLLM, priority)."""
    return max(candidates, key=lambda r: (r.priority, r.arrival_time, r.index))


def fewest_computed(candidates: Sequence[Request]) -> Request:
    """The one that loses the least work; of equals, the one admitted last."""
    return min(reversed(candidates), key=lambda r: r.num_computed_tokens)


def most_blocks(candidates: Sequence[Request]) -> Request:
    """The one whose memory helps most; of equals, the one admitted last."""
    return max(reversed(candidates), key=lambda r: r.kv_capacity)


RULES: dict[str, VictimRule] = {
    "last": last,
    "priority": lowest_priority,
    "fewest-computed": fewest_computed,
    "most-blocks": most_blocks,
}


def victim_rule(victim: str, policy: str) -> VictimRule:
    """The rule of a config: under the priority policy, "last" means the lowest priority."""
    return lowest_priority if victim == "last" and policy == "priority" else RULES[victim]
