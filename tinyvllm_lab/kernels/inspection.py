"""Run a kernel once to learn about it: `check` looks for bugs, `xray` shows what it does."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tinyvllm_lab.errors import KernelError
from tinyvllm_lab.kernels.arguments import bind, geometry
from tinyvllm_lab.kernels.backend import why_not_cpu
from tinyvllm_lab.kernels.findings import Finding
from tinyvllm_lab.kernels.module import Function
from tinyvllm_lab.kernels.recorded import recorded_call, recorded_xray
from tinyvllm_lab.kernels.sources import source_closure
from tinyvllm_lab.kernels.xray_data import XRay

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
        seconds: wall time of the launch; 0 if it was recorded.
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

    Where there is no C++ compiler, a call of the chapters gives what was found when recorded.

    Raises:
        KernelError: no C++ compiler, or an argument does not fit the signature.
    """
    from tinyvllm_lab.kernels.cpu.checked import CheckOptions

    launch = geometry(grid, block, shared, function.signature.max_threads)
    if why_not_cpu():
        found = recorded_call("checks", function, args, launch, None)
        findings = [Finding.from_json(one) for one in found["findings"]]
        return CheckResult(**{**found, "findings": findings})
    options = CheckOptions(isolate=isolate, time_limit=time_limit)
    launcher = _launcher(function, "checked")
    arguments = bind(function.signature, args, launcher.check_device)
    run = launcher.run(function.signature, arguments, launch, options)
    return CheckResult(function.name, run.findings, run.completed, run.num_accesses, run.seconds)


def xray(
    function: Function,
    *args: Any,
    grid: int | Sequence[int],
    block: int | Sequence[int],
    shared: int = 0,
    blocks: int | range = 1,
    max_events: int = 1_000_000,
    time_limit: float = 10.0,
) -> XRay:
    """Run a kernel on the CPU and log what each thread of some blocks does.

    All blocks run and are checked for bugs; of those in `blocks`, each load, store, barrier and
    warp operation is kept. 24 bytes an event; working out 100,000 events takes about 0.2 s.

    Args:
        function: from `Module.get_function`.
        args: as in a call; CPU tensors or arrays. They get the results if the kernel completes.
        grid: as in a call.
        block: as in a call.
        shared: as in a call.
        blocks: how many blocks to log from the first on, or a range of linear block indices.
        max_events: no more events than this are kept.
        time_limit: seconds until the kernel counts as endless.

    Where there is no C++ compiler, a call of the chapters gives its recorded x-ray.

    Raises:
        KernelError: no C++ compiler, an argument does not fit the signature, or no such block.
    """
    from tinyvllm_lab.kernels.cpu.checked import CheckOptions
    from tinyvllm_lab.kernels.xray_analysis import analyse

    launch = geometry(grid, block, shared, function.signature.max_threads)
    logged = logged_blocks(blocks, launch.num_blocks)
    if why_not_cpu():
        return recorded_xray(recorded_call("xrays", function, args, launch, logged))
    options = CheckOptions(time_limit=time_limit, max_events=max_events, blocks=logged)
    launcher = _launcher(function, "xray")
    arguments = bind(function.signature, args, launcher.check_device)
    run = launcher.run(function.signature, arguments, launch, options)
    return analyse(run, shared, _sources(function))


def logged_blocks(blocks: int | range, num_blocks: int) -> tuple[int, int]:
    """First and one past the last block to log.

    Raises:
        KernelError: there is no such block, or they do not follow each other.
    """
    wanted = range(blocks) if isinstance(blocks, int) else blocks
    if not wanted or wanted.step != 1 or wanted.start < 0 or wanted.start >= num_blocks:
        raise KernelError(f"blocks={blocks} names no block.", f"0 to {num_blocks - 1}")
    return wanted.start, wanted.stop


def _sources(function: Function) -> dict[str, list[str]]:
    files = source_closure(function.module.source).items()
    return {path.name: data.decode(errors="replace").splitlines() for path, data in files}
