"""KV memory: block pool, prefix cache, contiguous allocators. Imports no torch (but `cache.kv`)."""

from tinyvllm_lab.cache.allocator import KVAllocator, PendingCopies
from tinyvllm_lab.cache.block_pool import BlockPool
from tinyvllm_lab.cache.contiguous import ContiguousAllocator
from tinyvllm_lab.cache.hashing import hash_block
from tinyvllm_lab.cache.paged import PagedAllocator
from tinyvllm_lab.cache.swap import HostBlocks

__all__ = [
    "BlockPool",
    "ContiguousAllocator",
    "HostBlocks",
    "KVAllocator",
    "PagedAllocator",
    "PendingCopies",
    "hash_block",
]
