"""Launch a built file on the CPU, as fast as it goes."""

import ctypes
import functools
import os
from typing import Any

from tinyvllm_lab.errors import KernelError
from tinyvllm_lab.kernels.arguments import Argument, Geometry
from tinyvllm_lab.kernels.cpu.build import Build, load_runtime
from tinyvllm_lab.kernels.cpu.lines import LineTable, mapping_of
from tinyvllm_lab.kernels.cpu.reports import Context, raise_findings, read_reports
from tinyvllm_lab.kernels.cpu.structs import KernelInfo, ReportLog, launch_request
from tinyvllm_lab.kernels.signatures import Parameter, Signature

_C_NUMBERS: dict[str, Any] = {
    "bool": ctypes.c_bool,
    "int8": ctypes.c_int8,
    "uint8": ctypes.c_uint8,
    "int16": ctypes.c_int16,
    "uint16": ctypes.c_uint16,
    "int32": ctypes.c_int32,
    "uint32": ctypes.c_uint32,
    "int64": ctypes.c_int64,
    "uint64": ctypes.c_uint64,
    "float32": ctypes.c_float,
    "float64": ctypes.c_double,
}


def num_os_threads() -> int:
    """How many OS threads share the blocks of a launch: `$TINYVLLM_CPU_THREADS`, or all cores."""
    wanted = os.environ.get("TINYVLLM_CPU_THREADS", "")
    if wanted and not (wanted.isdigit() and int(wanted)):
        raise KernelError(f"TINYVLLM_CPU_THREADS={wanted!r}.", expected="a whole number from 1 on")
    return int(wanted) if wanted else min(len(os.sched_getaffinity(0)), 16)


def load_library(build: Build) -> ctypes.CDLL:
    """The built file, loaded into this process.

    Raises:
        KernelError: it cannot be loaded, or its parameters are not what the parser read.
    """
    load_runtime()
    try:
        library = ctypes.CDLL(str(build.library))
    except OSError as error:
        raise KernelError(
            f"The build of {build.source.name} cannot be loaded: {error}",
            fix=f"Delete {build.library.parent}; it will be built again.",
        ) from error
    for signature in build.declarations.kernels:
        _check_sizes(library, signature)
    return library


def kernel_info(library: ctypes.CDLL, name: str) -> KernelInfo:
    """The record that the build made for one kernel."""
    return KernelInfo.in_dll(library, f"simt_kernel_{name}")


def _check_sizes(library: ctypes.CDLL, signature: Signature) -> None:
    info = kernel_info(library, signature.name)
    compiled = [info.param_sizes[i] for i in range(info.num_params)]
    parsed = [parameter.nbytes for parameter in signature.parameters]
    if compiled != parsed:
        raise KernelError(
            f"The parameters of {signature.name} were not understood.",
            expected=f"sizes {compiled}; read {signature} with sizes {parsed}",
            fix="Write the parameter types out, without typedefs that rename CUDA's types.",
        )


def pack(arguments: list[Argument]) -> tuple[Any, list[Any]]:
    """The `void**` a kernel is called with, and the numbers it points to (keep both alive)."""
    values = [_c_value(argument.parameter, argument.value) for argument in arguments]
    pointers = (ctypes.c_void_p * max(1, len(values)))(*map(ctypes.addressof, values))
    return pointers, values


def _c_value(parameter: Parameter, value: int | float) -> Any:
    return ctypes.c_uint64(int(value)) if parameter.pointer else _C_NUMBERS[parameter.dtype](value)


def check_cpu_array(where: str, array: Any) -> None:
    """Raise unless the array lies in the CPU's memory."""
    kind = getattr(getattr(array, "device", None), "type", "cpu")
    if kind != "cpu" or hasattr(array, "__cuda_array_interface__"):
        raise KernelError(
            f"{where}: the array is not in the CPU's memory.",
            expected="a CPU tensor, because this kernel was loaded for the CPU",
            fix='Pass x.cpu(), or load the kernel with backend="cuda".',
        )


class CpuLauncher:
    """Runs one built file on all cores; a wild pointer crashes the process, as in any C program."""

    backend = "cpu"

    def __init__(self, build: Build) -> None:
        self.build = build
        self._library = load_library(build)
        self._runtime = load_runtime()
        self._threads = num_os_threads()

    def check_device(self, where: str, array: Any) -> None:
        """Raise `KernelError` unless the array lies in the CPU's memory."""
        check_cpu_array(where, array)

    def launch(
        self, signature: Signature, arguments: list[Argument], launch: Geometry, stream: Any
    ) -> None:
        """Run all blocks and return when the last is done; there are no streams on a CPU.

        Raises:
            KernelError: threads wait for each other forever, or a device assert failed.
        """
        log = ReportLog.with_capacity(16)
        params, values = pack(arguments)
        info = kernel_info(self._library, signature.name)
        request = launch_request(info, params, launch.grid, launch.block, self._threads, log)
        if self._runtime.simt_launch(ctypes.byref(request)):
            library = self.build.library
            context = Context(signature.name, launch, LineTable(library), mapping_of(library).begin)
            raise_findings(read_reports(log.entries(), context))
        del values  # lived until here


@functools.cache
def fast_launcher(build: Build) -> CpuLauncher:
    """The launcher of a fast build, loaded once in a process."""
    return CpuLauncher(build)
