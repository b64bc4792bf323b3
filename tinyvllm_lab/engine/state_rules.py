"""What each event does to the engine's state.

A rule accepts any event, also one that makes no sense in this state: the log of an engine with a
bug must be shown as it is. A rule changes the state only through `assign`, `put`, `append` and
`remove` of `EngineState`, which can be taken back. Kinds without a rule (`STEP`, `BLOCK_COPY`, …)
only count.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tinyvllm_lab.engine.events import Kind
from tinyvllm_lab.engine.request import Status

if TYPE_CHECKING:
    from tinyvllm_lab.engine.state import EngineState


@dataclass(slots=True)
class RequestState:
    """One request, as far as the events tell.

    Attributes:
        prompt_tokens: length of the prompt.
        max_tokens: most output tokens.
        status: waiting, running, preempted or finished.
        seq_slot: its seat, or -1.
        num_output: output tokens so far.
        num_computed: tokens whose keys and values are in the cache; it keeps its last value.
        num_preemptions: how often it lost its seat.
        reason: why it ended: an `events.Reason`.
        table: its KV blocks, in order.
        host_blocks: its blocks in swap space, in order.
        region: start and length of its contiguous region, in token slots.
        place: its place in the queue while it waits; the smallest number is first.
    """

    prompt_tokens: int = 0
    max_tokens: int = 0
    status: Status = Status.WAITING
    seq_slot: int = -1
    num_output: int = 0
    num_computed: int = 0
    num_preemptions: int = 0
    reason: int | None = None
    table: list[int] = field(default_factory=list)
    host_blocks: list[int] = field(default_factory=list)
    region: tuple[int, int] | None = None
    place: int = 0

    @property
    def num_tokens(self) -> int:
        """Prompt and output tokens."""
        return self.prompt_tokens + self.num_output

    def copy(self) -> RequestState:
        """An independent copy."""
        return RequestState(
            self.prompt_tokens, self.max_tokens, self.status, self.seq_slot, self.num_output,
            self.num_computed, self.num_preemptions, self.reason, self.table[:],
            self.host_blocks[:], self.region, self.place,
        )  # fmt: skip


# Queue and seats


def _submit(state: EngineState, request: int, prompt_tokens: int, max_tokens: int) -> None:
    record = RequestState(prompt_tokens, max_tokens, place=state.position)
    state.put(state.requests, request, record)
    state.put(state.queue, request, record.place)


def _admit(state: EngineState, request: int, slot: int, hit_tokens: int) -> None:
    state.add(state.hit_tokens, Kind.ADMIT, hit_tokens)
    _seat(state, request, slot, hit_tokens)


def _resume(state: EngineState, request: int, slot: int, hit_tokens: int) -> None:
    state.add(state.hit_tokens, Kind.RESUME, hit_tokens)
    _seat(state, request, slot, hit_tokens)


def _seat(state: EngineState, request: int, slot: int, hit_tokens: int) -> None:
    record = state.record(request)
    state.assign(record, "status", Status.RUNNING)
    state.assign(record, "seq_slot", slot)
    # After a swap the computed tokens are still there; after a recompute only the hits are.
    state.assign(record, "num_computed", max(record.num_computed, hit_tokens))
    state.put(state.slots, slot, request)
    state.put(state.queue, request, None)


def _preempt(state: EngineState, request: int, slot: int, swapped: int) -> None:
    record = state.record(request)
    _leave(state, record, Status.PREEMPTED, slot)
    state.assign(record, "num_preemptions", record.num_preemptions + 1)
    if not swapped:
        state.assign(record, "num_computed", 0)
    state.assign(record, "place", -state.position)  # the last one preempted heads the queue
    state.put(state.queue, request, record.place)


def _finish(state: EngineState, request: int, reason: int, slot: int) -> None:
    record = state.record(request)
    _leave(state, record, Status.FINISHED, slot)
    state.assign(record, "reason", reason)
    state.add(state.finished, reason, 1)
    state.put(state.queue, request, None)
    if record.host_blocks:  # its swap space goes with it
        state.assign(record, "host_blocks", [])


def _leave(state: EngineState, record: RequestState, status: Status, slot: int) -> None:
    state.assign(record, "status", status)
    state.assign(record, "seq_slot", -1)
    state.put(state.slots, slot, None)


def _fork(state: EngineState, parent: int, child: int, slot: int) -> None:
    source = state.record(parent)
    if child not in state.requests:
        _submit(state, child, source.prompt_tokens, source.max_tokens)
    if slot >= 0:
        # The child's last token is always computed again: it samples from that.
        shared = min(source.num_computed, state.record(child).num_tokens - 1)
        _seat(state, child, slot, max(shared, 0))


# Tokens


def _scheduled(state: EngineState, request: int, tokens: int, phase: int) -> None:
    record = state.requests.get(request) or state.record(request)
    computed = record.num_computed + tokens
    if computed > record.prompt_tokens + record.num_output:
        computed = record.num_tokens  # without a KV cache every step computes all again
    state.assign(record, "num_computed", computed)
    state.add(state.tokens, phase, tokens)


def _token(state: EngineState, request: int, token_id: int, num_output: int) -> None:
    record = state.requests.get(request) or state.record(request)
    state.assign(record, "num_output", num_output)


# Blocks


def _hold(state: EngineState, block: int, request: int, index: int) -> None:
    table = state.record(request).table
    if 0 <= index < len(table):  # copy-on-write: the copy takes the place of the shared block
        state.remove(table, index)
        state.insert(table, index, block)
    else:
        state.insert(table, len(table), block)
    state.put(state.ref_counts, block, state.ref_counts.get(block, 0) + 1)


def _let_go(state: EngineState, block: int, request: int, c: int) -> None:
    table = state.record(request).table
    if table and table[-1] == block:  # tables are freed from the tail
        state.remove(table, len(table) - 1)
    elif block in table:
        state.remove(table, table.index(block))
    references = state.ref_counts.get(block, 0) - 1
    state.put(state.ref_counts, block, references if references > 0 else None)


def _cache(state: EngineState, block: int, request: int, index: int) -> None:
    state.put(state.cached, block, request)


def _evict(state: EngineState, block: int, request: int, index: int) -> None:
    state.put(state.cached, block, None)


# Swap space, regions and knobs


def _swap_out(state: EngineState, request: int, block: int, host_block: int) -> None:
    host_blocks = state.record(request).host_blocks
    state.insert(host_blocks, len(host_blocks), host_block)


def _swap_in(state: EngineState, request: int, host_block: int, block: int) -> None:
    host_blocks = state.record(request).host_blocks
    if host_block in host_blocks:
        state.remove(host_blocks, host_blocks.index(host_block))


def _region_set(state: EngineState, request: int, start: int, length: int) -> None:
    state.assign(state.record(request), "region", (start, length))


def _region_move(state: EngineState, request: int, old_start: int, new_start: int) -> None:
    record = state.record(request)
    state.assign(record, "region", (new_start, record.region[1] if record.region else 0))


def _region_free(state: EngineState, request: int, start: int, length: int) -> None:
    state.assign(state.record(request), "region", None)


def _knob(state: EngineState, knob: int, old: int, new: int) -> None:
    state.put(state.knobs, knob, new)


RULES: dict[int, Callable[[EngineState, int, int, int], None]] = {
    Kind.SUBMIT: _submit,
    Kind.ADMIT: _admit,
    Kind.RESUME: _resume,
    Kind.SCHEDULED: _scheduled,
    Kind.TOKEN: _token,
    Kind.PREEMPT: _preempt,
    Kind.FINISH: _finish,
    Kind.BLOCK_ALLOC: _hold,
    Kind.BLOCK_CACHE: _cache,
    Kind.BLOCK_SHARE: _hold,
    Kind.BLOCK_UNSHARE: _let_go,
    Kind.BLOCK_EVICT: _evict,
    Kind.BLOCK_FREE: _let_go,
    Kind.SWAP_OUT: _swap_out,
    Kind.SWAP_IN: _swap_in,
    Kind.FORK: _fork,
    Kind.REGION_ALLOC: _region_set,
    Kind.REGION_GROW: _region_set,
    Kind.REGION_MOVE: _region_move,
    Kind.REGION_FREE: _region_free,
    Kind.KNOB: _knob,
}
