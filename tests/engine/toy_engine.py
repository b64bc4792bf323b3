"""A toy engine for tests: it moves requests and blocks at random, logs it, and remembers the truth.

It shares no code with the engine or with `EngineState`: its snapshots are the oracle.
"""

import random

from tinyvllm_lab.engine.events import Kind, Phase, Reason
from tinyvllm_lab.engine.log import EventLog

BLOCK_SIZE = 4


class ToyRequest:
    def __init__(self, index, prompt, max_tokens):
        self.index, self.prompt, self.max_tokens = index, prompt, max_tokens
        self.slot, self.out, self.computed, self.table, self.host = -1, 0, 0, [], []
        self.region, self.status, self.lost = None, "waiting", 0


class ToyEngine:
    def __init__(self, seed, *, regions=False, num_blocks=24, num_slots=4):
        self.rng, self.log = random.Random(seed), EventLog()
        self.regions, self.num_slots, self.num_blocks = regions, num_slots, num_blocks
        self.free = list(range(1, num_blocks))
        self.refs, self.hashed = {}, set()
        self.requests, self.queue, self.slots = [], [], {}
        self.host_free = list(range(100))
        self.clock, self.truth = 1000, []

    def emit(self, kind, *values):
        self.log.buffer += (int(kind), *values)

    # Blocks

    def alloc(self, request, index=None):
        block = self.free.pop(0)
        index = len(request.table) if index is None else index
        if block in self.hashed:
            self.hashed.remove(block)
            self.emit(Kind.BLOCK_EVICT, block, request.index, index)
        self.refs[block] = 1
        request.table[index : index + 1] = [block]
        self.emit(Kind.BLOCK_ALLOC, block, request.index, index)
        return block

    def share(self, request, block):
        if block in self.free:
            self.free.remove(block)
        self.refs[block] = self.refs.get(block, 0) + 1
        self.emit(Kind.BLOCK_SHARE, block, request.index, len(request.table))
        request.table.append(block)

    def release(self, request, block):
        self.refs[block] -= 1
        if self.refs[block]:
            self.emit(Kind.BLOCK_UNSHARE, block, request.index, self.refs[block])
        else:
            del self.refs[block]
            self.free.append(block)
            self.emit(Kind.BLOCK_FREE, block, request.index, int(block in self.hashed))

    def release_all(self, request):
        if request.region is not None:
            self.emit(Kind.REGION_FREE, request.index, *request.region)
            request.region = None
        order = list(reversed(request.table))
        if self.rng.random() < 0.2:  # a careless allocator frees from the head
            order.reverse()
        for block in order:
            request.table.remove(block)
            self.release(request, block)

    # Requests

    def submit(self):
        index = len(self.requests)
        request = ToyRequest(index, self.rng.randint(1, 20), self.rng.randint(1, 12))
        self.requests.append(request)
        self.queue.append(request)
        self.emit(Kind.SUBMIT, index, request.prompt, request.max_tokens)

    def admit(self):
        request = self.queue[0]
        slots = [slot for slot in range(self.num_slots) if slot not in self.slots]
        if not slots or len(self.free) < -(-request.prompt // BLOCK_SIZE) + 1:
            return
        self.queue.pop(0)
        kind = Kind.ADMIT if request.status == "waiting" else Kind.RESUME
        hashed = [b for b in sorted(self.hashed) if b not in request.table]
        hits = hashed[: self.rng.randint(0, (request.prompt - 1) // BLOCK_SIZE)]
        if request.host or self.regions or request.computed:
            hits = []
        for block in hits:
            self.share(request, block)
        request.slot, request.status = slots[0], "running"
        self.slots[slots[0]] = request
        request.computed = max(request.computed, len(hits) * BLOCK_SIZE)
        self.emit(kind, request.index, slots[0], len(hits) * BLOCK_SIZE)
        for host in request.host[:]:
            block = self.alloc(request)
            self.emit(Kind.SWAP_IN, request.index, host, block)
            self.host_free.append(host)
        request.host = []
        if self.regions:
            request.region = (100 * request.slot, request.prompt)
            self.emit(Kind.REGION_ALLOC, request.index, *request.region)

    def preempt(self):
        request = self.slots.pop(self.rng.choice(sorted(self.slots)))
        swap = bool(request.table) and self.rng.random() < 0.5
        self.emit(Kind.PREEMPT, request.index, request.slot, int(swap))
        if swap:
            for block in request.table:
                host = self.host_free.pop()
                request.host.append(host)
                self.emit(Kind.SWAP_OUT, request.index, block, host)
        else:
            request.computed = 0
        self.release_all(request)
        request.slot, request.status = -1, "preempted"
        request.lost += 1
        self.queue.insert(0, request)

    def fork(self):
        parent = self.slots[self.rng.choice(sorted(self.slots))]
        slots = [slot for slot in range(self.num_slots) if slot not in self.slots]
        if not slots or self.regions:
            return
        child = ToyRequest(len(self.requests), parent.prompt, parent.max_tokens)
        child.slot, child.status = slots[0], "running"
        child.computed = min(parent.computed, child.prompt - 1)
        self.requests.append(child)
        self.slots[child.slot] = child
        self.emit(Kind.SUBMIT, child.index, child.prompt, child.max_tokens)
        self.emit(Kind.FORK, parent.index, child.index, child.slot)
        for block in parent.table[: -(-child.computed // BLOCK_SIZE)]:
            self.share(child, block)

    def finish(self, request, reason):
        if request in self.queue:
            self.queue.remove(request)
        self.slots.pop(request.slot, None)
        self.emit(Kind.FINISH, request.index, int(reason), request.slot)
        self.host_free += request.host
        self.release_all(request)
        request.slot, request.status, request.host = -1, "finished", []

    # Steps

    def compute(self, request):
        total = request.prompt + request.out
        tokens = min(total - request.computed, self.rng.randint(1, 8))
        while not self.regions and len(request.table) * BLOCK_SIZE < request.computed + tokens:
            if not self.free:
                return
            self.alloc(request)
        phase = Phase.DECODE if total - request.computed == 1 else Phase.PREFILL
        self.emit(Kind.SCHEDULED, request.index, tokens, int(phase))
        request.computed += tokens
        self.write(request)
        if request.computed == total:
            self.sample(request)

    def write(self, request):
        table = request.table
        if table and self.refs[table[-1]] > 1 and self.free:
            source = table[-1]
            target = self.alloc(request, len(table) - 1)
            self.emit(Kind.BLOCK_COPY, source, target, request.index)
            self.release(request, source)
        for index in range(request.computed // BLOCK_SIZE):
            if index < len(table) and table[index] not in self.hashed and self.rng.random() < 0.7:
                self.hashed.add(table[index])
                self.emit(Kind.BLOCK_CACHE, table[index], request.index, index)

    def sample(self, request):
        request.out += 1
        self.emit(Kind.TOKEN, request.index, self.rng.randrange(32000), request.out)
        if request.region is not None:
            request.region = (request.region[0], request.region[1] + 1)
            self.emit(Kind.REGION_GROW, request.index, *request.region)
            if self.rng.random() < 0.1:
                old, new = request.region[0], 1000 * (1 + request.slot) + self.rng.randrange(500)
                request.region = (new, request.region[1])
                self.emit(Kind.REGION_MOVE, request.index, old, new)
        if request.out >= request.max_tokens:
            self.finish(request, Reason.LENGTH)

    def step(self):
        rng = self.rng
        self.emit(Kind.STEP, len(self.queue), len(self.refs), self.clock)
        if rng.random() < 0.05:
            knob = self.log.intern_knob("max_num_seqs")
            values = [self.log.intern_knob(rng.randint(1, 8)) for _ in range(2)]
            self.emit(Kind.KNOB, knob, *values)
        alive = [r for r in self.requests if r.status != "finished"]
        if alive and rng.random() < 0.08:
            self.finish(rng.choice(alive), Reason.ABORT)
        for _ in range(rng.choice([0, 0, 1, 2])):
            self.submit()
        if self.slots and (rng.random() < 0.1 or not self.free):
            self.preempt()
        if self.slots and rng.random() < 0.1:
            self.fork()
        if self.queue:
            self.admit()
        for request in list(self.slots.values()):
            self.compute(request)
        self.clock += rng.randint(1, 3000)
        self.emit(Kind.STEP_END, self.clock, rng.randint(1, 90), rng.randint(1, 900))
        self.log.flush()
        self.truth.append(self.snapshot())

    def snapshot(self):
        return {
            "waiting": [r.index for r in self.queue],
            "slots": {slot: r.index for slot, r in self.slots.items()},
            "tables": [r.table[:] for r in self.requests],
            "host": [r.host[:] for r in self.requests],
            "regions": [r.region for r in self.requests],
            "computed": [r.computed for r in self.requests],
            "outputs": [r.out for r in self.requests],
            "statuses": [r.status for r in self.requests],
            "preemptions": [r.lost for r in self.requests],
            "refs": dict(self.refs),
            "hashed": sorted(self.hashed),
        }

    def run(self, steps):
        for _ in range(steps):
            self.step()
        return self
