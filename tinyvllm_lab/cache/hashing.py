"""Block hashes: a full block is known by its tokens and by everything before it (chapter 12)."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Callable, Sequence

BlockHash = bytes
HashFunction = Callable[[BlockHash, Sequence[int], str | None], BlockHash]

ROOT: BlockHash = b"tinyvllm-lab prefix cache root"
"""Parent of every first block."""


def hash_block(parent: BlockHash, token_ids: Sequence[int], salt: str | None) -> BlockHash:
    """Hash of one full block, chained to its parent's.

    Equal tokens at another place, or after another prefix, have another parent and so another hash.
    The salt enters the first block only and reaches all later ones through the chain. BLAKE2b with
    128 bits: a collision would hand one reader's keys and values to another (vLLM PR 12621).

    Args:
        parent: hash of the block before, or `ROOT`.
        token_ids: the block's tokens.
        salt: secret of a tenant, for a request's first block; None otherwise.
    """
    digest = hashlib.blake2b(parent, digest_size=16)
    digest.update(array("q", token_ids))
    if salt is not None:
        digest.update(salt.encode())
    return digest.digest()
