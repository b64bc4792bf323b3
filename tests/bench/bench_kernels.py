"""What the CPU back end costs: barriers, shuffles, launches, checks, builds. For `make bench`.

All numbers are CPU time of this process and its children, on one OS thread, so that what else runs
on the machine hardly shows.
"""

from __future__ import annotations

import os
import resource
import tempfile
from collections.abc import Callable
from pathlib import Path

os.environ["TINYVLLM_CPU_THREADS"] = "1"

import numpy as np

from tinyvllm_lab.kernels import check, load, load_source, xray
from tinyvllm_lab.kernels.cpu.build import find_compiler, runtime_library
from tinyvllm_lab.paths import kernels_dir

REPEATS = 5
ROUNDS = 1000
LOOPS = """
extern "C" __global__ void nothing() {}
extern "C" __global__ void barriers(int rounds) {
    for (int i = 0; i < rounds; ++i) __syncthreads();
}
extern "C" __global__ void shuffles(int* out, int rounds) {
    int v = threadIdx.x;
    for (int i = 0; i < rounds; ++i) v += __shfl_xor_sync(0xffffffffu, v, 1);
    out[threadIdx.x] = v;
}
"""
COURSE = """
extern "C" __global__ void matmul(float* out, const float* a, const float* b, int n) {
    __shared__ float left[16][16], right[16][16];
    const int row = blockIdx.y * 16 + threadIdx.y, column = blockIdx.x * 16 + threadIdx.x;
    float sum = 0;
    for (int k = 0; k < n; k += 16) {
        left[threadIdx.y][threadIdx.x] = a[row * n + k + threadIdx.x];
        right[threadIdx.y][threadIdx.x] = b[(k + threadIdx.y) * n + column];
        __syncthreads();
        for (int i = 0; i < 16; ++i) sum += left[threadIdx.y][i] * right[i][threadIdx.x];
        __syncthreads();
    }
    out[row * n + column] = sum;
}
"""


def cpu_seconds() -> float:
    """CPU time so far: this process, and its children that have ended."""
    usages = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def timed(work: Callable[[], object]) -> float:
    """Seconds of one call."""
    begin = cpu_seconds()
    work()
    return cpu_seconds() - begin


def best(work: Callable[[], object]) -> float:
    """The least seconds of several calls."""
    return min(timed(work) for _ in range(REPEATS))


def bench_synchronisation() -> None:
    module = load_source(LOOPS, "loops", backend="cpu", checked=False)
    barriers, shuffles = module.get_function("barriers"), module.get_function("shuffles")
    for threads in (32, 256, 1024):
        seconds = best(lambda t=threads: barriers(ROUNDS, grid=1, block=t))
        print(
            f"barrier, {threads:5} threads      {seconds / ROUNDS / threads * 1e9:8.1f} ns a thread"
        )
    for threads in (32, 256):
        out = np.zeros(threads, np.int32)
        seconds = best(lambda t=threads, o=out: shuffles(o, ROUNDS, grid=1, block=t))
        print(
            f"shuffle, {threads:5} threads      {seconds / ROUNDS / threads * 1e9:8.1f} ns a lane"
        )
    nothing = module.get_function("nothing")
    seconds = best(lambda: nothing(grid=4000, block=256))
    print(f"thread without barriers     {seconds / 4000 / 256 * 1e9:8.1f} ns")
    print(f"empty launch, from Python   {best(lambda: nothing(grid=1, block=32)) * 1e6:8.1f} us")


def bench_checking() -> None:
    n = 128
    fast = load_source(COURSE, "tiled", backend="cpu", checked=False).get_function("matmul")
    args = np.zeros((n, n), np.float32), np.ones((n, n), np.float32), np.ones((n, n), np.float32), n
    shape = {"grid": (n // 16, n // 16), "block": (16, 16)}
    fast(*args, **shape)
    result = check(fast, *args, **shape)
    assert result.ok, result
    quick = best(lambda: fast(*args, **shape))
    checked = best(lambda: check(fast, *args, **shape))
    bounds_too = checked / result.num_accesses * 1e9
    print(f"matmul 128, fast            {quick * 1e3:8.1f} ms")
    print(f"matmul 128, checked         {checked * 1e3:8.1f} ms  {bounds_too:.0f} ns an access")
    looked = xray(fast, *args, **shape)
    seconds = best(lambda: xray(fast, *args, **shape))
    print(f"matmul 128, x-ray, 1 block  {seconds * 1e3:8.1f} ms  {looked.events:,} events")
    nothing = load_source(LOOPS, "loops", backend="cpu", checked=False).get_function("nothing")
    seconds = best(lambda: check(nothing, grid=1, block=32))
    print(f"empty checked launch        {seconds * 1e3:8.1f} ms")


def bench_builds() -> None:
    names = sorted(path.stem for path in kernels_dir().glob("*.cu"))
    before = os.environ.get("TINYVLLM_CACHE_DIR")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TINYVLLM_CACHE_DIR"] = folder
        runtime_library.cache_clear()
        print(f"build of the runtime        {timed(runtime_library):8.2f} s")
        for checked in (False, True):
            times = {name: timed_load(name, checked) for name in names}
            slowest = max(times, key=lambda name: times[name])
            print(
                f"build of all {len(names)} files, {'checked' if checked else 'fast   '}"
                f"{sum(times.values()):7.2f} s  slowest {slowest} {times[slowest]:.2f} s"
            )
        cached = best(lambda: [timed_load(name, False) for name in names])
        print(f"cached load of all          {cached * 1e3:8.1f} ms")
        size = sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file())
        print(f"cache                       {size / 1e6:8.1f} MB")
    os.environ.pop("TINYVLLM_CACHE_DIR")
    if before:
        os.environ["TINYVLLM_CACHE_DIR"] = before


def timed_load(name: str, checked: bool) -> float:
    """Seconds to build or find and to load one of the course's files."""
    return timed(lambda: load(name, backend="cpu", checked=checked))


def main() -> None:
    """Print the table."""
    print(f"CPU back end with {find_compiler().version}, CPU time, best of {REPEATS}")
    bench_synchronisation()
    bench_checking()
    bench_builds()


if __name__ == "__main__":
    main()
