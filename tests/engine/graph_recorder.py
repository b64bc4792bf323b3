"""A CUDA graph without a GPU: what was queued is done again, with the very same numbers.

Torch's operations are recorded by a dispatch mode, the course's kernels at their launch. A replay
calls each again on the recorded tensors, and writes what comes out where the recording had it: so,
as on a GPU, whatever Python computed while recording (sizes, scalars, launch geometry, values read
from the host) stays as it was. To read a value back while recording is an error, as it is there.
"""

from collections.abc import Callable
from functools import partial
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from tinyvllm_lab.kernels.module import Function

READS_BACK = {torch.ops.aten._local_scalar_dense.default, torch.ops.aten.nonzero.default}


class RecordedGraph:
    """Calls in order; `output` is the tensor that the last one made."""

    def __init__(self) -> None:
        self.calls: list[tuple[Callable[[], Any], list[Tensor]]] = []
        self.output = torch.empty(0)
        self.replays = 0

    def replay(self) -> None:
        self.replays += 1
        for call, kept in self.calls:
            for old, new in zip(kept, tensors(call()), strict=True):
                if old.data_ptr() != new.data_ptr():  # else a view, or done in place
                    old.copy_(new)


class RecordingMode(TorchDispatchMode):
    def __init__(self, graph: RecordedGraph) -> None:
        super().__init__()
        self.graph = graph

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func in READS_BACK:
            refuse()
        call = partial(func, *args, **(kwargs or {}))
        result = call()
        self.graph.calls.append((call, tensors(result)))
        return result


class Recorder:
    """A `GraphRecorder`. `graphs` are those captured, in order."""

    def __init__(self) -> None:
        self.graphs: list[RecordedGraph] = []

    def capture(self, run: Callable[[], Tensor]) -> RecordedGraph:
        graph = RecordedGraph()
        launch = Function.__call__

        def record_launch(*args: Any, **geometry: Any) -> None:
            graph.calls.append((partial(launch, *args, **geometry), []))
            launch(*args, **geometry)

        with (
            mock.patch.object(Function, "__call__", record_launch),
            mock.patch.object(Tensor, "tolist", refuse),
            RecordingMode(graph),
        ):
            graph.output = run()
        graph.output.fill_(torch.nan)  # a capture computes nothing
        self.graphs.append(graph)
        return graph


def refuse(*_: Any) -> None:
    raise RuntimeError("operation not permitted when stream is capturing")


def tensors(result: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(result) if isinstance(leaf, Tensor)]
