"""Launches of the operations on the paged KV cache (see `launches`).

A layer's cache is two tensors, `k_cache` and `v_cache`, `[num_blocks, block_size, num_kv_heads,
head_dim]`. A token's slot is `block * block_size + offset`. `block_table[s]` lists the blocks of
sequence `s`; entries behind its last block are never read.
"""

import math
from typing import Any

import torch
from torch import Tensor

from tinyvllm_lab.errors import KernelError
from tinyvllm_lab.kernels.shapes import FLOATS, match_dtypes, match_shapes
from tinyvllm_lab.kernels.work import (
    SUFFIXES,
    WARP,
    Launch,
    Work,
    are_aligned,
    new,
    pack_size,
    pick,
    threads,
)

CACHE = "num_blocks block_size num_kv_heads head_dim"
HEAD_DIMS = (32, 64, 128)
PARTITION = 512  # tokens that one block of the split kernel walks through
WARPS_OF_A_BLOCK = 4  # of the kernels whose block size is fixed: 128 threads
QUERIES_OF_A_TILE = 32  # of the flash kernel


def reshape_and_cache(
    k: Tensor,
    v: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    slot_mapping: Tensor,
    *,
    version: str | None = None,
) -> Work:
    """Write new keys and values into their slots.

    `k`, `v`: `[num_tokens, num_kv_heads, head_dim]`; `slot_mapping`: `[num_tokens]` int64, where a
    negative slot skips its token. No slot may be named twice.
    """
    version = pick("reshape_and_cache", version, "vec", "naive", "row")
    tokens = "num_tokens num_kv_heads head_dim"
    shapes = {"k": (k, tokens), "v": (v, tokens), "slot_mapping": (slot_mapping, "num_tokens")}
    n = match_shapes(
        "reshape_and_cache", shapes | {"k_cache": (k_cache, CACHE), "v_cache": (v_cache, CACHE)}
    )
    match_dtypes("reshape_and_cache", {"slot_mapping": slot_mapping}, torch.int64)
    named = {"k": k, "v": v, "k_cache": k_cache, "v_cache": v_cache}
    suffix = SUFFIXES[match_dtypes("reshape_and_cache", named, *FLOATS)]
    if not k.numel():
        return Work((), None)
    width = n["num_kv_heads"] * n["head_dim"]
    args: tuple[Any, ...] = (k_cache, v_cache, k, v, slot_mapping, width)
    grid, block = n["num_tokens"], threads(width // (pack_size(k.dtype) if version == "vec" else 1))
    if version == "naive":
        args, grid, block = (
            (*args[:-1], n["num_tokens"], width),
            math.ceil(n["num_tokens"] / 256),
            256,
        )
    kernel = f"reshape_and_cache_{version}_{suffix}"
    return Work((Launch("reshape_and_cache", kernel, args, (grid,), (block,)),), None)


def copy_blocks(
    k_cache: Tensor, v_cache: Tensor, pairs: Tensor, *, version: str | None = None
) -> Work:
    """Copy whole blocks within one layer's cache: copy-on-write.

    `pairs`: `[copies, 2]` int64, (source, target). The copies happen all at once: no target may be
    named twice or be a source.
    """
    version = pick("copy_blocks", version, "vec", "naive")
    shapes = {
        "k_cache": (k_cache, CACHE),
        "v_cache": (v_cache, CACHE),
        "pairs": (pairs, "copies 2"),
    }
    n = match_shapes("copy_blocks", shapes)
    match_dtypes("copy_blocks", {"pairs": pairs}, torch.int64)
    dtype = match_dtypes("copy_blocks", {"k_cache": k_cache, "v_cache": v_cache}, *FLOATS)
    elements = n["block_size"] * n["num_kv_heads"] * n["head_dim"]
    if not n["copies"] * elements:
        return Work((), None)
    items = math.ceil(elements / pack_size(dtype))
    grid = (n["copies"], min(16, math.ceil(items / 256)), 2) if version == "vec" else (n["copies"],)
    kernel, block = f"copy_blocks_{version}_{SUFFIXES[dtype]}", (threads(items, 256),)
    args = (k_cache, v_cache, pairs, elements)
    return Work((Launch("copy_blocks", kernel, args, grid, block),), None)


def paged_attention(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    block_table: Tensor,
    seq_lens: Tensor,
    scale: float,
    max_seq_len: int | None = None,
    *,
    version: str | None = None,
    partition_size: int = PARTITION,
) -> Work:
    """Attention of one query per sequence over its cached tokens: decode.

    Args:
        q: `[num_seqs, num_heads, head_dim]`.
        k_cache, v_cache: the layer's cache.
        block_table: `[num_seqs, max_blocks]` int32.
        seq_lens: `[num_seqs]` int32: cached tokens, the query's own among them. 0 gives zeros.
        scale: of the scores; usually `head_dim ** -0.5`.
        max_seq_len: no sequence is longer. None: what the block table has room for.
        version: "split", "warp" or "naive".
        partition_size: tokens that one block of "split" walks through.

    Returns:
        The shape of `q`.
    """
    version = pick("paged_attention", version, "split", "naive", "warp")
    n, kernel = _attention(
        "paged_attention", q, "num_seqs", k_cache, v_cache, block_table, seq_lens
    )
    out = new(tuple(q.shape), q)
    if not out.numel():
        return Work((), out)
    heads, kv_heads, seqs = n["num_heads"], n["num_kv_heads"], n["num_seqs"]
    paged = (q, k_cache, v_cache, block_table, seq_lens)
    if version != "split" or not are_aligned(q, k_cache, v_cache):
        version = "warp" if version == "split" else version
        args = (out, *paged, kv_heads, n["block_size"], n["max_blocks"], scale)
        grid, block = (heads, seqs), (WARPS_OF_A_BLOCK * WARP,)
        return Work((Launch("paged_attention", kernel.format(version), args, grid, block),), out)

    longest = n["max_blocks"] * n["block_size"] if max_seq_len is None else max_seq_len
    parts = max(1, math.ceil(longest / partition_size))
    partial = (seqs, heads, parts)
    stats = new((*partial, 2), q, torch.float32) if parts > 1 else None
    acc = new((*partial, n["head_dim"]), q, torch.float32) if parts > 1 else None
    sizes = (heads, n["block_size"], n["max_blocks"], partition_size, scale)
    split = Launch(
        "paged_attention",
        kernel.format("split"),
        (out, stats, acc, *paged, *sizes),
        (kv_heads, seqs, parts),
        (WARP * min(heads // kv_heads, 8),),
    )
    if parts == 1:
        return Work((split,), out)
    reduce = Launch(
        "paged_attention",
        kernel.format("reduce"),
        (out, stats, acc, seq_lens, parts, partition_size),
        (heads, seqs),
        (n["head_dim"],),
    )
    return Work((split, reduce), out)


def prefill_attention(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    block_table: Tensor,
    seq_lens: Tensor,
    query_start_loc: Tensor,
    scale: float,
    *,
    version: str | None = None,
) -> Work:
    """Causal attention of a ragged batch of queries over cached tokens: prefill, chunks, decodes.

    Args:
        q: `[num_tokens, num_heads, head_dim]`; sequence `s` owns rows `query_start_loc[s]` to
            `query_start_loc[s + 1] - 1`, its newest tokens, whose keys and values are cached.
        k_cache, v_cache: the layer's cache.
        block_table: `[num_seqs, max_blocks]` int32.
        seq_lens: `[num_seqs]` int32: cached tokens, the queries' own among them.
        query_start_loc: `[num_seqs + 1]` int32, from 0 to num_tokens, not falling.
        scale: of the scores; usually `head_dim ** -0.5`.
        version: "flash", "warp" or "naive".

    Returns:
        The shape of `q`.
    """
    version = pick("prefill_attention", version, "flash", "naive", "warp")
    n, kernel = _attention(
        "prefill_attention", q, "num_tokens", k_cache, v_cache, block_table, seq_lens
    )
    starts = {"query_start_loc": (query_start_loc, str(n["num_seqs"] + 1))}
    match_shapes("prefill_attention", starts)
    match_dtypes("prefill_attention", {"query_start_loc": query_start_loc}, torch.int32)
    out = new(tuple(q.shape), q)
    if not out.numel() or not n["num_seqs"]:
        return Work((), out)
    if version == "flash" and not are_aligned(k_cache, v_cache):
        version = "warp"
    tokens, seqs = n["num_tokens"], n["num_seqs"]
    blocks = {
        "naive": tokens,
        "warp": math.ceil(tokens / WARPS_OF_A_BLOCK),
        "flash": tokens // QUERIES_OF_A_TILE + seqs,  # enough, however the tokens are shared out
    }[version]
    counts = (tokens, seqs) if version == "warp" else (seqs,)
    paged = (q, k_cache, v_cache, block_table, seq_lens, query_start_loc)
    sizes = (*counts, n["num_kv_heads"], n["block_size"], n["max_blocks"], scale)
    grid, block = (blocks, n["num_heads"]), (WARPS_OF_A_BLOCK * WARP,)
    launch = Launch("prefill_attention", kernel.format(version), (out, *paged, *sizes), grid, block)
    return Work((launch,), out)


def _attention(
    op: str,
    q: Tensor,
    rows: str,
    k_cache: Tensor,
    v_cache: Tensor,
    block_table: Tensor,
    seq_lens: Tensor,
) -> tuple[dict[str, int], str]:
    """Sizes, and the kernel's name with a place for its version."""
    shapes = {
        "q": (q, f"{rows} num_heads head_dim"),
        "k_cache": (k_cache, CACHE),
        "v_cache": (v_cache, CACHE),
        "block_table": (block_table, "num_seqs max_blocks"),
        "seq_lens": (seq_lens, "num_seqs"),
    }
    n = match_shapes(op, shapes)
    match_dtypes(op, {"block_table": block_table, "seq_lens": seq_lens}, torch.int32)
    dtype = match_dtypes(op, {"q": q, "k_cache": k_cache, "v_cache": v_cache}, *FLOATS)
    if n["head_dim"] not in HEAD_DIMS:
        raise KernelError(
            f"{op}: head_dim is {n['head_dim']}.",
            expected=" or ".join(map(str, HEAD_DIMS)),
            fix="Add an instance at the end of the kernel's file, or use the torch twin.",
        )
    if n["num_heads"] % max(1, n["num_kv_heads"]):
        raise KernelError(
            f"{op}: {n['num_heads']} query heads share {n['num_kv_heads']} KV heads.",
            expected="a whole number of query heads for each KV head",
        )
    return n, f"{op}_{{}}_{SUFFIXES[dtype]}_d{n['head_dim']}"
