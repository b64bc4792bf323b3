"""Replay of recorded scheduler traces: our scheduler against vLLM's, field by field.

The real `Scheduler` plans; a fake model answers with made-up token ids, as the recording did. The
records are read from the events of each step. The format of workloads and records is that of
`tests/data/vllm_traces/README.md`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from tinyvllm_lab.cache import BlockPool
from tinyvllm_lab.engine.config import EngineConfig
from tinyvllm_lab.engine.events import Kind
from tinyvllm_lab.engine.plan import StepPlan
from tinyvllm_lab.engine.request import Request
from tinyvllm_lab.engine.sampling_params import SamplingParams
from tinyvllm_lab.engine.scheduler import Scheduler
from tinyvllm_lab.errors import ConfigError

STUCK_AFTER = 3
"""Empty steps in a row, with nothing to come, after which a replay gives up."""
LISTED_FREE_QUEUE = 41
"""Pools up to this size have their whole free queue in the record."""

_SETTINGS = (
    "max_num_seqs", "max_num_batched_tokens", "block_size", "num_blocks", "enable_chunked_prefill",
    "enable_prefix_caching", "long_prefill_token_threshold", "policy", "max_model_len",
    "watermark", "reserve_full_isl",
)  # fmt: skip
_ALWAYS = frozenset((
    "t", "sched", "running", "waiting", "free", "nblk", "running_end", "free_end", "hashed_end",
    "freeq_end",
))  # fmt: skip

Record = dict[str, Any]


def replay(workload: Record) -> list[Record]:
    """Run a recorded workload through the real scheduler.

    Args:
        workload: `config` and `requests` as in a recorded trace; anything else is ignored.

    Returns:
        One record a step, with the field names of the recordings (all but `pc_stats`). It ends when
        every request has ended, when nothing moves any more, or after `max_steps`.

    Raises:
        ConfigError: the workload lacks a field or holds a value out of range.
    """
    return list(_Replay(workload).records())


def differences(recorded: Sequence[Record], replayed: Sequence[Record]) -> list[str]:
    """Where two lists of records differ, one line a field (`pc_stats` is not compared)."""
    lines: list[str] = []
    for mine, theirs in zip(replayed, recorded, strict=False):
        names = sorted((mine.keys() | theirs.keys()) - {"pc_stats"})
        lines += [
            f"step {theirs['t']}, {name}: recorded {theirs.get(name)}, replayed {mine.get(name)}"
            for name in names
            if mine.get(name) != theirs.get(name)
        ]
    if len(recorded) != len(replayed):
        lines.append(f"{len(recorded)} steps were recorded, {len(replayed)} replayed")
    return lines


class _Replay:
    """One workload on its way through the scheduler."""

    def __init__(self, workload: Record) -> None:
        try:
            self._read(workload)
        except (KeyError, TypeError, AttributeError) as error:
            raise ConfigError(
                f"The workload cannot be replayed: {type(error).__name__}: {error}.",
                "'config' and 'requests' as described in tests/data/vllm_traces/README.md",
            ) from error

    def _read(self, workload: Record) -> None:
        settings = workload["config"]
        config = EngineConfig(**{k: settings[k] for k in _SETTINGS if k in settings})
        self.max_steps = settings.get("max_steps", 100_000)
        self.arrivals: dict[int, list[Request]] = defaultdict(list)
        self.aborts: dict[int, list[Request]] = defaultdict(list)
        self.outputs: list[Sequence[int]] = []
        self.names: list[str] = []
        for number, spec in enumerate(workload["requests"]):
            request = _make_request(number, spec)
            self.outputs.append(spec.get("output_token_ids") or ())
            self.names.append(request.request_id)
            self.arrivals[spec["arrival_step"]].append(request)
            if spec.get("abort_step") is not None:
                self.aborts[spec["abort_step"]].append(request)
        self.last_event = max([*self.arrivals, *self.aborts], default=-1)
        self.events: list[int] = []
        self.pool = BlockPool(config.num_blocks, self.events)
        self.scheduler = Scheduler(config, self.events, block_pool=self.pool, trust_unwritten=True)

    def records(self) -> Iterator[Record]:
        """The records, step by step."""
        idle = 0
        for t in range(self.max_steps):
            if t > self.last_event and not self.scheduler.has_work:
                return
            record = self._step(t)
            yield {k: v for k, v in record.items() if v or k in _ALWAYS}
            moved = record["sched"] or record["preempted"] or t < self.last_event
            idle = 0 if moved else idle + 1
            if idle == STUCK_AFTER:
                return

    def _step(self, t: int) -> Record:
        """Aborts, arrivals, schedule, the fake model, update."""
        scheduler = self.scheduler
        record: Record = {"t": t}
        record["aborted"] = [r.request_id for r in self.aborts[t] if scheduler.abort(r)]
        record["arrived"] = _ids(self.arrivals[t])
        for request in self.arrivals[t]:
            scheduler.add(request)
        self.events.clear()
        plan = scheduler.schedule()
        record |= self._planned(plan) | self._memory(plan)
        sampled = [r for r, samples in zip(plan.requests, plan.samples, strict=True) if samples]
        record["sampled"] = _ids(sampled)
        finished = scheduler.update(plan, [self._next_token(r) for r in plan.requests])
        record["finished"] = [
            [r.request_id, r.finish_reason.name.lower()]
            for r in finished
            if r.finish_reason is not None
        ]
        return record | self._after()

    def _next_token(self, request: Request) -> int:
        """The recorded output token, or a made-up one that no other request has."""
        given, k = self.outputs[request.index], request.num_output_tokens
        return given[k] if k < len(given) else _base(request.index) + 500_000 + k

    def _planned(self, plan: StepPlan) -> Record:
        """Queues and batch after schedule()."""
        rows = zip(plan.requests, plan.num_tokens, plan.starts, strict=True)
        return {
            "sched": [[r.request_id, n, start] for r, n, start in rows],
            "new": _ids(plan.admitted),
            "resumed": _ids(plan.resumed),
            "preempted": _ids(plan.preempted),
            "running": _ids(self.scheduler.running),
            "waiting": _ids(self.scheduler.waiting),
        }

    def _memory(self, plan: StepPlan) -> Record:
        """Blocks after schedule(), read from the events of this step."""
        events: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
        for at in range(0, len(self.events), 4):
            kind, *values = self.events[at : at + 4]
            events[kind].append((values[0], values[1], values[2]))
        admissions = [*events[Kind.ADMIT], *events[Kind.RESUME]]
        caching = self.scheduler.config.enable_prefix_caching
        return {
            "hit": {self.names[r]: hit for r, _, hit in admissions} if caching else {},
            "blocks": self._new_blocks(plan, events, {r for r, _, _ in admissions}),
            "evicted": [block for block, _, _ in events[Kind.BLOCK_EVICT]],
            "cached": [block for block, _, _ in events[Kind.BLOCK_CACHE]],
            "free": self.pool.num_free,
            "nblk": {r.request_id: len(r.block_table) for r in self.scheduler.running},
        }

    def _new_blocks(self, plan: StepPlan, events: dict, admitted: set[int]) -> Record:
        taken: dict[int, list[int]] = defaultdict(list)
        for block, owner, _ in events[Kind.BLOCK_ALLOC]:
            taken[owner].append(block)
        return {
            r.request_id: list(r.block_table) if r.index in admitted else ["+", *taken[r.index]]
            for r in plan.requests
            if r.index in admitted or taken[r.index]
        }

    def _after(self) -> Record:
        """Seats and pool after update()."""
        pool = self.pool
        record: Record = {
            "running_end": len(self.scheduler.running),
            "free_end": pool.num_free,
            "hashed_end": pool.num_hashes,
        }
        if pool.num_blocks <= LISTED_FREE_QUEUE:
            record["freeq_end"] = pool.free_queue()
        return record


def _base(number: int) -> int:
    """Token ids from here on belong to request `number` alone, so that nothing is shared."""
    return 1_000_000 * (number + 1)


def _make_request(number: int, spec: Record) -> Request:
    base = _base(number)
    prompt = spec.get("prompt_token_ids") or range(base, base + spec["prompt_len"])
    params = SamplingParams(
        max_tokens=spec["output_len"], stop_token_ids=tuple(spec.get("stop_token_ids") or ())
    )
    return Request(
        spec["id"], list(prompt), params,
        index=number,
        arrival_time=spec["arrival_step"] + 1e-6 * number,
        priority=spec.get("priority", 0),
        cache_salt=spec.get("cache_salt"),
    )  # fmt: skip


def _ids(requests: Any) -> list[str]:
    return [r.request_id for r in requests]
