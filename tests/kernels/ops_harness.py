"""Run an operation under the checker, into poisoned memory, and compare with float64."""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from tinyvllm_lab.kernels import check, load
from tinyvllm_lab.kernels.ops import OPS
from tinyvllm_lab.kernels.work import Launch, Work

torch.set_num_threads(1)

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
    """The operation's result, by its kernels, in checked mode."""
    work = OPS[op].work(*args, **options)
    poison(work, args)
    for launch in work.launches:
        launch_checked(launch)
    return work.result


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
