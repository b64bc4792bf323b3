"""Registers, spills and occupancy, against nvcc and NVIDIA's own occupancy calculator."""

import random
import subprocess
from pathlib import Path

import pytest

from tinyvllm_lab.errors import KernelError
from tinyvllm_lab.kernels import resource_report
from tinyvllm_lab.kernels.resources import SM_LIMITS, occupancy, parse_ptxas

HERE = Path(__file__).parent

SPILLING = """\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'big' for 'sm_80'
ptxas info    : Function properties for big
    2360 bytes stack frame, 3020 bytes spill stores, 2024 bytes spill loads
ptxas info    : Used 64 registers, used 1 barriers, 2360 bytes cumulative stack size, 512 bytes smem
ptxas info    : Compile time = 12.0 ms
ptxas info    : Compiling entry function 'small' for 'sm_120a'
ptxas info    : Function properties for small
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 8 registers, used 0 barriers
"""


def test_ptxas_output_is_read():
    big, small = parse_ptxas(SPILLING)
    assert (big.kernel, big.architecture) == ("big", 80)
    assert (big.registers, big.static_shared, big.stack) == (64, 512, 2360)
    assert (big.spill_stores, big.spill_loads) == (3020, 2024)
    assert (small.architecture, small.registers, small.static_shared) == (120, 8, 0)


def test_known_occupancies():
    half = occupancy(80, 256, 128, 0)  # 65536 / (128 * 256) = 2 blocks of 8 warps
    assert (half.blocks, half.warps, half.share, half.limiter) == (2, 16, 0.25, "registers")
    assert occupancy(90, 32, 16, 0).limiter == "blocks"
    assert occupancy(75, 1024, 16, 0).limiter == "warps"
    assert occupancy(86, 128, 16, 40_000).limiter == "shared memory"


def test_a_block_that_does_not_fit():
    with pytest.raises(KernelError, match="does not fit on sm_80"):
        occupancy(80, 1024, 255, 0)
    with pytest.raises(KernelError, match="does not fit on sm_75"):
        occupancy(75, 32, 16, 65 * 1024)
    with pytest.raises(KernelError, match="No limits known for sm_70"):
        occupancy(70, 32, 16, 0)


@pytest.mark.needs("nvcc")
def test_report_of_a_file_for_two_gpus():
    found = resource_report(HERE / "correct.cu", architectures=(80, 90))
    by_name = {(r.kernel, r.architecture): r for r in found}
    transposed = by_name["tiled_transpose", 80]
    assert transposed.static_shared == 16 * 17 * 4
    assert 8 <= transposed.registers <= 64
    assert transposed.spill_stores == 0
    assert by_name["tiled_transpose", 90].occupancy(256).share == 1.0


ORACLE = r"""
#include <cstdio>
#include <cuda_occupancy.h>
int main() {
    int cc, threads, registers, warps, shared, reserved, sm_shared, block_shared;
    while (scanf("%d %d %d %d %d %d %d %d", &cc, &threads, &registers, &shared, &warps, &sm_shared,
                 &reserved, &block_shared) == 8) {
        cudaOccDeviceProp device;
        device.computeMajor = cc / 10; device.computeMinor = cc % 10;
        device.maxThreadsPerBlock = 1024; device.maxThreadsPerMultiprocessor = warps * 32;
        device.regsPerBlock = device.regsPerMultiprocessor = 65536; device.warpSize = 32;
        device.sharedMemPerBlock = 48 * 1024; device.sharedMemPerMultiprocessor = sm_shared;
        device.numSms = 1; device.sharedMemPerBlockOptin = block_shared;
        device.reservedSharedMemPerBlock = reserved;
        cudaOccFuncAttributes kernel;
        kernel.maxThreadsPerBlock = 1024; kernel.numRegs = registers; kernel.numBlockBarriers = 1;
        kernel.shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN; kernel.maxDynamicSharedSizeBytes = shared;
        cudaOccDeviceState state;
        state.carveoutConfig = SHAREDMEM_CARVEOUT_MAX_SHARED;
        cudaOccResult result;
        int status = cudaOccMaxActiveBlocksPerMultiprocessor(&result, &device, &kernel, &state,
                                                             threads, shared);
        const int blocks = status ? -1 : result.activeBlocksPerMultiprocessor;
        printf("%d %u\n", blocks, result.limitingFactors);
    }
}
"""
LIMITERS = {"warps": 1, "registers": 2, "shared memory": 4, "blocks": 8}


def cuda_include() -> Path:
    """The toolkit's headers, where nvcc itself says they are."""
    said = subprocess.run(["nvcc", "--dryrun", "x.cu"], capture_output=True, text=True)
    (top,) = (line.partition("TOP=")[2] for line in said.stderr.splitlines() if "TOP=" in line)
    return Path(top) / "include"


def random_case(rng: random.Random) -> tuple[int, int, int, int]:
    architecture = rng.choice(sorted(SM_LIMITS))
    most = SM_LIMITS[architecture].max_shared_per_block
    shared = rng.choice([0, rng.randrange(2048), rng.randrange(most + 1)])
    return architecture, rng.randint(1, 1024), rng.randint(1, 255), shared


def ours(case: tuple[int, int, int, int]) -> tuple[int, str]:
    try:
        found = occupancy(*case)
    except KernelError:
        return 0, ""
    return found.blocks, found.limiter


@pytest.mark.needs("nvcc", "cxx")
def test_occupancy_equals_nvidias_calculator(tmp_path):
    (tmp_path / "oracle.cpp").write_text(ORACLE)
    program = tmp_path / "oracle"
    command = ["g++", "-O1", f"-I{cuda_include()}", "-o", program, tmp_path / "oracle.cpp"]
    subprocess.run(command, check=True)
    rng = random.Random(5)
    cases = [random_case(rng) for _ in range(3000)]
    lines = []
    for case in cases:
        sm = SM_LIMITS[case[0]]
        numbers = (*case, sm.warps, sm.shared, sm.reserved, sm.max_shared_per_block)
        lines.append(" ".join(map(str, numbers)))
    asked = subprocess.run([program], input="\n".join(lines), capture_output=True, text=True)
    for case, answer in zip(cases, asked.stdout.splitlines(), strict=True):
        blocks, limiters = map(int, answer.split())
        our_blocks, our_limiter = ours(case)
        assert our_blocks == max(blocks, 0), case
        assert not our_blocks or LIMITERS[our_limiter] & limiters, case
