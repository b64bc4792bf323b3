"""The engine on kernels: which operations can be replaced, and attention over block tables.

`kernels="cpu"` and `"cuda"` take the course's own `.cu` files, a mapping takes functions of your
own (chapters 06, 07 and 11). Matrix products and sampling stay with torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor

from tinyvllm_lab.cache.kv import KVCache, PagedKV, Pairs, independent_copies
from tinyvllm_lab.engine.batch import BlockTables
from tinyvllm_lab.engine.config import EngineConfig
from tinyvllm_lab.errors import ConfigError
from tinyvllm_lab.model.llama import LlamaModel, TorchOps

if TYPE_CHECKING:
    from tinyvllm_lab.kernels.cuda.device import EngineStream

Kernels = str | Mapping[str, Callable[..., Any]]
Ops = dict[str, Callable[..., Any]]

MODEL_OPS = tuple(field.name for field in fields(TorchOps))
CACHE_OPS = ("reshape_and_cache", "paged_attention", "prefill_attention", "copy_blocks")


def resolve_kernels(kernels: Kernels, model: LlamaModel, config: EngineConfig) -> tuple[Ops, Ops]:
    """The functions to use instead of torch's: those of the model, and those of the KV cache.

    Where one operation on the cache is replaced, all four are, the others by their torch twins:
    they agree on block tables. An empty dict means that torch does it.

    Args:
        kernels: "torch", "cpu", "cuda", or a mapping from operation to function.
        model: its type and head size must be ones that the kernels were made for.
        config: operations on the cache need paged KV memory.

    Raises:
        ConfigError: `kernels` is unknown, or does not go with the model or the config.
        KernelError: the back end is not usable here.
    """
    if isinstance(kernels, Mapping):
        return _from_mapping(kernels, config)
    if kernels == "torch":
        return {}, {}
    if kernels not in ("cpu", "cuda"):
        raise ConfigError(
            f"kernels is {kernels!r}.",
            "'torch', 'cpu', 'cuda', or a mapping from operation to function",
        )
    _check_paged(f"kernels={kernels!r}", config)
    _check_model(kernels, model)
    from tinyvllm_lab.kernels.ops import op_functions

    ops = op_functions(kernels)
    return {name: ops[name] for name in MODEL_OPS}, {name: ops[name] for name in CACHE_OPS}


def _from_mapping(
    kernels: Mapping[str, Callable[..., Any]], config: EngineConfig
) -> tuple[Ops, Ops]:
    own = {"rms_norm" if name == "rmsnorm" else name: f for name, f in kernels.items()}
    for name, function in own.items():
        if name not in (*MODEL_OPS, *CACHE_OPS):
            known = ", ".join((*MODEL_OPS, *CACHE_OPS))
            raise ConfigError(f"No operation is called {name!r}.", f"one of {known}")
        if not callable(function):
            raise ConfigError(f"The kernel for {name!r} is {function!r}.", "a function")
    cache = {name: f for name, f in own.items() if name in CACHE_OPS}
    if cache:
        _check_paged(f"A kernel for {next(iter(cache))!r}", config)
        from tinyvllm_lab.kernels.ops import op_functions

        twins = op_functions("torch")
        cache = {name: cache.get(name, twins[name]) for name in CACHE_OPS}
    return {name: f for name, f in own.items() if name in MODEL_OPS}, cache


def _check_paged(what: str, config: EngineConfig) -> None:
    if config.use_kv_cache and config.allocator == "paged":
        return
    memory = f"allocator={config.allocator!r}" if config.use_kv_cache else "use_kv_cache=False"
    raise ConfigError(
        f"{what} follows block tables, but the config has {memory}.",
        "use_kv_cache=True and allocator='paged'",
        "Change the config, or pass kernels='torch'.",
    )


def _check_model(kernels: str, model: LlamaModel) -> None:
    from tinyvllm_lab.kernels.cache_launches import HEAD_DIMS
    from tinyvllm_lab.kernels.shapes import FLOATS

    if model.config.head_dim not in HEAD_DIMS:
        raise ConfigError(
            f"No attention kernel is made for the model's head_dim, {model.config.head_dim}.",
            " or ".join(map(str, HEAD_DIMS)),
            "Pass kernels='torch', or add an instance at the end of the kernels' files.",
        )
    if model.dtype not in FLOATS:
        raise ConfigError(
            f"The model's type is {model.dtype}.",
            " or ".join(map(str, FLOATS)),
            "Load the model with dtype='float32' or 'bfloat16'.",
        )
    if not _reaches(kernels, model.device):
        raise ConfigError(
            f"kernels={kernels!r} cannot reach a model on {model.device}.",
            "a model where the kernels run",
            f"Load the model with device={kernels!r}, or pass kernels='torch'.",
        )


def _reaches(kernels: str, device: torch.device) -> bool:
    if kernels == "cpu":
        return device.type == "cpu"
    from tinyvllm_lab.kernels.cuda.device import cuda_device

    if device.type == "cuda":
        return device.index in (None, cuda_device().index)
    return cuda_device().reads_host_memory


def kernel_stream(kernels: Kernels, device: torch.device) -> EngineStream | None:
    """The stream for kernels that PyCUDA launches among torch's operations; None without a GPU.

    Raises:
        KernelError: `kernels` is "cuda", and the GPU cannot be used.
    """
    if kernels == "torch" or (kernels != "cuda" and device.type != "cuda"):
        return None
    from tinyvllm_lab.kernels.backend import why_not_cuda
    from tinyvllm_lab.kernels.cuda.device import EngineStream

    # A learner's own functions may come from elsewhere (Triton), and do without PyCUDA.
    return None if kernels != "cuda" and why_not_cuda() else EngineStream()


class TableBatch(Protocol):
    """What `KernelAttention` asks of a step: a `CachedBatch`, or the buffers of a CUDA graph."""

    slots: Tensor
    num_decodes: int

    @property
    def tables(self) -> BlockTables | None:
        """None where the KV memory is not paged."""


class KernelAttention:
    """An `AttentionBackend` for one step, over paged KV that kernels read and write in place.

    Sequences with one token go through the decode kernel, all others through the prefill kernel.
    Both find their keys and values by the block table: nothing is gathered or padded.

    Args:
        ops: a function for each of `CACHE_OPS`.
        kv: the tensors.
        batch: the step's sequences.

    Raises:
        ConfigError: the KV memory is not paged.
    """

    def __init__(self, ops: Ops, kv: KVCache, batch: TableBatch) -> None:
        if not isinstance(kv, PagedKV) or batch.tables is None:
            raise ConfigError("KernelAttention got no block tables.", "KV memory of kind PagedKV")
        self.ops, self.kv, self.batch = ops, kv, batch
        self.tables = batch.tables

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """See `AttentionBackend.attend`."""
        cache = self.kv.key[layer], self.kv.value[layer]
        self.ops["reshape_and_cache"](k, v, *cache, self.batch.slots)
        n, scale = self.batch.num_decodes, q.shape[-1] ** -0.5
        tables, lens = self.tables.block_tables, self.tables.seq_lens
        parts = []
        if n:
            longest = self.tables.max_decode_len
            paged = (q[:n], *cache, tables[:n], lens[:n], scale, longest)
            parts.append(self.ops["paged_attention"](*paged))
        if len(lens) > n:
            ragged = (q[n:], *cache, tables[n:], lens[n:], self.tables.query_start_loc, scale)
            parts.append(self.ops["prefill_attention"](*ragged))
        # [num_tokens, num_heads, head_dim]
        return parts[0] if len(parts) == 1 else torch.cat(parts)


def copy_blocks(ops: Ops, kv: PagedKV, pairs: Pairs) -> None:
    """Copy-on-write by kernel: (source block, target block), as if done one after the other."""
    for sources, targets in independent_copies(pairs):
        tensor = torch.tensor(
            [sources, targets], device=kv.key.device
        ).T.contiguous()  # [copies, 2]
        for key, value in zip(kv.key, kv.value, strict=True):
            ops["copy_blocks"](key, value, tensor)
