"""The kernels at the sizes of Llama 3.2 1B: inputs, float64 reference, torch's own, and the floor.

Small, odd and empty sizes are the business of `tests/kernels/test_ops_*.py`, which `make gpu-check`
runs on the card as they stand. Here is one size for each operation at which time means something.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from ops_harness import TOLERANCES, randn
from paged_cases import Paged, attention_oracle, paged
from test_ops_dense import LLAMA3, rms_norm_oracle, rope_oracle
from torch import Tensor

from tinyvllm_lab.model.layers import inverse_frequencies, rope, rope_tables

LADDERS = {
    "embedding": ("naive", "row", "vec"),
    "rms_norm": ("naive", "tree", "warp", "vec"),
    "add_rms_norm": (None,),
    "rope": ("naive", "fused", "vec"),
    "silu_mul": ("naive", "fused", "vec"),
    "softmax": ("naive", "tree", "online"),
    "matmul": ("naive", "tiled", "register"),
    "gemv": ("naive", "warp", "vec"),
    "reshape_and_cache": ("naive", "row", "vec"),
    "copy_blocks": ("naive", "vec"),
    "paged_attention": ("naive", "warp", "split"),
    "prefill_attention": ("naive", "warp", "flash"),
    "argmax": ("naive", "tree", "warp", "split"),
    "sample_top_k_top_p": ("rounds", "bisect", "radix"),
}


@dataclass(frozen=True)
class Sizes:
    """Of the model (those of Llama 3.2 1B), and of a step."""

    hidden: int = 2048
    wide: int = 8192
    vocab: int = 128256
    heads: int = 32
    kv_heads: int = 8
    head_dim: int = 64
    tokens: int = 512
    sequences: int = 16
    context: int = 2048
    prompt: int = 1024


SMALL = Sizes(64, 96, 300, 4, 2, 32, tokens=5, sequences=2, context=40, prompt=9)


@dataclass
class Case:
    """One operation on one set of inputs, for every version of its ladder.

    Attributes:
        args: of the operation, on the device.
        sizes: what the report says about the shape.
        expected: float64; computed from `args` as they were at first.
        num_bytes: that must be moved at least: inputs once, results once.
        flops: that must be done.
        torchs: torch's way to the same, to compare the time with, and what it is.
        pick: what is compared, of the operation's result.
        exact: no rounding is excused.
        looser: version -> relative tolerance, where it rounds more often than the others.
    """

    args: tuple[Any, ...]
    sizes: dict[str, int]
    expected: Tensor
    num_bytes: float
    flops: float
    torchs: tuple[str, Callable[[], Any]]
    pick: Callable[[Any], Tensor] = field(default=lambda result: result)
    exact: bool = False
    looser: dict[str, float] = field(default_factory=dict)

    def share_of_tolerance(self, result: Any, version: str | None) -> float:
        """The largest error of a result, measured in what the tests allow; at most 1 is equal."""
        actual, expected = self.pick(result).cpu(), self.expected.cpu().double()
        if self.exact:
            return 0.0 if torch.equal(actual.double(), expected) else float("inf")
        allowed = TOLERANCES[actual.dtype]
        rtol = max(allowed["rtol"], self.looser.get(version or "", 0.0))
        if actual.dtype is torch.bfloat16:  # a sum in float32 may tip one of millions of roundings
            rtol += TOLERANCES[torch.float32]["rtol"]
        error = (actual.double() - expected).abs() / (allowed["atol"] + rtol * expected.abs())
        return float(error.nan_to_num(torch.inf).max())


class Maker:
    """Makes a `Case` by the operation's name.

    Args:
        sizes: of model and step.
        dtype: of the tensors.
        device: where the kernels reach them.
    """

    def __init__(self, sizes: Sizes, dtype: torch.dtype, device: str) -> None:
        self.n, self.dtype, self.device = sizes, dtype, device

    def cases(self) -> Iterator[tuple[str, Callable[[], Case]]]:
        """Operation -> what makes its case; large tensors exist for one case at a time."""
        for op in LADDERS:
            yield op, getattr(self, op)

    def _random(self, *shape: int, seed: int = 0, scale: float = 1.0) -> Tensor:
        return (scale * randn(*shape, seed=seed)).to(self.dtype).to(self.device)

    def embedding(self) -> Case:
        rows = min(self.n.vocab, 32768)  # beyond any L2 cache; more would only take time to make
        table = self._random(rows, self.n.hidden)
        ids = torch.arange(self.n.tokens, device=self.device) * 37 % rows
        moved = 2 * self.n.tokens * self.n.hidden * table.itemsize + ids.nbytes
        sizes = {"tokens": self.n.tokens, "dim": self.n.hidden}
        theirs = ("F.embedding", lambda: F.embedding(ids, table))
        return Case((ids, table), sizes, table[ids].double(), moved, 0, theirs, exact=True)

    def rms_norm(self) -> Case:
        x, weight = self._random(self.n.tokens, self.n.hidden), self._random(self.n.hidden, seed=1)
        moved = 2 * x.nbytes + weight.nbytes
        theirs = ("F.rms_norm", lambda: F.rms_norm(x, weight.shape, weight, 1e-5))
        expected = rms_norm_oracle(x, weight, 1e-5)
        return Case((x, weight, 1e-5), _rows(x), expected, moved, 4 * x.numel(), theirs)

    def add_rms_norm(self) -> Case:
        x, weight = self._random(self.n.tokens, self.n.hidden), self._random(self.n.hidden, seed=1)
        residual = self._random(self.n.tokens, self.n.hidden, seed=2)
        total = (x.double() + residual.double()).to(self.dtype)
        theirs = ("add, F.rms_norm", lambda: F.rms_norm(residual + x, weight.shape, weight, 1e-5))
        return Case(
            (x, residual, weight, 1e-5),
            _rows(x),
            rms_norm_oracle(total, weight, 1e-5),
            4 * x.nbytes + weight.nbytes,
            5 * x.numel(),
            theirs,
            pick=lambda result: result[0],
        )

    def rope(self) -> Case:
        n = self.n
        q = self._random(n.tokens, n.heads, n.head_dim)
        k = self._random(n.tokens, n.kv_heads, n.head_dim, seed=1)
        frequencies = inverse_frequencies(n.head_dim, LLAMA3)
        tables = rope_tables(torch.arange(n.tokens), frequencies)
        cos, sin = (table.to(self.device) for table in tables)
        moved = 2 * (q.nbytes + k.nbytes) + cos.nbytes + sin.nbytes
        return Case(
            (q, k, cos, sin),
            {"tokens": n.tokens, "heads": n.heads + n.kv_heads, "head_dim": n.head_dim},
            rope_oracle(q, cos, sin),
            moved,
            3 * (q.numel() + k.numel()),
            ("layers.rope", lambda: rope(q, k, cos, sin)),
            pick=lambda result: result[0],
        )

    def silu_mul(self) -> Case:
        gate = self._random(self.n.tokens, self.n.wide)
        up = self._random(self.n.tokens, self.n.wide, seed=1)
        wanted = gate.double() * torch.sigmoid(gate.double()) * up.double()
        theirs = ("F.silu, mul", lambda: F.silu(gate) * up)
        return Case(
            (gate, up),
            _rows(gate),
            wanted,
            3 * gate.nbytes,
            5 * gate.numel(),
            theirs,
            # Two kernels: what lies between them is rounded too.
            looser={"naive": 2**-7} if self.dtype is torch.bfloat16 else {},
        )

    def softmax(self) -> Case:
        x = self._random(self.n.tokens, self.n.context, scale=5.0)
        theirs = ("torch.softmax", lambda: x.softmax(dim=-1))
        expected = x.double().softmax(dim=-1)
        return Case((x,), _rows(x), expected, 2 * x.nbytes, 5 * x.numel(), theirs)

    def matmul(self) -> Case:
        return self._product(self.n.tokens)

    def gemv(self) -> Case:
        return self._product(1)

    def _product(self, rows: int) -> Case:
        k, n = self.n.hidden, self.n.wide
        a, weight = self._random(rows, k), self._random(n, k, seed=1, scale=k**-0.5)
        moved = a.nbytes + weight.nbytes + rows * n * a.itemsize
        expected = a.double() @ weight.double().T
        theirs = ("F.linear", lambda: F.linear(a, weight))
        sizes = {"m": rows, "n": n, "k": k}
        return Case((a, weight), sizes, expected, moved, 2 * rows * n * k, theirs)

    def reshape_and_cache(self) -> Case:
        n, block = self.n, 16
        k, v = (self._random(n.tokens, n.kv_heads, n.head_dim, seed=s) for s in (0, 1))
        shape = (2 * -(-n.tokens // block), block, n.kv_heads, n.head_dim)
        k_cache, v_cache = self._random(*shape, seed=2), self._random(*shape, seed=3)
        slots = torch.randperm(shape[0] * block, generator=torch.Generator().manual_seed(0))
        slots = slots[: n.tokens].to(self.device)
        expected = k_cache.double().flatten(0, 1).index_copy(0, slots, k.double())

        def torchs() -> None:
            k_cache.flatten(0, 1).index_copy_(0, slots, k)
            v_cache.flatten(0, 1).index_copy_(0, slots, v)

        return Case(
            (k, v, k_cache, v_cache, slots),
            {"tokens": n.tokens, "width": n.kv_heads * n.head_dim},
            expected,
            2 * (k.nbytes + v.nbytes) + slots.nbytes,
            0,
            ("index_copy_", torchs),
            pick=lambda _: k_cache.flatten(0, 1),
            exact=True,
        )

    def copy_blocks(self) -> Case:
        n, block, copies = self.n, 16, 4 * self.n.sequences
        shape = (2 * copies, block, n.kv_heads, n.head_dim)
        k_cache, v_cache = self._random(*shape), self._random(*shape, seed=1)
        sources = torch.arange(copies, device=self.device)
        pairs = torch.stack((sources, sources + copies), dim=1)
        expected = k_cache.double()
        expected[copies:] = expected[:copies]

        def torchs() -> None:
            k_cache[copies:] = k_cache[sources]
            v_cache[copies:] = v_cache[sources]

        return Case(
            (k_cache, v_cache, pairs),
            {"copies": copies, "block_size": block, "width": n.kv_heads * n.head_dim},
            expected,
            k_cache.nbytes + v_cache.nbytes,
            0,
            ("indexing", torchs),
            pick=lambda _: k_cache,
            exact=True,
        )

    def paged_attention(self) -> Case:
        n = self.n
        case = self._paged([n.context] * n.sequences, n.sequences)
        args = [t.to(self.device) for t in _tensors(case)]
        keys, values = (self._stacked(x) for x in (case.keys, case.values))
        q = args[0][:, :, None]  # [sequences, heads, 1, head_dim]
        moved = 2 * keys.nbytes + 2 * q.nbytes + args[3].nbytes
        return Case(
            (*args, case.scale),
            {"sequences": n.sequences, "context": n.context, **self._heads()},
            attention_oracle(case, [1] * n.sequences),
            moved,
            4 * n.sequences * n.context * n.heads * n.head_dim,
            ("SDPA, contiguous", lambda: _sdpa(q, keys, values, causal=False)),
        )

    def prefill_attention(self) -> Case:
        n = self.n
        case = self._paged([n.prompt], n.prompt)
        args = [t.to(self.device) for t in _tensors(case)]
        starts = torch.tensor([0, n.prompt], dtype=torch.int32, device=self.device)
        keys, values = (self._stacked(x) for x in (case.keys, case.values))
        q = args[0].transpose(0, 1)[None]  # [1, heads, prompt, head_dim]
        return Case(
            (*args, starts, case.scale),
            {"prompt": n.prompt, **self._heads()},
            attention_oracle(case, [n.prompt]),
            2 * keys.nbytes + 2 * q.nbytes,
            2 * n.prompt * (n.prompt + 1) * n.heads * n.head_dim,
            ("SDPA, contiguous", lambda: _sdpa(q, keys, values, causal=True)),
        )

    def argmax(self) -> Case:
        logits = self._random(self.n.sequences, self.n.vocab)
        expected = torch.tensor([row.index(max(row)) for row in logits.tolist()])
        theirs = ("torch.argmax", lambda: logits.argmax(dim=-1))
        sizes = _rows(logits)
        return Case((logits,), sizes, expected, logits.nbytes, 0, theirs, exact=True)

    def sample_top_k_top_p(self) -> Case:
        """Exact although it draws: with top-k 50 of well separated logits nothing lies near."""
        rows, vocab = self.n.sequences, self.n.vocab
        logits = self._random(rows, vocab, scale=3.0)
        full = {"dtype": torch.float32, "device": self.device}
        temperature, top_p = torch.full((rows,), 0.8, **full), torch.full((rows,), 0.9, **full)
        top_k = torch.full((rows,), 50, dtype=torch.int32, device=self.device)
        uniform = (torch.arange(rows, **full) + 0.5) / rows
        args = (logits, temperature, top_k, top_p, uniform)
        # What the kernel may draw is decided by the tests' own rule: see `drawn_by_the_rule`.
        expected = torch.zeros(rows, dtype=torch.float64)
        theirs = ("topk, multinomial", lambda: _draw_by_torch(logits))
        return Case(args, _rows(logits), expected, logits.nbytes, 0, theirs)

    def _paged(self, lengths: list[int], queries: int) -> Paged:
        n = self.n
        group = n.heads // n.kv_heads
        return paged(lengths, group, n.head_dim, 16, self.dtype, queries, kv_heads=n.kv_heads)

    def _stacked(self, parts: list[Tensor]) -> Tensor:
        """`[sequences, kv_heads, context, head_dim]`."""
        return torch.stack(parts).transpose(1, 2).contiguous().to(self.device)

    def _heads(self) -> dict[str, int]:
        return {"heads": self.n.heads, "kv_heads": self.n.kv_heads, "head_dim": self.n.head_dim}


def drawn_by_the_rule(case: Case, tokens: Tensor) -> float:
    """0 if every token is one that the definition, in float64, allows; else infinity."""
    from test_ops_sampling import assert_drawn

    columns = [column.tolist() for column in case.args[1:]]
    try:
        for token, row, *rule in zip(tokens.tolist(), case.args[0].cpu(), *columns, strict=True):
            assert_drawn(token, row.float(), *rule)
    except AssertionError:
        return float("inf")
    return 0.0


def _rows(x: Tensor) -> dict[str, int]:
    return {"rows": x.shape[0], "cols": x.shape[1]}


def _tensors(case: Paged) -> tuple[Tensor, ...]:
    return case.q, case.k_cache, case.v_cache, case.block_table, case.seq_lens


def _sdpa(q: Tensor, keys: Tensor, values: Tensor, causal: bool) -> Tensor:
    return F.scaled_dot_product_attention(q, keys, values, is_causal=causal, enable_gqa=True)


def _draw_by_torch(logits: Tensor) -> Tensor:
    best = (logits.float() / 0.8).topk(min(50, logits.shape[1]))
    return best.indices.gather(1, best.values.softmax(dim=-1).multinomial(1))
