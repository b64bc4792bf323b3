"""The GPU and its primary context, which PyCUDA and torch share.

Torch works in the device's *primary* context. A context of our own (what `pycuda.autoinit` makes)
could not see torch's tensors, so we retain the primary one. A context is current for one OS thread
at a time: each launch makes sure that it is current in the thread that calls.
"""

import functools
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tinyvllm_lab.errors import KernelError

_this_thread = threading.local()
_NON_BLOCKING = 1  # CU_STREAM_NON_BLOCKING of cuda.h; PyCUDA has no name for it
_idle_streams: list[Any] = []


@dataclass(frozen=True)
class CudaDevice:
    """One GPU.

    Attributes:
        index: its number, as in "cuda:0".
        context: its primary context.
        capability: compute capability, as 10 * major + minor.
        reads_host_memory: whether kernels reach ordinary CPU memory through the host's own page
            tables (Grace Hopper; also the driver of our tests).
    """

    index: int
    context: Any
    capability: int
    reads_host_memory: bool

    @contextmanager
    def current(self) -> Iterator[None]:
        """Make the context current in this thread, unless it is already."""
        if getattr(_this_thread, "depth", 0):
            yield
            return
        self.context.push()
        _this_thread.depth = 1
        try:
            yield
        finally:
            _this_thread.depth = 0
            self.context.pop()


def _torch_with_cuda() -> Any:
    """Torch, if the program uses it and it sees a GPU; else None."""
    torch = sys.modules.get("torch")
    return torch if torch is not None and torch.cuda.is_available() else None


@functools.cache
def cuda_device() -> CudaDevice:
    """Torch's current GPU (or the first one), with its primary context retained.

    Raises:
        KernelError: no PyCUDA, no driver or no GPU.
    """
    from tinyvllm_lab.kernels.backend import why_not_cuda

    problem = why_not_cuda()
    if problem:
        raise KernelError(f"The GPU cannot be used: {problem}")
    import pycuda.driver as driver

    torch = _torch_with_cuda()
    if torch:
        torch.cuda.init()
    index = torch.cuda.current_device() if torch else 0
    device = driver.Device(index)
    major, minor = device.compute_capability()
    coherent = driver.device_attribute.PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES
    return CudaDevice(
        index,
        device.retain_primary_context(),
        10 * major + minor,
        bool(device.get_attribute(coherent)),
    )


class EngineStream:
    """One stream for our launches and for torch's work: the engine's thread works in it.

    PyCUDA cannot wrap a stream of torch's, so the stream is PyCUDA's, and torch wraps it. It is a
    non-blocking one: work on CUDA's default stream, by whatever thread, would invalidate the
    capture of a CUDA graph on a stream that waits for it by itself.

    Raises:
        KernelError: no GPU.
    """

    def __init__(self) -> None:
        self.device = cuda_device()
        self._stream: Any = self._take_stream()
        torch = _torch_with_cuda()
        self._torch_stream = (
            torch.cuda.ExternalStream(self._stream.handle, device=self.device.index)
            if torch
            else None
        )

    @contextmanager
    def entered(self) -> Iterator[Any]:
        """Work in it, in this thread: launches with `stream=None`, and torch's operations.

        It begins after what torch's current stream has queued so far, and that one goes on after
        what was queued here.

        Yields:
            the `pycuda.driver.Stream`.
        """
        with self.device.current(), self._as_torchs_stream():
            before = getattr(_this_thread, "stream", None)
            _this_thread.stream = self._stream
            try:
                yield self._stream
            finally:
                _this_thread.stream = before

    def synchronize(self) -> None:
        """Wait until all that was queued is done."""
        with self.device.current():
            self._stream.synchronize()

    def close(self) -> None:
        """Wait for the stream, and leave it to the next `EngineStream`. Safe to call twice.

        For each stream that cuBLAS has worked in, torch keeps a workspace (32 MiB on Hopper):
        there should not be a new stream for each engine (pytorch/pytorch issue 99196).
        """
        if self._stream is not None:
            self.synchronize()
            _idle_streams.append(self._stream)
            self._stream = self._torch_stream = None

    def _take_stream(self) -> Any:
        import pycuda.driver as driver

        try:
            return _idle_streams.pop()
        except IndexError:
            with self.device.current():
                return driver.Stream(_NON_BLOCKING)

    @contextmanager
    def _as_torchs_stream(self) -> Iterator[None]:
        torch, mine = _torch_with_cuda(), self._torch_stream
        if mine is None:
            yield
            return
        outer = torch.cuda.current_stream(self.device.index)
        mine.wait_stream(outer)
        try:
            with torch.cuda.stream(mine):
                yield
        finally:
            outer.wait_stream(mine)


@contextmanager
def engine_stream() -> Iterator[Any]:
    """An `EngineStream` for the time of a `with`; waits for its work at the end.

    Yields:
        the `pycuda.driver.Stream`.

    Raises:
        KernelError: no GPU.
    """
    stream = EngineStream()
    try:
        with stream.entered() as handle:
            yield handle
    finally:
        stream.close()


def default_stream() -> Any:
    """The `EngineStream` that this thread works in, or None: CUDA's default stream, torch's too.

    Raises:
        KernelError: torch works in yet another stream: the launch could overtake its operations.
    """
    stream, torch = getattr(_this_thread, "stream", None), sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        handle = stream.handle if stream is not None else 0
        if torch.cuda.current_stream().cuda_stream != handle:
            raise KernelError(
                "Torch works in a stream of its own, where PyCUDA cannot launch.",
                expected="torch's default stream, or an EngineStream for both",
                fix="Launch inside `with engine_stream():`, or outside of torch.cuda.stream(...).",
            )
    return stream
