"""Which back end runs the kernels on this machine, and why."""

import functools
import os
from dataclasses import dataclass

from tinyvllm_lab.errors import KernelError

BACKENDS = ("cuda", "cpu", "torch")


@dataclass(frozen=True)
class Choice:
    """A back end and the reason it was taken, in one line."""

    name: str
    reason: str

    def __str__(self) -> str:
        return f"kernels run on {self.name!r}: {self.reason}"


def why_not_cuda() -> str:
    """Why the GPU cannot be used; "" if it can."""
    try:
        import pycuda.driver as driver
    except ImportError as error:
        return f"no PyCUDA ({error})"
    try:
        driver.init()
        if not driver.Device.count():
            return "no CUDA device"
    except Exception as error:  # pycuda.driver.Error, whose classes differ between versions
        return f"the CUDA driver failed ({error})"
    from tinyvllm_lab.kernels.cuda.compiler import find_cuda_compiler

    try:
        find_cuda_compiler()
    except KernelError as error:
        return error.what
    return ""


def why_not_cpu() -> str:
    """Why the CPU back end cannot be used; "" if it can."""
    from tinyvllm_lab.kernels.cpu.build import find_compiler

    try:
        find_compiler()
    except KernelError as error:
        return error.what
    return ""


def _why_not(name: str) -> str:
    if name == "torch":
        return ""
    return why_not_cuda() if name == "cuda" else why_not_cpu()


def choose_backend(wanted: str | None = None) -> Choice:
    """The back end named by `wanted` or `$TINYVLLM_BACKEND`, else the best this machine has.

    Best is a GPU ("cuda"), then our own CPU back end ("cpu"), then torch's functions in place of
    the kernels ("torch").

    Raises:
        KernelError: the named back end is unknown, or cannot be used here.
    """
    source = "asked for" if wanted else "TINYVLLM_BACKEND"
    wanted = wanted or os.environ.get("TINYVLLM_BACKEND") or None
    if wanted in (None, "auto"):
        return _best()
    if wanted not in BACKENDS:
        raise KernelError(f"There is no back end {wanted!r}.", expected=", ".join(BACKENDS))
    problem = _why_not(wanted)
    if problem:
        raise KernelError(
            f"The back end {wanted!r} ({source}) cannot be used: {problem}",
            fix=f"Take another one: {', '.join(b for b in BACKENDS if not _why_not(b))}.",
        )
    return Choice(wanted, source)


def _best() -> Choice:
    refused: list[str] = []
    for name in BACKENDS:
        problem = _why_not(name)
        if not problem:
            return Choice(name, "; ".join(refused) or "a CUDA device is here")
        refused.append(problem)
    raise AssertionError("torch is always there")


@functools.cache
def _print_once(text: str) -> None:
    print(text)


def announce(choice: Choice) -> Choice:
    """Print the choice and its reason, once in a process."""
    _print_once(str(choice))
    return choice
