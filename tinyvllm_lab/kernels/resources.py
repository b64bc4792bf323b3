"""What a kernel costs on each GPU: registers, shared memory, spills, and how many warps fit.

Compiles only; needs nvcc or NVRTC, no GPU.
"""

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tinyvllm_lab.errors import KernelError
from tinyvllm_lab.kernels.sources import find_source

ARCHITECTURES = (75, 80, 86, 89, 90, 100, 120)  # Turing to Blackwell: those the course is built for
WARP = 32
_KIB = 1024


@dataclass(frozen=True)
class SmLimits:
    """What one streaming multiprocessor has (CUDA C++ programming guide, "compute capabilities").

    Attributes:
        warps: resident at a time.
        blocks: resident at a time.
        shared: bytes of shared memory for all its blocks.
        reserved: bytes of it that the system takes for each block.
        max_shared_per_block: bytes that one block can use.
        shared_unit: shared memory is given out in multiples of this.
    """

    warps: int
    blocks: int
    shared: int
    reserved: int
    max_shared_per_block: int
    shared_unit: int = 128


# All of them have 65,536 registers in 4 parts, given to warps in steps of 256.
REGISTERS, PARTS, REGISTER_UNIT = 65536, 4, 256
SM_LIMITS = {
    75: SmLimits(32, 16, 64 * _KIB, 0, 64 * _KIB, 256),
    80: SmLimits(64, 32, 164 * _KIB, _KIB, 163 * _KIB),
    86: SmLimits(48, 16, 100 * _KIB, _KIB, 99 * _KIB),
    87: SmLimits(48, 16, 164 * _KIB, _KIB, 163 * _KIB),
    89: SmLimits(48, 24, 100 * _KIB, _KIB, 99 * _KIB),
    90: SmLimits(64, 32, 228 * _KIB, _KIB, 227 * _KIB),
    100: SmLimits(64, 32, 228 * _KIB, _KIB, 227 * _KIB),
    103: SmLimits(64, 32, 228 * _KIB, _KIB, 227 * _KIB),
    120: SmLimits(48, 24, 100 * _KIB, _KIB, 99 * _KIB),
    121: SmLimits(48, 24, 100 * _KIB, _KIB, 99 * _KIB),
}


@dataclass(frozen=True)
class Occupancy:
    """How full an SM gets with one kernel.

    Attributes:
        blocks: resident on one SM.
        warps: resident on one SM.
        share: of the warps it could hold, 0 to 1.
        limiter: what stops one more block: "warps", "blocks", "registers" or "shared memory".
    """

    blocks: int
    warps: int
    share: float
    limiter: str


@dataclass(frozen=True)
class KernelResources:
    """What ptxas says about one kernel on one architecture.

    Attributes:
        kernel: name.
        architecture: compute capability as 10 * major + minor.
        registers: of each thread.
        static_shared: bytes of `__shared__` arrays of constant size.
        stack: bytes of local memory of each thread for arrays and calls.
        spill_stores: bytes of registers put into memory for want of registers.
        spill_loads: bytes of those read back.
    """

    kernel: str
    architecture: int
    registers: int
    static_shared: int
    stack: int
    spill_stores: int
    spill_loads: int

    def occupancy(self, threads_per_block: int, dynamic_shared: int = 0) -> Occupancy:
        """How many blocks of this size an SM holds.

        Raises:
            KernelError: not even one fits, or the architecture's limits are not known.
        """
        shared = self.static_shared + dynamic_shared
        return occupancy(self.architecture, threads_per_block, self.registers, shared)

    def to_json(self) -> dict[str, Any]:
        """A dict of plain values."""
        return asdict(self)


