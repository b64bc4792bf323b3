"""The engine's operations: for each one the kernel that computes it, and its torch twin.

`op_functions("cuda")`, `("cpu")` or `("torch")` gives the functions that the executor calls. They
have the same signatures, so that a learner's own function can stand in for any of them. Every one
has a launch function (shapes -> launches; its docstring says what goes in and comes out) and a twin
of the same name in `reference`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tinyvllm_lab.errors import KernelError
from tinyvllm_lab.kernels import cache_launches, launches, reference, sampling_launches
from tinyvllm_lab.kernels.backend import BACKENDS, announce, choose_backend
from tinyvllm_lab.kernels.loader import load
from tinyvllm_lab.kernels.module import Module
from tinyvllm_lab.kernels.work import Launch, Work


@dataclass(frozen=True)
class Op:
    """One operation.

    Attributes:
        name: what `kernels={name: function}` calls it.
        work: shapes -> launches.
        twin: the same in torch.
    """

    name: str
    work: Callable[..., Work]
    twin: Callable[..., Any]


OPS: dict[str, Op] = {
    work.__name__: Op(work.__name__, work, getattr(reference, work.__name__))
    for work in (
        launches.embedding,
        launches.rms_norm,
        launches.add_rms_norm,
        launches.rope,
        launches.silu_mul,
        launches.softmax,
        launches.matmul,
        launches.gemv,
        cache_launches.reshape_and_cache,
        cache_launches.copy_blocks,
        cache_launches.paged_attention,
        cache_launches.prefill_attention,
        sampling_launches.argmax,
        sampling_launches.sample_top_k_top_p,
    )
}


# Where one operation has a file of another name, that name is understood too.
_FILES_NAMES = {"rmsnorm": "rms_norm", "swiglu": "silu_mul"}


class KernelRunner:
    """Runs works on one back end. Files are built and loaded when their first kernel is needed.

    Args:
        backend: "cuda" or "cpu".
        checked: run under the checker (CPU only): every bug that it finds is a `KernelError`.
        stream: the GPU stream to launch on.
    """

    def __init__(self, backend: str, *, checked: bool = False, stream: Any = None) -> None:
        self.backend, self.checked, self.stream = backend, checked, stream
        self._modules: dict[str, Module] = {}

    def launch(self, launch: Launch) -> None:
        """Run one kernel.

        Raises:
            KernelError: it does not build, or the launch fails.
        """
        if launch.file not in self._modules:
            self._modules[launch.file] = load(
                launch.file, backend=self.backend, checked=self.checked
            )
        function = self._modules[launch.file].get_function(launch.kernel)
        function(
            *launch.args,
            grid=launch.grid,
            block=launch.block,
            shared=launch.shared,
            stream=self.stream,
        )

    def run(self, work: Work) -> Any:
        """Run a work's launches in order and return its result."""
        for launch in work.launches:
            self.launch(launch)
        return work.result

    def function(self, op: str) -> Callable[..., Any]:
        """The operation as a plain function of its tensors."""
        work = OPS[op].work

        def call(*args: Any, **options: Any) -> Any:
            return self.run(work(*args, **options))

        call.__name__, call.__doc__ = op, work.__doc__
        return call


def op_functions(
    kernels: str | Mapping[str, Callable[..., Any]] | None = None,
    *,
    checked: bool = False,
    stream: Any = None,
) -> dict[str, Callable[..., Any]]:
    """Operation name -> function.

    Args:
        kernels: "cuda" or "cpu" for the course's kernels, "torch" for their twins; a mapping
            replaces some of the twins by functions of your own. None: the best back end here.
        checked, stream: as for `KernelRunner`.

    Raises:
        KernelError: the back end or an operation's name is unknown, or the back end is not usable.
    """
    if isinstance(kernels, Mapping):
        return _twins() | _own(kernels)
    backend = announce(choose_backend()).name if kernels is None else kernels
    if backend not in BACKENDS:
        raise KernelError(f"There is no back end {backend!r}.", expected=", ".join(BACKENDS))
    if backend == "torch":
        return _twins()
    runner = KernelRunner(backend, checked=checked, stream=stream)
    return {name: runner.function(name) for name in OPS}


def _twins() -> dict[str, Callable[..., Any]]:
    return {name: op.twin for name, op in OPS.items()}


def _own(functions: Mapping[str, Callable[..., Any]]) -> dict[str, Callable[..., Any]]:
    own = {_FILES_NAMES.get(name, name): function for name, function in functions.items()}
    for name, function in own.items():
        if name not in OPS:
            raise KernelError(f"No operation is called {name!r}.", expected=", ".join(OPS))
        if not callable(function):
            raise KernelError(f"The kernel for {name!r} is {function!r}.", expected="a function")
    return own
