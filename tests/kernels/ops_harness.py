"""Run an operation under the checker, into poisoned memory, and compare with float64.

With TINYVLLM_OPS_BACKEND=cuda (`make gpu-check`) the same tests run on the GPU, unchecked: a test's
tensors are copied there before the launches and back after them.
"""

import functools
import os
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from tinyvllm_lab.kernels import check, load
from tinyvllm_lab.kernels.ops import OPS, KernelRunner
from tinyvllm_lab.kernels.work import Launch, Work

torch.set_num_threads(1)

ON_GPU = os.environ.get("TINYVLLM_OPS_BACKEND") == "cuda"
GPU = "cpu" if os.environ.get("TINYVLLM_FAKE_DRIVER") else "cuda"  # where the driver's memory is
if ON_GPU and GPU == "cpu":
    from fake_driver import load_fake_driver

    load_fake_driver()

DTYPES = [torch.float32, torch.bfloat16]
NAMES = {torch.float32: "f32", torch.bfloat16: "bf16"}
# Of float32: sums in another order than float64's. Of bfloat16: on top of that one rounding to 8
# bits, half of 2^-8; the naive SwiGLU rounds twice.
TOLERANCES = {
    torch.float32: {"rtol": 1e-5, "atol": 1e-5},
    torch.bfloat16: {"rtol": 2**-8, "atol": 1e-5},
}
POISON = -77_777


def by_name(value: Any) -> str | None:
    """Test ids: f32 and bf16 for dtypes, a-b-c for tuples."""
    if isinstance(value, torch.dtype):
        return NAMES[value]
    return "-".join(map(str, value)) if isinstance(value, tuple) else None


@functools.cache
def kernel(file: str, name: str) -> Any:
    """One kernel, loaded for the CPU."""
    return load(file, backend="cpu").get_function(name)


def launch_checked(launch: Launch) -> None:
    """Run one launch; any report of the checker fails the test."""
    result = check(
        kernel(launch.file, launch.kernel),
        *launch.args,
        grid=launch.grid,
        block=launch.block,
        shared=launch.shared,
        isolate=False,
        time_limit=100.0,
    )
    assert result.ok, str(result)


def poison(work: Work, inputs: tuple[Any, ...]) -> None:
    """Fill results and float workspaces: what a kernel does not write will be seen."""
    own = {id(tensor) for tensor in inputs}
    results = work.result if isinstance(work.result, tuple) else (work.result,)
    workspaces = [arg for launch in work.launches for arg in launch.args]
    for tensor in (*results, *workspaces):
        if not isinstance(tensor, Tensor) or id(tensor) in own:
            continue
        if tensor.is_floating_point():
            tensor.fill_(torch.nan)
        elif any(tensor is result for result in results):
            tensor.fill_(POISON)


def run_checked(op: str, *args: Any, **options: Any) -> Any:
    """The operation's result, by its kernels, in checked mode (or on the GPU)."""
    if ON_GPU:
        return run_on_gpu(op, *args, **options)
    work = OPS[op].work(*args, **options)
    poison(work, args)
    for launch in work.launches:
        launch_checked(launch)
    return work.result


@functools.cache
def gpu_runner() -> KernelRunner:
    return KernelRunner("cuda")


def run_on_gpu(op: str, *args: Any, **options: Any) -> Any:
    """The operation's result, by its kernels on the GPU; tensors written in place come back too."""
    pairs = [(arg, to_gpu(arg)) for arg in args if isinstance(arg, Tensor)]
    moved = {id(here): there for here, there in pairs}
    own = tuple(moved.get(id(arg), arg) for arg in args)
    work = OPS[op].work(*own, **options)
    poison(work, own)
    result = gpu_runner().run(work)
    for here, there in pairs:
        here.copy_(there)
    home = {id(there): here for here, there in pairs}
    if isinstance(result, tuple):
        return tuple(home[id(part)] if id(part) in home else part.cpu() for part in result)
    return result if result is None else result.cpu()


def to_gpu(tensor: Tensor) -> Tensor:
    """A copy that starts as far from a multiple of 16 bytes as the original."""
    offset = tensor.storage_offset()
    flat = torch.empty(tensor.numel() + offset, dtype=tensor.dtype, device=GPU)
    return flat[offset:].view(tensor.shape).copy_(tensor)


def assert_close(actual: Tensor, expected: Tensor, **tolerance: float) -> None:
    """Within the tolerance of `actual`'s type of the float64 reference."""
    assert actual.shape == expected.shape
    allowed = TOLERANCES[actual.dtype] | tolerance
    torch.testing.assert_close(actual.double(), expected, **allowed)


def kernel_and_twin(op: str, version: str | None = None) -> list[Callable[..., Any]]:
    """What a test compares with the reference: this version's kernels; with the best, the twin."""
    if version is None:
        return [functools.partial(run_checked, op), OPS[op].twin]
    return [functools.partial(run_checked, op, version=version)]


def randn(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    """Normal random numbers that depend on nothing but shape and seed."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator).to(dtype)