def _round_up(n: int, unit: int) -> int:
    return -(-n // unit) * unit


def occupancy(architecture: int, threads: int, registers: int, shared: int) -> Occupancy:
    """Blocks that one SM holds at a time, as NVIDIA's `cuda_occupancy.h` counts them.

    Args:
        architecture: compute capability as 10 * major + minor.
        threads: in a block, 1 to 1024.
        registers: of each thread.
        shared: bytes of shared memory of a block, static and dynamic.

    Raises:
        KernelError: not even one block fits, or the architecture's limits are not known.
    """
    sm, warps = _limits(architecture), -(-threads // WARP)
    fits = blocks_that_fit(architecture, threads, registers, shared)
    limiter = min(fits, key=lambda name: fits[name])
    blocks = fits[limiter] if shared <= sm.max_shared_per_block else 0
    if not blocks:
        raise KernelError(
            f"A block of {threads} threads with {registers} registers each and {shared} bytes of "
            f"shared memory does not fit on sm_{architecture}.",
            expected=f"{sm.warps * WARP} threads, {REGISTERS} registers, "
            f"{sm.max_shared_per_block} bytes at most",
        )
    return Occupancy(blocks, blocks * warps, blocks * warps / sm.warps, limiter)


def blocks_that_fit(architecture: int, threads: int, registers: int, shared: int) -> dict[str, int]:
    """How many blocks each limit of an SM alone would allow; the smallest is the limiter.

    Args:
        architecture, threads, registers, shared: as for `occupancy`.

    Returns:
        Limit, as `Occupancy.limiter` calls it, -> blocks.

    Raises:
        KernelError: the architecture's limits are not known.
    """
    sm, warps = _limits(architecture), -(-threads // WARP)
    return {
        "warps": sm.warps // warps,
        "blocks": sm.blocks,
        "registers": _blocks_by_registers(registers, warps),
        "shared memory": sm.shared // max(1, _round_up(shared + sm.reserved, sm.shared_unit)),
    }


def _limits(architecture: int) -> SmLimits:
    if architecture not in SM_LIMITS:
        raise KernelError(f"No limits known for sm_{architecture}.", str(sorted(SM_LIMITS)))
    return SM_LIMITS[architecture]


def _blocks_by_registers(registers: int, warps: int) -> int:
    if not registers:
        return REGISTERS
    by_warp = _round_up(registers * WARP, REGISTER_UNIT)
    if by_warp * _round_up(warps, PARTS) > REGISTERS:
        return 0
    return REGISTERS // PARTS // by_warp * PARTS // warps


_ENTRY = re.compile(r"Compiling entry function '(\w+)' for 'sm_(\d+)a?'")
_NUMBERS = {
    "registers": re.compile(r"Used (\d+) registers"),
    "static_shared": re.compile(r"(\d+) bytes smem"),
    "stack": re.compile(r"(\d+) bytes stack frame"),
    "spill_stores": re.compile(r"(\d+) bytes spill stores"),
    "spill_loads": re.compile(r"(\d+) bytes spill loads"),
}


def parse_ptxas(text: str) -> list[KernelResources]:
    """Read the output of `ptxas -v` (the same from nvcc and from NVRTC)."""
    entries = list(_ENTRY.finditer(text))
    ends = [entry.start() for entry in entries[1:]] + [len(text)]
    return [
        KernelResources(entry[1], int(entry[2]), **_numbers(text[entry.end() : end]))
        for entry, end in zip(entries, ends, strict=True)
    ]


def _numbers(text: str) -> dict[str, int]:
    found = {name: pattern.search(text) for name, pattern in _NUMBERS.items()}
    return {name: int(match[1]) if match else 0 for name, match in found.items()}


def resource_report(
    name: str | Path,
    architectures: Sequence[int] = ARCHITECTURES,
    defines: tuple[str, ...] = (),
) -> list[KernelResources]:
    """Compile a `.cu` file for several GPUs and report on each kernel; cached like any build.

    Args:
        name: one of the course's files ("rmsnorm"), or a path to a `.cu` file.
        architectures: compute capabilities, as 10 * major + minor.
        defines: macros, "NAME" or "NAME=value".

    Raises:
        KernelError: no compiler for CUDA, or the file does not compile.
    """
    from tinyvllm_lab.kernels.cuda.compiler import build_cuda

    source = find_source(name)
    builds = [build_cuda(source, f"sm_{number}", defines) for number in architectures]
    return [resources for build in builds for resources in parse_ptxas(build.ptxas)]
