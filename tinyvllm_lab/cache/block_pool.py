"""`BlockPool`: who holds which KV block, which blocks are free, and which can be found by hash."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from tinyvllm_lab.cache.free_queue import FreeQueue
from tinyvllm_lab.cache.hashing import BlockHash
from tinyvllm_lab.engine.events import Kind
from tinyvllm_lab.errors import CacheError

NULL_BLOCK = 0

_ALLOC, _CACHE, _SHARE = int(Kind.BLOCK_ALLOC), int(Kind.BLOCK_CACHE), int(Kind.BLOCK_SHARE)
_UNSHARE, _EVICT, _FREE = int(Kind.BLOCK_UNSHARE), int(Kind.BLOCK_EVICT), int(Kind.BLOCK_FREE)


class BlockPool:
    """Blocks `1 .. num_blocks - 1`, with reference counts, an LRU free queue and a hash map.

    A block is free (in the queue), or held by at least one block table. A free block may still
    carry the hash of what it holds: then it is *cached*, and a prefix hit can take it back. Rules
    and order are vLLM V1's `BlockPool`; block 0 is the null block, never given out.

    Args:
        num_blocks: size of the pool, the null block included.
        events: list that receives an event for each change (kind, a, b, c), or None.

    Raises:
        CacheError: on misuse (double free, a foreign block, more blocks than are free). Nothing is
            changed then.
    """

    def __init__(self, num_blocks: int, events: list[int] | None = None) -> None:
        if num_blocks < 2:
            raise CacheError(
                f"A pool of {num_blocks} blocks has no usable block.", "at least 2: one is null"
            )
        self.num_blocks = num_blocks
        self.events = events
        self.ref_counts = [0] * num_blocks
        self.hashes: list[BlockHash | None] = [None] * num_blocks
        self._queue = FreeQueue(num_blocks)
        # A hash maps to a block, or to an insertion-ordered dict of blocks with equal content.
        self._by_hash: dict[BlockHash, int | dict[int, None]] = {}

    @property
    def num_free(self) -> int:
        """Blocks that can be taken; cached ones that nobody holds are among them."""
        return self._queue.size

    @property
    def num_used(self) -> int:
        """Blocks held by at least one table."""
        return self.num_blocks - 1 - self._queue.size

    @property
    def num_hashes(self) -> int:
        """Distinct block contents that a prefix can hit."""
        return len(self._by_hash)

    def free_queue(self) -> list[int]:
        """Free blocks, the next to be taken first."""
        return list(self._queue)

    def is_free(self, block: int) -> bool:
        """True if no table holds the block."""
        return self.ref_counts[block] == 0

    def allocate(self, count: int, owner: int, index: int) -> list[int]:
        """Take blocks from the head of the free queue; cached ones are evicted.

        Args:
            count: how many.
            owner: index of the request that will hold them.
            index: place of the first one in the owner's block table.

        Raises:
            CacheError: fewer are free.
        """
        if count > self._queue.size:
            raise CacheError(
                f"{count} blocks were asked for, {self._queue.size} are free.",
                fix="Check num_free first, and preempt a request if it is too small.",
            )
        blocks = self._queue.pop_many(count)
        events, hashes, refs = self.events, self.hashes, self.ref_counts
        for i, block in enumerate(blocks, index):
            if hashes[block] is not None:
                self._forget(block, owner, i)
            refs[block] = 1
            if events is not None:
                events += (_ALLOC, block, owner, i)
        return blocks

    def share(self, block: int, owner: int, index: int) -> None:
        """One more table holds the block; a free one leaves the queue.

        Raises:
            CacheError: the block is neither held nor cached, so its content means nothing.
        """
        self._check_id(block)
        if self.ref_counts[block] == 0:
            if self.hashes[block] is None:
                raise CacheError(f"Block {block} is free and empty: there is nothing to share.")
            self._queue.remove(block)
        self.ref_counts[block] += 1
        if self.events is not None:
            self.events += (_SHARE, block, owner, index)

    def release(self, table: Sequence[int], owner: int) -> None:
        """One table lets go of its blocks, the last one first.

        Blocks that nobody else holds become free: hashed ones go to the tail of the queue (the end
        of a prefix is evicted before its beginning), others to the front.

        Raises:
            CacheError: a block is not held by anybody, or stands in the table more often than it is
                held.
        """
        self._check_release(table, owner)
        refs, hashes, events = self.ref_counts, self.hashes, self.events
        front: list[int] = []
        back: list[int] = []
        for block in reversed(table):
            refs[block] -= 1
            left = refs[block]
            if left:
                if events is not None:
                    events += (_UNSHARE, block, owner, left)
                continue
            cached = hashes[block] is not None
            (back if cached else front).append(block)
            if events is not None:
                events += (_FREE, block, owner, int(cached))
        self._queue.append_many(back)
        self._queue.prepend_many(front)

    def cache(self, block: int, block_hash: BlockHash, owner: int, index: int) -> None:
        """Make a full block findable by its hash."""
        self.hashes[block] = block_hash
        known = self._by_hash.get(block_hash)
        if known is None:
            self._by_hash[block_hash] = block
        elif isinstance(known, dict):
            known[block] = None
        else:
            self._by_hash[block_hash] = {known: None, block: None}
        if self.events is not None:
            self.events += (_CACHE, block, owner, index)

    def uncache(self, block: int, owner: int, index: int) -> None:
        """Take back a hash whose content was never written."""
        if self.hashes[block] is not None:
            self._forget(block, owner, index)

    def lookup(self, block_hash: BlockHash) -> int | None:
        """The block with this content, the first one cached if there are several."""
        known = self._by_hash.get(block_hash)
        return next(iter(known)) if isinstance(known, dict) else known

    def _forget(self, block: int, owner: int, index: int) -> None:
        block_hash = self.hashes[block]
        assert block_hash is not None
        self.hashes[block] = None
        known = self._by_hash[block_hash]
        if isinstance(known, dict) and len(known) > 1:
            del known[block]
        else:
            del self._by_hash[block_hash]
        if self.events is not None:
            self.events += (_EVICT, block, owner, index)

    def _check_id(self, block: int) -> None:
        if not 0 < block < self.num_blocks:
            raise CacheError(
                f"Block {block} is not of this pool.", f"a block id from 1 to {self.num_blocks - 1}"
            )

    def _check_release(self, table: Sequence[int], owner: int) -> None:
        refs = self.ref_counts
        # One block twice in one table is a bug too, but a rare one: count only when suspicious.
        counts = Counter(table) if len(set(table)) != len(table) else None
        for block in table:
            self._check_id(block)
            if refs[block] < (counts[block] if counts else 1):
                raise CacheError(
                    f"Request {owner} frees block {block}, which is held {refs[block]} times.",
                    "a block that this request holds",
                    "Free a block table once, then forget it.",
                )

    def check_invariants(self, tables: Iterable[Sequence[int]]) -> None:
        """Compare the books with the block tables.

        Args:
            tables: the block table of each request that holds blocks.

        Raises:
            CacheError: null + free + used != total, a reference count differs from the number of
                tables that hold the block, an id is twice in the queue, or the hash map is wrong.
        """
        held = Counter(block for table in tables for block in table)
        queue = self.free_queue()
        problems = [
            *_queue_problems(queue, self._queue.size, self.num_blocks, held),
            *_reference_problems(self.ref_counts, held),
            *self._hash_problems(),
        ]
        if problems:
            raise CacheError("The block pool's books are wrong: " + "; ".join(problems[:5]) + ".")

    def _hash_problems(self) -> list[str]:
        mapped: dict[int, BlockHash] = {}
        for block_hash, known in self._by_hash.items():
            for block in known if isinstance(known, dict) else (known,):
                mapped[block] = block_hash
        stored = {b: h for b, h in enumerate(self.hashes) if h is not None}
        return [] if mapped == stored else [f"hash map and blocks differ: {mapped} and {stored}"]


def _queue_problems(queue: list[int], size: int, num_blocks: int, held: Counter) -> list[str]:
    problems = []
    if len(queue) != size or len(set(queue)) != size:
        problems.append(f"the free queue counts {size} blocks and holds {sorted(queue)}")
    if NULL_BLOCK in queue or NULL_BLOCK in held:
        problems.append("the null block was given out")
    if both := set(queue) & held.keys():
        problems.append(f"blocks {sorted(both)} are free and held")
    if 1 + len(set(queue)) + len(held) != num_blocks:
        problems.append(f"null 1 + free {len(queue)} + used {len(held)} is not {num_blocks}")
    return problems


def _reference_problems(ref_counts: list[int], held: Counter) -> list[str]:
    return [
        f"block {block} counts {count} references and {held[block]} tables hold it"
        for block, count in enumerate(ref_counts)
        if count != held[block]
    ]
