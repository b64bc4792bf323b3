"""A loaded kernel file and its kernels: the same call on every back end."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from tinyvllm_lab.errors import KernelError
from tinyvllm_lab.kernels.arguments import Argument, Geometry, bind, geometry
from tinyvllm_lab.kernels.signatures import Signature


class Launcher(Protocol):
    """What a back end must be able to do with a file it has built."""

    backend: str

    def check_device(self, where: str, array: Any) -> None:
        """Raise `KernelError` if the kernel cannot reach the array's memory."""

    def launch(
        self, signature: Signature, arguments: list[Argument], launch: Geometry, stream: Any
    ) -> None:
        """Run the kernel; raise `KernelError` if it fails."""


class Function:
    """One kernel, ready to be called.

    Attributes:
        name: of the kernel.
        signature: its parameters.
        module: the file it comes from.
    """

    def __init__(self, module: "Module", signature: Signature) -> None:
        self.name, self.signature, self.module = signature.name, signature, module

    def __call__(
        self,
        *args: Any,
        grid: int | Sequence[int],
        block: int | Sequence[int],
        shared: int = 0,
        stream: Any = None,
    ) -> None:
        """Launch the kernel.

        Args:
            args: tensors or arrays for pointers (None: a null pointer), numbers for scalars.
            grid: number of blocks, one to three sizes.
            block: number of threads in a block, one to three sizes.
            shared: bytes of dynamic shared memory for each block.
            stream: the GPU stream to queue the launch on; the CPU runs it at once.

        Raises:
            KernelError: an argument does not fit the signature, or the launch failed.
        """
        launch = geometry(grid, block, shared, self.signature.max_threads)
        launcher = self.module.launcher
        bound = bind(self.signature, args, launcher.check_device)
        launcher.launch(self.signature, bound, launch, stream)

    def __repr__(self) -> str:
        return f"<kernel {self.signature} of {self.module.source.name} on {self.module.backend}>"


class Module:
    """The kernels of one `.cu` file, built for one back end.

    Attributes:
        source: the file.
        signatures: kernel name -> its parameters.
        launcher: the back end's side.
        defines: the macros it was built with.
    """

    def __init__(
        self,
        source: Path,
        kernels: Sequence[Signature],
        launcher: Launcher,
        defines: tuple[str, ...] = (),
    ) -> None:
        self.source, self.launcher, self.defines = source, launcher, defines
        self.signatures = {kernel.name: kernel for kernel in kernels}

    @property
    def backend(self) -> str:
        """Which back end runs it: "cuda" or "cpu"."""
        return self.launcher.backend

    def get_function(self, name: str) -> Function:
        """The kernel of that name.

        Raises:
            KernelError: the file has no such kernel; the message lists those it has.
        """
        if name not in self.signatures:
            raise KernelError(
                f"{self.source.name} has no kernel {name!r}.",
                expected=", ".join(self.signatures) or 'extern "C" __global__ void ...',
            )
        return Function(self, self.signatures[name])
