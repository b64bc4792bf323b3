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


@contextmanager
def engine_stream() -> Iterator[Any]:
    """One stream for our launches and torch's work in this thread; the engine's thread runs in it.

    PyCUDA cannot wrap a stream of torch's, so the stream is PyCUDA's, and torch wraps it. Launches
    with `stream=None` go there, in order with torch's operations.

    Yields:
        the `pycuda.driver.Stream`.

    Raises:
        KernelError: no GPU.
    """
    import pycuda.driver as driver

    device, torch = cuda_device(), _torch_with_cuda()
    with device.current():
        stream = driver.Stream()
        before = getattr(_this_thread, "stream", None)
        _this_thread.stream = stream
        try:
            if torch:
                with torch.cuda.stream(torch.cuda.ExternalStream(stream.handle)):
                    yield stream
            else:
                yield stream
            stream.synchronize()
        finally:
            _this_thread.stream = before


def default_stream() -> Any:
    """The stream of `engine_stream` in this thread, or None: CUDA's default stream, torch's too."""
    return getattr(_this_thread, "stream", None)
