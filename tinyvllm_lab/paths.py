"""Where the course's files live: one answer for a clone, an editable install and a wheel."""

import os
from pathlib import Path

from tinyvllm_lab.errors import TinyVllmError

_PACKAGE = Path(__file__).resolve().parent


def resource_dir(name: str) -> Path:
    """Folder `name` ("assets" or "kernels"), wherever this installation keeps it.

    A wheel carries both inside the package (as `_assets`, `_kernels`); a clone has them at the top
    level, beside the package.

    Raises:
        TinyVllmError: neither place has it.
    """
    for candidate in (_PACKAGE / f"_{name}", _PACKAGE.parent / name):
        if candidate.is_dir():
            return candidate
    raise TinyVllmError(
        f"The folder {name!r} is missing from this installation.",
        expected=f"{_PACKAGE / f'_{name}'} or {_PACKAGE.parent / name}",
        fix="Install tinyvllm-lab again, or run it from a complete clone.",
    )


def assets_dir() -> Path:
    """The folder with the shipped model, recorded runs and tables."""
    return resource_dir("assets")


def kernels_dir() -> Path:
    """The folder with the CUDA C++ sources."""
    return resource_dir("kernels")


def user_cache_dir() -> Path:
    """The folder for what this user downloaded or built; it need not exist yet.

    The variable `TINYVLLM_LAB_CACHE` moves it.
    """
    if chosen := os.environ.get("TINYVLLM_LAB_CACHE"):
        return Path(chosen).expanduser()
    caches = os.environ.get("XDG_CACHE_HOME")
    return (Path(caches) if caches else Path.home() / ".cache") / "tinyvllm-lab"
