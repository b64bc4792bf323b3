"""Recorded x-rays: for machines that cannot build a kernel, and for pages without one.

`assets/xrays/` holds those of the chapters, with the script that made them. A recording stands for
a call if source, kernel, launch and the shapes of the arguments are the same: then `xray` and
`check` give it where there is no compiler, and say so.
"""

import functools
import json
import lzma
from collections.abc import Sequence
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

from tinyvllm_lab.errors import KernelError
from tinyvllm_lab.kernels.arguments import Geometry
from tinyvllm_lab.kernels.backend import why_not_cpu
from tinyvllm_lab.kernels.build_cache import digest
from tinyvllm_lab.kernels.module import Function, Module
from tinyvllm_lab.kernels.signatures import Signature
from tinyvllm_lab.kernels.sources import source_closure
from tinyvllm_lab.kernels.xray_data import XRay
from tinyvllm_lab.paths import assets_dir

SUFFIX = ".xray"
INDEX = "index.json"


def recordings_dir() -> Path:
    """The folder of the shipped recordings."""
    return assets_dir() / "xrays"


def recorded_xray(name: str) -> XRay:
    """A shipped x-ray, by name: "per_token", "rmsnorm_tree_f32", ...

    Raises:
        KernelError: there is none of that name; the message lists those there are.
    """
    path = recordings_dir() / f"{name}{SUFFIX}"
    if not path.is_file():
        known = ", ".join(sorted(p.stem for p in recordings_dir().glob(f"*{SUFFIX}")))
        raise KernelError(f"There is no recorded x-ray {name!r}.", f"one of: {known}")
    return read_xray(path)


def read_xray(path: Path) -> XRay:
    """The x-ray in a file that `write_xray` made.

    Raises:
        KernelError: the file cannot be read, or holds something else.
    """
    try:
        data = json.loads(lzma.decompress(path.read_bytes()))
        for thread in data["steps"]:
            thread.update({name: list(accumulate(thread[name])) for name in _DIFFERENCES})
        return XRay.from_json(data)
    except (OSError, EOFError, lzma.LZMAError, ValueError, KeyError, TypeError) as error:
        raise KernelError(
            f"{path.name} cannot be read: {error}.", "an x-ray that write_xray stored"
        ) from None


def write_xray(xray: XRay, path: Path) -> None:
    """Store an x-ray: compressed JSON, in which some columns hold differences.

    Raises:
        OSError: the file cannot be written.
    """
    data = xray.to_json()
    for thread in data["steps"]:
        thread.update({name: _differences(thread[name]) for name in _DIFFERENCES})
    path.write_bytes(lzma.compress(json.dumps(data, separators=(",", ":")).encode()))


_DIFFERENCES = ("offsets", "requests")  # what a loop repeats, with other numbers each time


def _differences(values: list[int]) -> list[int]:
    return [after - before for before, after in pairwise([0, *values])]


def call_key(
    function: Function, args: Sequence[Any], launch: Geometry, blocks: tuple[int, int] | None
) -> str:
    """What tells one call from another: all but the values in its arrays.

    Args:
        function: the kernel.
        args: its arguments.
        launch: grid, block and shared memory.
        blocks: first and one past the last logged block of an x-ray; None: a check.
    """
    shapes = [(str(a.dtype), tuple(a.shape)) if hasattr(a, "shape") else a for a in args]
    return digest(function.name, source_key(function.module), shapes, launch, blocks)


def source_key(module: Module) -> str:
    """What tells one source from another: the text with all that it includes, and the macros."""
    source = source_closure(module.source).items()
    return digest(module.defines, sorted((path.name, data) for path, data in source))


@functools.cache
def index() -> dict[str, Any]:
    """What is recorded.

    "sources" are the keys of the files; "xrays" has the name of each call's x-ray; "checks" has
    what each checked call found.
    """
    path = recordings_dir() / INDEX
    if not path.is_file():
        return {"sources": [], "xrays": {}, "checks": {}}
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


class RecordedFunction(Function):
    """A kernel that cannot be built here: `xray` and `check` know it from a recording."""

    def __call__(self, *args: Any, **launch: Any) -> None:
        """Refuse.

        Raises:
            KernelError: always; it says what is missing.
        """
        raise missing_compiler(f"{self.name} cannot run here")


class RecordedModule(Module):
    """A file that cannot be built here, but was recorded."""

    def __init__(self, source: Path, defines: tuple[str, ...]) -> None:
        super().__init__(source, (), _NoLauncher(), defines)

    def get_function(self, name: str) -> Function:
        """The kernel of that name, if there is one; its parameters are not known."""
        return RecordedFunction(self, Signature(name, ()))


class _NoLauncher:
    backend = "none"

    def check_device(self, where: str, array: Any) -> None:
        raise missing_compiler(where)

    def launch(self, signature: Signature, *_: Any) -> None:
        raise missing_compiler(signature.name)


def missing_compiler(what: str) -> KernelError:
    """An error that says what is missing to run a kernel on this machine's CPU."""
    return KernelError(
        f"{what}: {why_not_cpu()}",
        fix="Install g++ on Linux. Recorded x-rays show without: recorded_xray(name).",
    )


def recorded_module(source: Path, defines: tuple[str, ...]) -> Module:
    """Stands in for a file on a machine without a compiler.

    Raises:
        KernelError: the file is not one of those that were recorded.
    """
    module = RecordedModule(source, defines)
    if source_key(module) not in index()["sources"]:
        raise missing_compiler(f"{source.name} cannot be built")
    return module


def recorded_call(
    kind: str,
    function: Function,
    args: Sequence[Any],
    launch: Geometry,
    blocks: tuple[int, int] | None,
) -> Any:
    """The recording of this very call, announced in one line.

    Args:
        kind: "xrays" or "checks".
        function: as for `call_key`.
        args: as for `call_key`.
        launch: as for `call_key`.
        blocks: as for `call_key`.

    Raises:
        KernelError: this call was not recorded.
    """
    found = index()[kind].get(call_key(function, args, launch, blocks))
    if found is None:
        raise missing_compiler(f"{function.name} cannot run here, and this call was not recorded")
    print(f"{why_not_cpu()} This is a recording; the arrays stay as they are.")
    return found
