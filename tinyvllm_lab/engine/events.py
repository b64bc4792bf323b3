"""The event vocabulary: one table for the log, the wire, the stored run and the tests.

An event is a kind and up to three integers, `a`, `b` and `c`. It belongs to the step whose `STEP`
event was the last before it. `request` is the engine's running number of a request (from 0), not
its external id; strings and floats live in the log's side tables. A number is never reused, and a
reader skips kinds that it does not know.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


class Kind(IntEnum):
    """What happened."""

    STEP = 1
    STEP_END = 2
    SUBMIT = 3
    ADMIT = 4
    RESUME = 5
    SCHEDULED = 6
    TOKEN = 7
    PREEMPT = 8
    FINISH = 9
    BLOCK_ALLOC = 10
    BLOCK_CACHE = 11
    BLOCK_SHARE = 12
    BLOCK_UNSHARE = 13
    BLOCK_EVICT = 14
    BLOCK_FREE = 15
    BLOCK_COPY = 16
    SWAP_OUT = 17
    SWAP_IN = 18
    FORK = 19
    REGION_ALLOC = 20
    REGION_GROW = 21
    REGION_MOVE = 22
    REGION_FREE = 23
    KNOB = 24
    REJECT = 25


class Phase(IntEnum):
    """What a request's tokens in one step are, in the reader's words."""

    PREFILL = 0
    DECODE = 1
    RECOMPUTE = 2


class Reason(IntEnum):
    """Why a request ended."""

    STOP = 0
    LENGTH = 1
    ABORT = 2
    TIMEOUT = 3
    ERROR = 4


@dataclass(frozen=True, slots=True)
class EventSpec:
    """Meaning of one kind: the names of its integers, and a sentence."""

    fields: tuple[str, ...]
    about: str


VOCABULARY: dict[Kind, EventSpec] = {
    Kind.STEP: EventSpec(
        ("waiting", "used", "clock_us"),
        "A step begins: requests waiting, KV blocks (or token slots) in use, engine clock.",
    ),
    Kind.STEP_END: EventSpec(
        ("clock_us", "schedule_us", "execute_us"),
        "The step is over: engine clock, and wall time spent in schedule() and in execute().",
    ),
    Kind.SUBMIT: EventSpec(
        ("request", "prompt_tokens", "max_tokens"), "A request joins the waiting queue."
    ),
    Kind.ADMIT: EventSpec(
        ("request", "seq_slot", "hit_tokens"),
        "A waiting request takes a seat; so many of its tokens came from the prefix cache.",
    ),
    Kind.RESUME: EventSpec(
        ("request", "seq_slot", "hit_tokens"), "A preempted request takes a seat again."
    ),
    Kind.SCHEDULED: EventSpec(
        ("request", "tokens", "phase"), "The request computes so many tokens in this step."
    ),
    Kind.TOKEN: EventSpec(
        ("request", "token_id", "num_output"), "The request got its num_output-th output token."
    ),
    Kind.PREEMPT: EventSpec(
        ("request", "seq_slot", "swapped"),
        "The request loses its seat and blocks; swapped is 1 if its KV went to the host.",
    ),
    Kind.FINISH: EventSpec(
        ("request", "reason", "seq_slot"), "The request ended; seq_slot is -1 if it had no seat."
    ),
    Kind.BLOCK_ALLOC: EventSpec(
        ("block", "request", "index"), "A free block becomes entry `index` of a block table."
    ),
    Kind.BLOCK_CACHE: EventSpec(
        ("block", "request", "index"), "A full block gets its hash: equal prefixes can find it."
    ),
    Kind.BLOCK_SHARE: EventSpec(
        ("block", "request", "index"), "One more table holds the block (prefix hit or fork)."
    ),
    Kind.BLOCK_UNSHARE: EventSpec(
        ("block", "request", "ref_count"), "One table less holds the block; others still do."
    ),
    Kind.BLOCK_EVICT: EventSpec(
        ("block", "request", "index"), "A cached block loses its hash: it is taken for new data."
    ),
    Kind.BLOCK_FREE: EventSpec(
        ("block", "request", "cached"), "The last table let go of it; cached: it keeps its hash."
    ),
    Kind.BLOCK_COPY: EventSpec(
        ("source", "target", "request"), "Copy-on-write: the request now writes to `target`."
    ),
    Kind.SWAP_OUT: EventSpec(("request", "block", "host_block"), "A block is copied to the host."),
    Kind.SWAP_IN: EventSpec(
        ("request", "host_block", "block"), "A block comes back from the host."
    ),
    Kind.FORK: EventSpec(
        ("parent", "child", "seq_slot"), "A child starts from its parent's tokens and blocks."
    ),
    Kind.REGION_ALLOC: EventSpec(
        ("request", "start", "length"), "A contiguous region of token slots is given out."
    ),
    Kind.REGION_GROW: EventSpec(("request", "start", "length"), "The region grew to `length`."),
    Kind.REGION_MOVE: EventSpec(
        ("request", "old_start", "new_start"), "The region was copied to another place."
    ),
    Kind.REGION_FREE: EventSpec(("request", "start", "length"), "The region is a hole now."),
    Kind.KNOB: EventSpec(
        ("knob", "old", "new"), "A knob changed; the integers index the log's table of knob values."
    ),
    Kind.REJECT: EventSpec(
        ("request", "prompt_tokens", "max_tokens"), "A request was refused at the door."
    ),
}
