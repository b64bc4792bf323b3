"""`PagedAllocator`: block tables over a `BlockPool` (PagedAttention, chapters 10 and 12)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tinyvllm_lab.cache.allocator import KVHolder, PendingCopies
from tinyvllm_lab.cache.block_pool import BlockPool
from tinyvllm_lab.cache.hashing import ROOT, HashFunction, hash_block
from tinyvllm_lab.cache.swap import HostBlocks
from tinyvllm_lab.engine.events import Kind

_COPY, _SWAP_IN, _SWAP_OUT = int(Kind.BLOCK_COPY), int(Kind.SWAP_IN), int(Kind.SWAP_OUT)


class PagedAllocator:
    """Gives requests KV memory in blocks; the protocol is `KVAllocator`.

    Source: Kwon et al., "Efficient Memory Management for Large Language Model Serving with
    PagedAttention" (2023); rules as vLLM V1's `KVCacheManager`. Copy-on-write and swap are ours.

    Args:
        pool: the blocks. Anything with `BlockPool`'s methods will do: a learner's own pool, say.
        block_size: tokens a block.
        enable_caching: hash full blocks, so that equal prefixes share them.
        host: swap space, or None.
        hash_function: how a block is known; a weak one shows what a collision does.
    """

    def __init__(
        self,
        pool: BlockPool,
        block_size: int,
        *,
        enable_caching: bool = True,
        host: HostBlocks | None = None,
        hash_function: HashFunction = hash_block,
    ) -> None:
        self.pool = pool
        self.block_size = block_size
        self.enable_caching = enable_caching
        self.host = host or HostBlocks(0)
        self.can_share = True
        self.pending = PendingCopies()
        self.num_total = pool.num_blocks - 1
        self._hash = hash_function

    @property
    def num_used(self) -> int:
        """Blocks held by requests."""
        return self.pool.num_used

    def required(self, max_tokens: int) -> int:
        """Blocks for `max_tokens` tokens."""
        return -(-max_tokens // self.block_size)

    def find_prefix(self, request: KVHolder) -> list[int]:
        """Cached blocks that hold the beginning of the request, in order.

        At most `(len - 1) // block_size` of them: the last token must be computed, or there would
        be no logits to sample from.
        """
        if not self.enable_caching or request.swapped_blocks:
            return []
        limit = (len(request.token_ids) - 1) // self.block_size
        self._hash_blocks(request, limit)
        lookup = self.pool.lookup
        hits = []
        for block_hash in request.block_hashes[:limit]:
            block = lookup(block_hash)
            if block is None:
                break
            hits.append(block)
        return hits

    def fits(self, request: KVHolder, hits: Sequence[int], num_tokens: int, reserve: int) -> bool:
        """True if the blocks for `num_tokens` tokens are free and `reserve` more would stay.

        Hit blocks that lie in the free queue count: sharing them uses up free blocks.
        """
        pool = self.pool
        taken_hits = sum(map(pool.is_free, hits))
        return self.required(num_tokens) - len(hits) + taken_hits + reserve <= pool.num_free

    def admit(self, request: KVHolder, hits: Sequence[int], num_tokens: int) -> None:
        """Share the hit blocks, then take new ones up to `num_tokens` tokens.

        A request that was swapped out gets as many blocks as it had, and its KV is copied back.
        """
        pool, owner = self.pool, request.index
        for i, block in enumerate(hits):
            pool.share(block, owner, i)
        count = self.required(num_tokens) - len(hits)
        request.block_table = [*hits, *pool.allocate(count, owner, len(hits))]
        request.num_cached_blocks = len(hits)
        request.kv_capacity = len(request.block_table) * self.block_size
        if request.swapped_blocks:
            self._swap_in(request)

    def grow(self, request: KVHolder, num_tokens: int) -> bool:
        """Take blocks up to `num_tokens` tokens; copy shared blocks that would be written."""
        table = request.block_table
        count = self.required(num_tokens) - len(table)
        shared = self._shared_targets(request) if request.forked else ()
        if max(count, 0) + len(shared) > self.pool.num_free:
            return False
        for i in shared:
            self._copy_on_write(request, i)
        request.forked = False
        if count > 0:
            table += self.pool.allocate(count, request.index, len(table))
            request.kv_capacity = len(table) * self.block_size
        return True

    def cache_full_blocks(self, request: KVHolder, num_tokens: int) -> None:
        """Hash every block that is full when `num_tokens` tokens are computed."""
        full = num_tokens // self.block_size
        first = request.num_cached_blocks
        if full <= first or not self.enable_caching:
            return
        self._hash_blocks(request, full)
        table, hashes, cache = request.block_table, request.block_hashes, self.pool.cache
        for i in range(first, full):
            if self.pool.hashes[table[i]] is None:
                cache(table[i], hashes[i], request.index, i)
        request.num_cached_blocks = full

    def drop_unwritten(self, request: KVHolder, num_tokens: int) -> None:
        """Take back the hashes of blocks that `num_tokens` tokens do not fill."""
        written = num_tokens // self.block_size
        for i in range(written, request.num_cached_blocks):
            self.pool.uncache(request.block_table[i], request.index, i)
        request.num_cached_blocks = min(request.num_cached_blocks, written)

    def release(self, request: KVHolder) -> None:
        """Free the request's blocks, on the device and on the host."""
        table, request.block_table = request.block_table, []
        self.pool.release(table, request.index)
        self.host.release(request.swapped_blocks)
        request.swapped_blocks = []
        request.kv_capacity = request.num_cached_blocks = 0
        request.forked = False

    def swap_out(self, request: KVHolder) -> bool:
        """Copy the computed blocks to the host and free them.

        False if there is nothing to copy, the host is full, or a block still waits for its own
        copy-on-write of this step (swap-outs run before copies).
        """
        blocks = request.block_table[: self.required(request.num_computed_tokens)]
        if not blocks or len(blocks) > self.host.num_free:
            return False
        if self.pending.copies and not {t for _, t in self.pending.copies}.isdisjoint(blocks):
            return False
        host_blocks = self.host.allocate(len(blocks))
        for block, host_block in zip(blocks, host_blocks, strict=True):
            self.pending.swap_out.append((block, host_block))
            self._emit(_SWAP_OUT, request.index, block, host_block)
        self.release(request)
        request.swapped_blocks = host_blocks
        return True

    def fork(self, parent: KVHolder, child: KVHolder) -> None:
        """Let the child share the blocks of its computed tokens; later writes copy (chapter 12)."""
        blocks = parent.block_table[: self.required(child.num_computed_tokens)]
        for i, block in enumerate(blocks):
            self.pool.share(block, child.index, i)
        child.block_table = list(blocks)
        child.kv_capacity = len(blocks) * self.block_size
        child.block_hashes = parent.block_hashes[: len(blocks)]
        child.num_cached_blocks = min(
            parent.num_cached_blocks, child.num_computed_tokens // self.block_size
        )
        parent.forked = child.forked = True

    def end_step(self) -> None:
        """Host blocks that were freed in this step can be taken from now on."""
        self.host.end_step()

    def configure(self, config: Any) -> None:
        """No knob of pages changes while the engine runs."""

    def describe(self) -> str:
        """One line about the pool."""
        pool = self.pool
        return f"{pool.num_used} of {self.num_total} blocks used, {pool.num_free} free"

    def check_invariants(self, requests: Iterable[Any]) -> None:
        """Compare pool, tables and host blocks."""
        requests = list(requests)
        self.pool.check_invariants(r.block_table for r in requests)
        self.host.check_invariants(r.swapped_blocks for r in requests)

    def _hash_blocks(self, request: KVHolder, count: int) -> None:
        """Extend the request's chain of hashes to its first `count` blocks."""
        hashes, size = request.block_hashes, self.block_size
        tokens = request.token_ids
        for i in range(len(hashes), count):
            parent = hashes[i - 1] if i else ROOT
            salt = None if i else request.cache_salt
            hashes.append(self._hash(parent, tokens[i * size : (i + 1) * size], salt))

    def _shared_targets(self, request: KVHolder) -> list[int]:
        """Places in the table whose block will be written although another table holds it too."""
        refs, table = self.pool.ref_counts, request.block_table
        first = request.num_computed_tokens // self.block_size
        return [i for i in range(first, len(table)) if refs[table[i]] > 1]

    def _copy_on_write(self, request: KVHolder, index: int) -> None:
        source = request.block_table[index]
        (target,) = self.pool.allocate(1, request.index, index)
        self.pool.release([source], request.index)
        request.block_table[index] = target
        request.num_cached_blocks = min(request.num_cached_blocks, index)
        self.pending.copies.append((source, target))
        self._emit(_COPY, source, target, request.index)

    def _swap_in(self, request: KVHolder) -> None:
        for host_block, block in zip(
            request.swapped_blocks, request.block_table, strict=False
        ):  # the table is longer: it also has room for the tokens of this step
            self.pending.swap_in.append((host_block, block))
            self._emit(_SWAP_IN, request.index, host_block, block)
        self.host.release(request.swapped_blocks)
        request.swapped_blocks = []

    def _emit(self, kind: int, a: int, b: int, c: int) -> None:
        if self.pool.events is not None:
            self.pool.events += (kind, a, b, c)
