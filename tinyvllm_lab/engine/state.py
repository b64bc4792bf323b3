"""The engine's state at any step, rebuilt from the event log, forwards and backwards.

`EngineState` holds queues, seats, block tables, regions, reference counts, block states and
counters, and nothing that the events do not say (so not the order of the pool's free queue).
`apply` takes one event forwards, `undo` takes the last one back. An event does not say what it
overwrites (a preemption forgets how many tokens were computed), so a state that is to go back
keeps a journal of old values. `history.History` walks a whole log with short journals.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from tinyvllm_lab.engine.events import Kind
from tinyvllm_lab.engine.request import Status
from tinyvllm_lab.engine.state_rules import RULES, RequestState

if TYPE_CHECKING:
    from tinyvllm_lab.engine.log import EventLog

_JOURNAL = ("_journal", "undoable_to")


class EngineState:
    """State of the engine after some of a log's events.

    Args:
        journal: keep what is needed to go back. It grows with every event until `forget`.
            Without one, `undo` is not possible, and going forwards is twice as fast.

    Attributes:
        position: number of the next event; all before it are applied.
        undoable_to: the position down to which `undo` works.
        requests: every request seen, by its running number.
        queue: requests that wait, with their place; see `waiting`.
        slots: seat -> the request in it.
        ref_counts: block -> tables that hold it; free blocks are not in it.
        cached: blocks that have a hash, so that an equal prefix finds them -> the request that
            filled them.
        knobs: knob -> value, for the knobs that were changed; both index `log.knob_values`.
        counts: events by kind.
        tokens: computed tokens by phase.
        hit_tokens: tokens from the prefix cache by kind: `ADMIT` (fresh) and `RESUME`.
        finished: ended requests by reason.
    """

    def __init__(self, *, journal: bool = False) -> None:
        self.position = self.undoable_to = 0
        self.requests: dict[int, RequestState] = {}
        self.queue: dict[int, int] = {}
        self.slots: dict[int, int] = {}
        self.ref_counts: dict[int, int] = {}
        self.cached: dict[int, int] = {}
        self.knobs: dict[int, int] = {}
        self.counts: Counter[int] = Counter()
        self.tokens: Counter[int] = Counter()
        self.hit_tokens: Counter[int] = Counter()
        self.finished: Counter[int] = Counter()
        self._journal: list[tuple] | None = [] if journal else None

    # What the state says

    @property
    def num_steps(self) -> int:
        """Steps that have begun."""
        return self.counts[Kind.STEP]

    @property
    def waiting(self) -> list[int]:
        """Requests in the queue: preempted ones first (the last preempted leads), then by arrival.

        This is the order of first come, first served; other policies pick from the same queue.
        """
        return sorted(self.queue, key=self.queue.__getitem__)

    @property
    def running(self) -> list[int]:
        """Requests with a seat, by seat."""
        return [self.slots[slot] for slot in sorted(self.slots)]

    def block_state(self, block: int) -> str:
        """`used` (a table holds it), `cached` (free, but an equal prefix finds it) or `free`."""
        if block in self.ref_counts:
            return "used"
        return "cached" if block in self.cached else "free"

    def check(self) -> list[str]:
        """What contradicts itself, in words; a sound state gives an empty list."""
        return [*self._check_blocks(), *self._check_slots(), *self._check_regions()]

    def _check_blocks(self) -> list[str]:
        held = Counter(b for record in self.requests.values() for b in record.table)
        return [
            f"block {block} has {self.ref_counts.get(block, 0)} references, but {held[block]} "
            "entries of block tables"
            for block in sorted(held.keys() | self.ref_counts.keys())
            if held[block] != self.ref_counts.get(block, 0)
        ]

    def _check_slots(self) -> list[str]:
        problems = []
        for index, record in self.requests.items():
            seated = self.slots.get(record.seq_slot) == index
            if (record.status is Status.RUNNING) != seated:
                problems.append(f"request {index} is {record.status.value}, seat {record.seq_slot}")
            if record.status is Status.FINISHED and (record.table or record.region):
                problems.append(f"request {index} has ended and still holds KV memory")
        return problems

    def _check_regions(self) -> list[str]:
        regions = sorted((r.region, i) for i, r in self.requests.items() if r.region is not None)
        return [
            f"the regions of requests {left} and {right} overlap"
            for ((start, length), left), ((after, _), right) in pairwise(regions)
            if start + length > after
        ]

    # Forwards and backwards

    def apply(self, kind: int, a: int, b: int, c: int) -> None:
        """Take one event forwards."""
        if self._journal is not None:
            self._journal.append((None, kind))
        rule = RULES.get(kind)
        if rule is not None:
            rule(self, a, b, c)
        self.counts[kind] += 1
        self.position += 1

    def apply_all(self, rows: Iterable[list[int]]) -> None:
        """Take many events forwards: rows of kind, a, b, c."""
        if self._journal is not None:
            for row in rows:
                self.apply(*row)
            return
        rules, counts = RULES, self.counts
        for kind, a, b, c in rows:
            rule = rules.get(kind)
            if rule is not None:
                rule(self, a, b, c)
            counts[kind] += 1
            self.position += 1

    def undo(self) -> None:
        """Take back the last event.

        Raises:
            IndexError: there is nothing in the journal.
        """
        if not self._journal:
            raise IndexError("the journal holds no event to take back")
        what, *values = self._journal.pop()
        while what is not None:
            what(*values)
            what, *values = self._journal.pop()
        self.counts[values[0]] -= 1
        self.position -= 1

    def forget(self, *, journal: bool) -> None:
        """Drop the journal: the state cannot go back beyond this point.

        Args:
            journal: keep a new one from here on.
        """
        self.undoable_to = self.position
        self._journal = [] if journal else None

    # Changes that can be taken back, for the rules

    def record(self, request: int) -> RequestState:
        """A request's record; made up if no event introduced it."""
        record = self.requests.get(request)
        if record is None:
            record = RequestState()
            self.put(self.requests, request, record)
        return record

    def assign(self, record: RequestState, name: str, value: Any) -> None:
        """Set an attribute of a record."""
        if self._journal is not None:
            self._journal.append((setattr, record, name, getattr(record, name)))
        setattr(record, name, value)

    def put(self, table: dict[int, Any], key: int, value: Any) -> None:
        """Set an entry of a dict; None removes it."""
        if self._journal is not None:
            self._journal.append((_put, table, key, table.get(key)))
        _put(table, key, value)

    def add(self, counter: Counter[int], key: int, amount: int) -> None:
        """Add to a counter."""
        if self._journal is not None:
            self._journal.append((_add, counter, key, -amount))
        counter[key] += amount

    def insert(self, items: list[int], index: int, item: int) -> None:
        """Insert into a list."""
        if self._journal is not None:
            self._journal.append((items.pop, index))
        items.insert(index, item)

    def remove(self, items: list[int], index: int) -> None:
        """Remove from a list."""
        item = items.pop(index)
        if self._journal is not None:
            self._journal.append((items.insert, index, item))

    # Copies

    def copy(self, *, journal: bool = False) -> EngineState:
        """An independent copy with an empty journal."""
        other = EngineState(journal=journal)
        for name, value in self._parts().items():
            setattr(other, name, value.copy() if hasattr(value, "copy") else value)
        other.requests = {index: record.copy() for index, record in self.requests.items()}
        other.undoable_to = other.position
        return other

    def as_dict(self) -> dict[str, Any]:
        """The state as JSON can hold it."""
        parts = self._parts()
        parts["requests"] = {
            index: {**asdict(record), "status": record.status.value}
            for index, record in self.requests.items()
        }
        return parts

    @classmethod
    def from_dict(cls, parts: dict[str, Any]) -> EngineState:
        """The way back from `as_dict`, also after JSON made strings of the keys.

        Raises:
            KeyError, TypeError, ValueError: it is not a stored state.
        """
        state = cls()
        state.position = state.undoable_to = int(parts["position"])
        for name in state._parts().keys() - {"position", "requests"}:
            getattr(state, name).update({int(k): int(v) for k, v in parts[name].items()})
        for index, record in parts["requests"].items():
            region = None if record["region"] is None else tuple(record["region"])
            status = Status(record["status"])
            state.requests[int(index)] = RequestState(
                **{**record, "region": region, "status": status}
            )
        return state

    def forget_finished(self, request: int) -> None:
        """Drop the record of a request that has ended and holds nothing (for long runs)."""
        record = self.requests.get(request)
        if record and record.status is Status.FINISHED and not (record.table or record.region):
            del self.requests[request]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, EngineState) and self._parts() == other._parts()

    def _parts(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in _JOURNAL}


def _put(table: dict[int, Any], key: int, value: Any) -> None:
    if value is None:
        table.pop(key, None)
    else:
        table[key] = value


def _add(counter: Counter[int], key: int, amount: int) -> None:
    counter[key] += amount


def state_at(log: EventLog, step: int) -> EngineState:
    """The state after all events of a step; `log.first_step - 1` is the state before the log.

    It replays the log from its oldest step. To walk back and forth use `history.History`.

    Raises:
        IndexError: the log does not hold the step.
    """
    state = log.oldest_state()
    stop = log.step_range(step).stop if step != log.first_step - 1 else state.position
    state.apply_all(log.rows(state.position, stop).tolist())
    return state
