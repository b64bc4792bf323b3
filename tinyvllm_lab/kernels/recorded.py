"""Recorded x-rays: for machines that cannot build a kernel, and for pages without one.

`assets/xrays/` holds those of the chapters, with the script that made them. A recording stands for
a call if source, kernel, launch and the shapes of the arguments are the same: then `xray` gives it
where there is no compiler, and says so.
"""

import functools
import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tinyvllm_lab.errors import KernelError
from tinyvllm_lab.kernels.arguments import Geometry
from tinyvllm_lab.kernels.build_cache import digest
from tinyvllm_lab.kernels.module import Function
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
        return XRay.from_json(json.loads(gzip.decompress(path.read_bytes())))
    except (OSError, EOFError, ValueError, KeyError, TypeError) as error:
        raise KernelError(
            f"{path.name} cannot be read: {error}.", "an x-ray that write_xray stored"
        ) from None


def write_xray(xray: XRay, path: Path) -> None:
    """Store an x-ray: compressed JSON, the same bytes for the same x-ray.

    Raises:
        OSError: the file cannot be written.
    """
    text = json.dumps(xray.to_json(), separators=(",", ":"))
    path.write_bytes(gzip.compress(text.encode(), 9, mtime=0))


def call_key(
    function: Function, args: Sequence[Any], launch: Geometry, blocks: tuple[int, int]
) -> str:
    """What tells one x-ray of a kernel from another: all but the values in its arrays."""
    shapes = [(str(a.dtype), tuple(a.shape)) if hasattr(a, "shape") else a for a in args]
    source = source_closure(function.module.source).items()
    contents = sorted((path.name, data) for path, data in source)
    return digest(function.name, function.module.defines, contents, shapes, launch, blocks)


@functools.cache
def index() -> dict[str, str]:
    """Key of each recorded call -> name of its recording."""
    path = recordings_dir() / INDEX
    if not path.is_file():
        return {}
    names: dict[str, str] = json.loads(path.read_text(encoding="utf-8"))["calls"]
    return names


def find_recorded(
    function: Function, args: Sequence[Any], launch: Geometry, blocks: tuple[int, int]
) -> str | None:
    """Name of the recording of this very call, if it is shipped."""
    return index().get(call_key(function, args, launch, blocks))
