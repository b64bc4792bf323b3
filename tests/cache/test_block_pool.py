"""`BlockPool` and its free queue against plain lists and dicts, step by step."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tinyvllm_lab.cache import BlockPool, hash_block
from tinyvllm_lab.cache.free_queue import FreeQueue
from tinyvllm_lab.cache.hashing import ROOT
from tinyvllm_lab.engine.events import Kind
from tinyvllm_lab.errors import CacheError

NUM_BLOCKS = 9


class PoolMachine(RuleBasedStateMachine):
    """A pool beside a model of lists: queue order, references, hashes, and its event log."""

    def __init__(self):
        super().__init__()
        self.events = []
        self.pool = BlockPool(NUM_BLOCKS, self.events)
        self.queue = list(range(1, NUM_BLOCKS))
        self.tables = {}
        self.hashes = {}
        self.cached_order = []
        self.owner = 0

    @rule(count=st.integers(0, 4))
    def allocate(self, count):
        if count > len(self.queue):
            with pytest.raises(CacheError):
                self.pool.allocate(count, self.owner, 0)
            return
        expected, self.queue = self.queue[:count], self.queue[count:]
        for block in expected:
            self.hashes.pop(block, None)
            self.cached_order = [b for b in self.cached_order if b != block]
        assert self.pool.allocate(count, self.owner, 0) == expected
        self.tables[self.owner] = expected
        self.owner += 1

    @precondition(lambda self: any(self.tables.values()))
    @rule(data=st.data(), content=st.integers(0, 3))
    def cache(self, data, content):
        held = sorted({b for table in self.tables.values() for b in table} - self.hashes.keys())
        if held:
            block = data.draw(st.sampled_from(held))
            self.pool.cache(block, bytes([content]), 0, 0)
            self.hashes[block] = content
            self.cached_order.append(block)

    @rule(content=st.integers(0, 3))
    def share_what_a_look_up_finds(self, content):
        block = self.pool.lookup(bytes([content]))
        first = next((b for b in self.cached_order if self.hashes[b] == content), None)
        assert block == first
        if block is not None:
            self.pool.share(block, self.owner, 0)
            self.queue = [b for b in self.queue if b != block]
            self.tables[self.owner] = [block]
            self.owner += 1

    @precondition(lambda self: self.tables)
    @rule(data=st.data())
    def release(self, data):
        owner = data.draw(st.sampled_from(sorted(self.tables)))
        table = self.tables.pop(owner)
        still_held = {b for other in self.tables.values() for b in other}
        freed = [b for b in reversed(table) if b not in still_held]
        back = [b for b in freed if b in self.hashes]
        front = [b for b in freed if b not in self.hashes]
        self.queue = front + self.queue + back
        self.pool.release(table, owner)

    @precondition(lambda self: self.queue)
    @rule(data=st.data())
    def misuse_changes_nothing(self, data):
        free = data.draw(st.sampled_from(self.queue))
        held = next((t[:1] for t in self.tables.values() if t), [])
        for table in ([free], [*held, free], [0], [NUM_BLOCKS]):
            with pytest.raises(CacheError):
                self.pool.release(table, 0)
        if free not in self.hashes:
            with pytest.raises(CacheError):
                self.pool.share(free, 0, 0)

    @invariant()
    def the_books_agree(self):
        self.pool.check_invariants(self.tables.values())
        assert self.pool.free_queue() == self.queue
        assert self.pool.num_free == len(self.queue)
        assert self.pool.num_hashes == len(set(self.hashes.values()))
        assert self.pool.num_hashes <= NUM_BLOCKS

    @invariant()
    def the_events_tell_the_references(self):
        counts = [0] * NUM_BLOCKS
        for at in range(0, len(self.events), 4):
            kind, block, _, value = self.events[at : at + 4]
            if kind in (Kind.BLOCK_ALLOC, Kind.BLOCK_SHARE):
                counts[block] += 1
            elif kind == Kind.BLOCK_UNSHARE:
                counts[block] -= 1
                assert counts[block] == value
            elif kind == Kind.BLOCK_FREE:
                counts[block] = 0
        assert counts == self.pool.ref_counts


PoolMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestPool = PoolMachine.TestCase


class QueueMachine(RuleBasedStateMachine):
    """The linked list against a list."""

    def __init__(self):
        super().__init__()
        self.queue, self.model, self.out = FreeQueue(8), list(range(1, 8)), []

    @rule(data=st.data())
    def pop(self, data):
        count = data.draw(st.integers(0, len(self.model)))
        taken, self.model = self.model[:count], self.model[count:]
        assert self.queue.pop_many(count) == taken
        self.out += taken

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def remove(self, data):
        block = data.draw(st.sampled_from(self.model))
        self.queue.remove(block)
        self.model.remove(block)
        self.out.append(block)

    @rule(data=st.data(), front=st.booleans())
    def put_back(self, data, front):
        blocks = data.draw(st.lists(st.sampled_from(self.out or [0]), unique=True))
        blocks = [b for b in blocks if b]
        self.out = [b for b in self.out if b not in blocks]
        if front:
            self.queue.prepend_many(blocks)
            self.model = blocks + self.model
        else:
            self.queue.append_many(blocks)
            self.model += blocks

    @invariant()
    def equal(self):
        assert list(self.queue) == self.model
        assert len(self.queue) == len(self.model)
        assert all((b in self.queue) == (b in self.model) for b in range(1, 8))


TestQueue = QueueMachine.TestCase


def test_a_hash_knows_tokens_place_and_salt():
    first = hash_block(ROOT, [1, 2], None)
    assert first == hash_block(ROOT, (1, 2), None)
    assert len({first, hash_block(ROOT, [2, 1], None), hash_block(ROOT, [1, 2], "tenant"),
                hash_block(first, [1, 2], None)}) == 4  # fmt: skip


@pytest.mark.parametrize(
    ("break_it", "message"),
    [
        (lambda pool: pool.ref_counts.__setitem__(3, 1), "block 3 counts 1 references"),
        (lambda pool: pool._queue.pop_many(1), "is not 5"),
        (lambda pool: pool.hashes.__setitem__(2, b"x"), "hash map"),
        (lambda pool: pool._by_hash.__setitem__(b"x", 2), "hash map"),
    ],
)
def test_wrong_books_are_found(break_it, message):
    pool = BlockPool(5)
    pool.check_invariants([])
    break_it(pool)
    with pytest.raises(CacheError, match=message):
        pool.check_invariants([])


def test_a_pool_without_a_usable_block_is_refused():
    with pytest.raises(CacheError, match="no usable block"):
        BlockPool(1)
