"""Run a kernel once to learn about it: `check` looks for bugs."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tinyvllm_lab.kernels.arguments import bind, geometry
from tinyvllm_lab.kernels.findings import Finding
from tinyvllm_lab.kernels.module import Function

if TYPE_CHECKING:
    from tinyvllm_lab.kernels.cpu.checked import CheckedLauncher


@dataclass(frozen=True)
class CheckResult:
    """What a checked launch found.

    Attributes:
        kernel: the kernel's name.
        findings: the bugs, in the order they showed; empty if there is none.
        completed: whether the kernel ran to its end; if not, the arrays are as they were.
        num_accesses: loads, stores and atomics on arrays.
        seconds: wall time of the launch.
    """

    kernel: str
    findings: list[Finding]
    completed: bool
    num_accesses: int
    seconds: float

    @property
    def ok(self) -> bool:
        """Whether nothing was found."""
        return self.completed and not self.findings

    def __str__(self) -> str:
        if self.ok:
            return f"{self.kernel}: no bug found in {self.num_accesses:,} memory accesses."
        return "\n".join(finding.message for finding in self.findings)


def _launcher(function: Function, variant: str) -> "CheckedLauncher":
    from tinyvllm_lab.kernels.cpu.build import build
    from tinyvllm_lab.kernels.cpu.checked import checked_launcher

    module = function.module
    return checked_launcher(build(module.source, variant, module.defines))


def check(
    function: Function,
    *args: Any,
    grid: int | Sequence[int],
    block: int | Sequence[int],
    shared: int = 0,
    time_limit: float = 10.0,
    isolate: bool = True,
) -> CheckResult:
    """Run a kernel on the CPU under the checker, whatever back end its module was loaded for.

    Looks for: accesses out of bounds or misaligned, races, reads of uninitialised shared memory,
    barriers and warp operations that not all threads reach, wrong warp masks, endless loops,
    crashes, failed asserts.

    Args:
        function: from `Module.get_function`.
        args: as in a call; CPU tensors or arrays. They get the results if the kernel completes.
        grid: as in a call.
        block: as in a call.
        shared: as in a call.
        time_limit: seconds until the kernel counts as endless.
        isolate: run in a forked child, so that no crash can end this process.

    Raises:
        KernelError: no C++ compiler, or an argument does not fit the signature.
    """
    from tinyvllm_lab.kernels.cpu.checked import CheckOptions

    options = CheckOptions(isolate=isolate, time_limit=time_limit)
    launcher = _launcher(function, "checked")
    arguments = bind(function.signature, args, launcher.check_device)
    run = launcher.run(function.signature, arguments, geometry(grid, block, shared), options)
    return CheckResult(function.name, run.findings, run.completed, run.num_accesses, run.seconds)
