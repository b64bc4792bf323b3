"""Load a file built for the GPU and launch its kernels through PyCUDA."""

import functools
from pathlib import Path
from typing import Any

from tinyvllm_lab.errors import KernelError
from tinyvllm_lab.kernels.arguments import Argument, Geometry
from tinyvllm_lab.kernels.cuda.compiler import (
    CudaBuild,
    build_cuda,
    choose_target,
    find_cuda_compiler,
)
from tinyvllm_lab.kernels.cuda.device import CudaDevice, cuda_device, default_stream
from tinyvllm_lab.kernels.module import Module
from tinyvllm_lab.kernels.signatures import Signature

# More dynamic shared memory than this must be asked for, kernel by kernel.
_FREE_DYNAMIC_SHARED = 48 * 1024
# Letters of Python's struct module; PyCUDA packs arguments with it.
_PACK = {
    **{"bool": "?", "int8": "b", "uint8": "B", "int16": "h", "uint16": "H", "int32": "i"},
    **{"uint32": "I", "int64": "q", "uint64": "Q", "float32": "f", "float64": "d"},
}


def load_cuda(source: Path, defines: tuple[str, ...] = ()) -> Module:
    """Build a file for this machine's GPU and load it.

    Raises:
        KernelError: no GPU, no compiler, or the file does not compile.
    """
    device = cuda_device()
    target = choose_target(device.capability, find_cuda_compiler().architectures())
    build = build_cuda(source, target, defines)
    return Module(source, build.declarations.kernels, _launcher(build), defines)


@functools.cache
def _launcher(build: CudaBuild) -> "CudaLauncher":
    return CudaLauncher(build, cuda_device())


class CudaLauncher:
    """Queues launches of one built file on the GPU; they run after the call has returned."""

    backend = "cuda"

    def __init__(self, build: CudaBuild, device: CudaDevice) -> None:
        import pycuda.driver as driver

        self.build, self.device = build, device
        self._functions: dict[str, Any] = {}
        with device.current():
            try:
                self._module = driver.module_from_buffer(build.code.read_bytes())
            except driver.Error as error:
                raise KernelError(
                    f"The driver refused the build of {build.source.name} for {build.target}: "
                    f"{error}",
                    fix="Update the driver, or use a CUDA toolkit that is no newer than it.",
                ) from error

    def check_device(self, where: str, array: Any) -> None:
        """Raise `KernelError` unless the array lies in this GPU's memory."""
        device = getattr(array, "device", None)
        kind, index = getattr(device, "type", ""), getattr(device, "index", None)
        on_gpu = kind == "cuda" or hasattr(array, "__cuda_array_interface__")
        if on_gpu and index not in (None, self.device.index):
            raise KernelError(f"{where}: on cuda:{index}.", f"cuda:{self.device.index}")
        if not on_gpu and not self.device.reads_host_memory:
            raise KernelError(
                f"{where}: the array is in the CPU's memory.",
                expected=f"a tensor on cuda:{self.device.index}",
                fix='Pass x.cuda(), or load the kernel with backend="cpu".',
            )

    def launch(
        self, signature: Signature, arguments: list[Argument], launch: Geometry, stream: Any
    ) -> None:
        """Queue the kernel on `stream`, on the thread's `EngineStream`, or on the default stream.

        Raises:
            KernelError: the driver refused the launch. (What goes wrong while the kernel runs
                shows at the next call that waits for the GPU.)
        """
        import pycuda.driver as driver

        with self.device.current():
            try:
                function = self._function(signature)
                self._allow_shared(function, launch.shared)
                function.prepared_async_call(
                    launch.grid,
                    launch.block,
                    stream or default_stream(),
                    *(argument.value for argument in arguments),
                    shared_size=launch.shared,
                )
            except driver.Error as error:
                raise KernelError(
                    f"{signature.name}: the driver refused grid={launch.grid} "
                    f"block={launch.block} shared={launch.shared}: {error}"
                ) from error

    def _function(self, signature: Signature) -> Any:
        if signature.name not in self._functions:
            function = self._module.get_function(signature.name)
            kinds = ("P" if p.pointer else _PACK[p.dtype] for p in signature.parameters)
            self._functions[signature.name] = function.prepare("".join(kinds))
        return self._functions[signature.name]

    @staticmethod
    def _allow_shared(function: Any, shared: int) -> None:
        import pycuda.driver as driver

        if shared > _FREE_DYNAMIC_SHARED:
            limit = driver.function_attribute.MAX_DYNAMIC_SHARED_SIZE_BYTES
            function.set_attribute(limit, shared)
