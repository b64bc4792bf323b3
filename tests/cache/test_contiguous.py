"""`ContiguousAllocator` against a brute-force picture of memory, slot by slot."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from tinyvllm_lab.cache import ContiguousAllocator
from tinyvllm_lab.engine.request import Request
from tinyvllm_lab.errors import CacheError

SLOTS = 40


class MemoryMachine(RuleBasedStateMachine):
    """Every slot holds (request, position); moves copy what is there, as an executor would."""

    @initialize(
        placement=st.sampled_from(["first-fit", "best-fit"]),
        compaction=st.booleans(),
        granule=st.integers(1, 5),
        reserve=st.sampled_from([0, 0, 12]),
    )
    def start(self, placement, compaction, granule, reserve):
        self.memory = ContiguousAllocator(
            SLOTS, placement, granule=granule, reserve_len=reserve, compaction=compaction
        )
        self.slots = [None] * SLOTS
        self.requests = []

    def write(self, request, start, end):
        for position in range(start, end):
            self.slots[request.region[0] + position] = (request.index, position)
        request.num_computed_tokens = end

    def do_moves(self):
        for old, new, count in self.memory.pending.moves:
            self.slots[new : new + count] = self.slots[old : old + count]
        self.memory.pending.moves.clear()

    def largest_hole(self):
        used = [False] * SLOTS
        for request in self.requests:
            start, length = request.region
            used[start : start + length] = [True] * length
        runs = "".join("x" if u else " " for u in used).split("x")
        return max(map(len, runs)), used.count(False)

    @rule(tokens=st.integers(1, 14))
    def admit(self, tokens):
        request = Request("r", [0] * tokens, index=len(self.slots) + len(self.requests))
        hole, free = self.largest_hole()
        length = self.memory.required(tokens)
        possible = length <= (free if self.memory.compaction else hole)
        assert self.memory.fits(request, (), tokens, 0) == possible
        if not possible:
            with pytest.raises(CacheError):
                self.memory.admit(request, (), tokens)
            assert request.region is None
            return
        self.memory.admit(request, (), tokens)
        self.requests.append(request)
        request.index = id(request)
        self.do_moves()
        self.write(request, 0, tokens)

    @precondition(lambda self: self.requests)
    @rule(data=st.data(), more=st.integers(1, 9))
    def grow(self, data, more):
        request = data.draw(st.sampled_from(self.requests), label="request")
        end = request.num_computed_tokens + more
        before = request.region
        _, free = self.largest_hole()
        grown = self.memory.grow(request, end)
        self.do_moves()
        if grown:
            assert request.kv_capacity >= end
            self.write(request, request.num_computed_tokens, end)
        else:
            assert request.region == before
            if self.memory.compaction:
                assert self.memory.required(end) - before[1] > free

    @precondition(lambda self: self.requests)
    @rule(data=st.data())
    def release(self, data):
        request = data.draw(st.sampled_from(self.requests), label="request")
        self.requests.remove(request)
        self.memory.release(request)
        self.memory.release(request)
        assert request.region is None

    @invariant()
    def everybody_has_what_it_wrote(self):
        if not hasattr(self, "memory"):
            return
        self.memory.check_invariants(self.requests)
        for request in self.requests:
            start, _ = request.region
            held = self.slots[start : start + request.num_computed_tokens]
            assert held == [(request.index, p) for p in range(request.num_computed_tokens)]


MemoryMachine.TestCase.settings = settings(max_examples=80, stateful_step_count=30, deadline=None)
TestMemory = MemoryMachine.TestCase


def place(memory, length):
    request = Request("r", [0] * length)
    memory.admit(request, (), length)
    request.num_computed_tokens = length
    return request


def with_holes(placement):
    """Holes of 8 slots at 0 and 4 slots at 12, and the rest from 20 on."""
    memory = ContiguousAllocator(SLOTS, placement, granule=4)
    first, second, third, fourth = (place(memory, n) for n in (8, 4, 4, 4))
    memory.release(first)
    memory.release(third)
    assert memory.holes() == [(0, 8), (12, 4), (20, 20)]
    return memory, second, fourth


@pytest.mark.parametrize(("placement", "start"), [("first-fit", 0), ("best-fit", 12)])
def test_placement(placement, start):
    memory, _, _ = with_holes(placement)
    assert place(memory, 4).region == (start, 4)


def test_external_fragmentation_enough_is_free_but_no_hole_is_large_enough():
    memory, _, _ = with_holes("first-fit")
    place(memory, 20)
    assert SLOTS - memory.num_used == 12
    assert not memory.fits(Request("r", [0] * 12), (), 12, 0)
    memory.compaction = True
    assert place(memory, 12).region == (28, 12)


def test_a_region_grows_in_place_else_it_moves():
    memory, second, fourth = with_holes("first-fit")
    assert memory.grow(second, 8)
    assert second.region == (8, 8)
    assert memory.pending.moves == []
    assert memory.grow(second, 12)
    assert second.region == (0, 12)
    assert memory.pending.moves == [(8, 0, 4)]
    assert memory.grow(fourth, 24)
    assert fourth.region == (16, 24)


def test_reserving_the_longest_sequence():
    memory = ContiguousAllocator(SLOTS, reserve_len=16)
    assert place(memory, 1).region == (0, 16)
    assert place(memory, 9).region == (16, 16)
    assert not memory.fits(Request("r", [0]), (), 1, 0)


def test_what_regions_cannot_do():
    memory, second, _ = with_holes("first-fit")
    assert memory.find_prefix(second) == []
    assert memory.swap_out(second) is False
    with pytest.raises(CacheError, match="cannot be shared"):
        memory.fork(second, Request("child", [0]))


def test_wrong_books_are_found():
    memory, second, fourth = with_holes("first-fit")
    second.region = (16, 4)
    with pytest.raises(CacheError, match="differ"):
        memory.check_invariants([second, fourth])
