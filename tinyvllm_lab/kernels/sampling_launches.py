"""Launches of the operations that turn logits into tokens (see `launches`)."""

import math

import torch
from torch import Tensor

from tinyvllm_lab.kernels.shapes import FLOATS, match_dtypes, match_shapes
from tinyvllm_lab.kernels.work import PER_THREAD, SUFFIXES, Launch, Work, new, pick, threads

WIDE_ROW = 32768  # from here on several blocks share a row of logits


def argmax(logits: Tensor, *, version: str | None = None) -> Work:
    """The likeliest token of each row: `[rows, vocab]` -> `[rows]` int32.

    Of equal logits the lowest id wins; NaN never wins; a row without a winner gives 0.
    """
    n = match_shapes("argmax", {"logits": (logits, "rows vocab")})
    rows, vocab = n["rows"], n["vocab"]
    version = pick(
        "argmax",
        version or ("split" if vocab >= WIDE_ROW else "warp"),
        "split",
        "naive",
        "tree",
        "warp",
    )
    suffix = SUFFIXES[match_dtypes("argmax", {"logits": logits}, *FLOATS)]
    out = new((rows,), logits, torch.int32)
    if not rows:
        return Work((), out)
    kernel, block = f"argmax_{version}_{suffix}", threads(vocab // PER_THREAD)
    if version == "split":
        keys = torch.zeros(rows, dtype=torch.int64, device=logits.device)
        blocks = max(1, math.ceil(vocab / 8192))
        split = Launch(
            "argmax", kernel, (keys, logits, vocab), (blocks, rows), (threads(vocab, 256),)
        )
        unpack = Launch(
            "argmax", "argmax_unpack", (out, keys, rows), (math.ceil(rows / 256),), (256,)
        )
        return Work((split, unpack), out)
    if version == "naive":
        launch = Launch(
            "argmax", kernel, (out, logits, rows, vocab), (math.ceil(rows / 256),), (256,)
        )
    else:
        shared = 8 * block if version == "tree" else 0
        launch = Launch("argmax", kernel, (out, logits, vocab), (rows,), (block,), shared)
    return Work((launch,), out)


def sample_top_k_top_p(
    logits: Tensor,
    temperature: Tensor,
    top_k: Tensor,
    top_p: Tensor,
    uniform: Tensor,
    *,
    version: str | None = None,
) -> Work:
    """Draw a token from each row of logits, from its likeliest ones only.

    The kept tokens stand end to end in the order of their ids, each as long as its probability; the
    one that covers the share `uniform` of the whole length is drawn. Equal logits are kept or
    dropped together.

    Args:
        logits: `[rows, vocab]`.
        temperature: `[rows]` float32; 0 takes the likeliest token, of equals the lowest id.
        top_k: `[rows]` int32: keep the k likeliest; 0 keeps all.
        top_p: `[rows]` float32: of those, keep the likeliest ones whose probabilities reach p.
        uniform: `[rows]` float32 in [0, 1): the random numbers.
        version: "radix", "bisect" or "rounds".

    Returns:
        `[rows]` int32.
    """
    op = "sample_top_k_top_p"
    version = pick(op, version, "radix", "rounds", "bisect")
    floats = {"temperature": temperature, "top_p": top_p, "uniform": uniform}
    shapes = {name: (tensor, "rows") for name, tensor in (floats | {"top_k": top_k}).items()}
    n = match_shapes(op, {"logits": (logits, "rows vocab")} | shapes)
    match_dtypes(op, floats, torch.float32)
    match_dtypes(op, {"top_k": top_k}, torch.int32)
    suffix = SUFFIXES[match_dtypes(op, {"logits": logits}, *FLOATS)]
    out = new((n["rows"],), logits, torch.int32)
    if not n["rows"]:
        return Work((), out)
    args = (out, logits, temperature, top_k, top_p, uniform, n["vocab"])
    block = (threads(n["vocab"] // PER_THREAD),)
    launch = Launch("sampling", f"sample_{version}_{suffix}", args, (n["rows"],), block)
    return Work((launch,), out)
