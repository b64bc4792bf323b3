"""From tensors to kernel launches: which kernel, how many blocks, how many threads.

One function for each operation, here and in `cache_launches`, `sampling_launches`. Each checks
shapes and types, allocates the result and returns a `Work`, which `tinyvllm_lab.kernels.ops`, the
x-ray and the tests run. `version` names the rung of the ladder in the kernel's file; without it you
get the top one. All of them raise `KernelError` for tensors that do not fit.
"""

import math
from typing import Any

import torch
from torch import Tensor

from tinyvllm_lab.kernels.shapes import FLOATS, match_dtypes, match_shapes, same_shape
from tinyvllm_lab.kernels.work import (
    PER_THREAD,
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


def embedding(token_ids: Tensor, weight: Tensor, *, version: str | None = None) -> Work:
    """Rows of a table: `[num_tokens]` int64, `[vocab, dim]` -> `[num_tokens, dim]`.

    An id outside the table gives a row of zeros.
    """
    version = pick("embedding", version, "vec", "naive", "row")
    shapes = {"token_ids": (token_ids, "num_tokens"), "weight": (weight, "vocab dim")}
    n = match_shapes("embedding", shapes)
    match_dtypes("embedding", {"token_ids": token_ids}, torch.int64)
    suffix = SUFFIXES[match_dtypes("embedding", {"weight": weight}, *FLOATS)]
    tokens, vocab, dim = n["num_tokens"], n["vocab"], n["dim"]
    out = new((tokens, dim), weight)
    if not out.numel():
        return Work((), out)
    args: tuple[Any, ...] = (out, weight, token_ids, dim, vocab)
    grid, block = tokens, threads(dim // (pack_size(weight.dtype) if version == "vec" else 1), 256)
    if version == "naive":
        args, grid, block = (
            (out, weight, token_ids, tokens, dim, vocab),
            math.ceil(tokens / 256),
            256,
        )
    kernel = f"embedding_{version}_{suffix}"
    return Work((Launch("embedding", kernel, args, (grid,), (block,)),), out)


def rms_norm(x: Tensor, weight: Tensor, eps: float, *, version: str | None = None) -> Work:
    """Every row scaled to a root mean square of 1, times the weight.

    `[..., dim]`, `[dim]` -> the shape of `x`.
    """
    version = pick("rms_norm", version, "vec", "naive", "tree", "warp")
    dim = match_shapes("rms_norm", {"x": (x, "... dim"), "weight": (weight, "dim")})["dim"]
    suffix = SUFFIXES[match_dtypes("rms_norm", {"x": x, "weight": weight}, *FLOATS)]
    out = new(tuple(x.shape), x)
    if not out.numel():
        return Work((), out)
    rows = x.numel() // dim
    args: tuple[Any, ...] = (out, x, weight, dim, eps)
    grid, block = rows, threads(dim // PER_THREAD)
    if version == "naive":
        args, grid, block = (out, x, weight, rows, dim, eps), math.ceil(rows / 256), 256
    shared = 4 * block if version == "tree" else 0
    launch = Launch("rmsnorm", f"rmsnorm_{version}_{suffix}", args, (grid,), (block,), shared)
    return Work((launch,), out)


def add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> Work:
    """`residual += x`, in place, and the norm of the sum: one pass over memory instead of two.

    `[..., dim]` twice, `[dim]` -> (norm, residual).
    """
    named = {"x": x, "residual": residual, "weight": weight}
    shapes = {"x": (x, "... dim"), "weight": (weight, "dim")}
    dim = match_shapes("add_rms_norm", shapes)["dim"]
    same_shape("add_rms_norm", {"x": x, "residual": residual})
    suffix = SUFFIXES[match_dtypes("add_rms_norm", named, *FLOATS)]
    out = new(tuple(x.shape), x)
    if not out.numel():
        return Work((), (out, residual))
    block = threads(dim // PER_THREAD)
    args = (out, residual, x, weight, dim, eps)
    launch = Launch("rmsnorm", f"add_rmsnorm_vec_{suffix}", args, (x.numel() // dim,), (block,))
    return Work((launch,), (out, residual))


def rope(
    q: Tensor,
    k: Tensor,
    cos: Tensor,
    sin: Tensor,
    positions: Tensor | None = None,
    *,
    version: str | None = None,
) -> Work:
    """Turn queries and keys by their positions, in place (half-split pairs).

    Args:
        q, k: `[num_tokens, num_heads, head_dim]`, `[num_tokens, num_kv_heads, head_dim]`.
        cos, sin: float32 `[rows, head_dim / 2]`: scaling such as Llama 3's is already in them.
        positions: `[num_tokens]` int64: which row of the tables a token takes; None: row i for
            token i.
        version: "vec", "fused" or "naive".

    Returns:
        (q, k), the same tensors.
    """
    version = pick("rope", version, "vec", "naive", "fused")
    shapes = {"q": (q, "num_tokens q_heads head_dim"), "k": (k, "num_tokens k_heads head_dim")}
    n = match_shapes("rope", shapes)
    half = str(n["head_dim"] // 2)
    rows = "rows" if positions is not None else str(n["num_tokens"])
    match_shapes("rope", {"cos": (cos, f"{rows} {half}"), "sin": (sin, f"{rows} {half}")})
    match_dtypes("rope", {"cos": cos, "sin": sin}, torch.float32)
    if positions is not None:
        match_shapes("rope", {"positions": (positions, str(n["num_tokens"]))})
        match_dtypes("rope", {"positions": positions}, torch.int64)
    dtype = match_dtypes("rope", {"q": q, "k": k}, *FLOATS)
    if not q.numel() + k.numel():
        return Work((), (q, k))
    if version == "vec" and (int(half) % pack_size(dtype) or not are_aligned(q, k, cos, sin)):
        version = "fused"
    return Work(_rope_launches(q, k, positions, cos, sin, version), (q, k))


def _rope_launches(
    q: Tensor, k: Tensor, positions: Tensor | None, cos: Tensor, sin: Tensor, version: str
) -> tuple[Launch, ...]:
    kernel = f"rope_{version}_{SUFFIXES[q.dtype]}"
    (tokens, q_heads, head_dim), k_heads, half = q.shape, k.shape[1], q.shape[2] // 2
    if version == "naive":
        return tuple(
            Launch(
                "rope",
                kernel,
                (x, positions, cos, sin, x.shape[1], head_dim),
                (tokens, x.shape[1]),
                (threads(half),),
            )
            for x in (q, k)
            if x.numel()
        )
    items = (q_heads + k_heads) * half // (pack_size(q.dtype) if version == "vec" else 1)
    args = (q, k, positions, cos, sin, q_heads, k_heads, head_dim)
    return (Launch("rope", kernel, args, (tokens,), (threads(items, 256),)),)


def silu_mul(gate: Tensor, up: Tensor, *, version: str | None = None) -> Work:
    """`silu(gate) * up`, element by element: two tensors of one shape -> a third."""
    version = pick("silu_mul", version, "vec", "naive", "fused")
    same_shape("silu_mul", {"gate": gate, "up": up})
    suffix = SUFFIXES[match_dtypes("silu_mul", {"gate": gate, "up": up}, *FLOATS)]
    out, count = new(tuple(gate.shape), gate), gate.numel()
    if not count:
        return Work((), out)
    items = count if version != "vec" else math.ceil(count / pack_size(gate.dtype))
    grid, block = (math.ceil(items / 256),), (threads(items, 256),)
    if version == "naive":
        silu = Launch("swiglu", f"silu_naive_{suffix}", (out, gate, count), grid, block)
        mul = Launch("swiglu", f"mul_naive_{suffix}", (out, out, up, count), grid, block)
        return Work((silu, mul), out)
    kernel = f"silu_mul_{version}_{suffix}"
    return Work((Launch("swiglu", kernel, (out, gate, up, count), grid, block),), out)


def softmax(x: Tensor, *, version: str | None = None) -> Work:
    """Softmax of every row: `[rows, cols]` -> the same shape."""
    version = pick("softmax", version, "online", "naive", "tree")
    n = match_shapes("softmax", {"x": (x, "rows cols")})
    suffix = SUFFIXES[match_dtypes("softmax", {"x": x}, *FLOATS)]
    out = new(tuple(x.shape), x)
    if not out.numel():
        return Work((), out)
    rows, cols = n["rows"], n["cols"]
    args: tuple[Any, ...] = (out, x, cols)
    grid, block = rows, threads(cols // PER_THREAD)
    if version == "naive":
        args, grid, block = (out, x, rows, cols), math.ceil(rows / 256), 256
    shared = 4 * block if version == "tree" else 0
    launch = Launch("softmax", f"softmax_{version}_{suffix}", args, (grid,), (block,), shared)
    return Work((launch,), out)


def matmul(a: Tensor, weight: Tensor, *, version: str | None = None) -> Work:
    """`a @ weight.T`, the layout of a linear layer: `[m, k]`, `[n, k]` -> `[m, n]`."""
    version = pick("matmul", version, "register", "naive", "tiled")
    sizes = match_shapes("matmul", {"a": (a, "m k"), "weight": (weight, "n k")})
    suffix = SUFFIXES[match_dtypes("matmul", {"a": a, "weight": weight}, *FLOATS)]
    m, n, k = sizes["m"], sizes["n"], sizes["k"]
    out = new((m, n), a)
    if not out.numel():
        return Work((), out)
    tile, block = (64, (256,)) if version == "register" else (16, (16, 16))
    grid = (math.ceil(n / tile), math.ceil(m / tile))
    args = (out, a, weight, m, n, k)
    return Work((Launch("matmul", f"matmul_{version}_{suffix}", args, grid, block),), out)


def gemv(x: Tensor, weight: Tensor, *, version: str | None = None) -> Work:
    """The same product for few rows, as in decode: `[rows, k]`, `[n, k]` -> `[rows, n]`."""
    version = pick("gemv", version, "vec", "naive", "warp")
    sizes = match_shapes("gemv", {"x": (x, "rows k"), "weight": (weight, "n k")})
    suffix = SUFFIXES[match_dtypes("gemv", {"x": x, "weight": weight}, *FLOATS)]
    rows, n, k = sizes["rows"], sizes["n"], sizes["k"]
    out = new((rows, n), x)
    if not out.numel():
        return Work((), out)
    lanes = n if version == "naive" else n * WARP
    args = (out, x, weight, n, k)
    grid = (math.ceil(lanes / 128), rows)
    return Work((Launch("gemv", f"gemv_{version}_{suffix}", args, grid, (128,)),), out)
