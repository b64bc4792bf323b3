"""Keep what a compiler made, keyed by everything that went into it."""

import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from tinyvllm_lab.errors import KernelError


def cache_dir() -> Path:
    """Folder of all builds: `$TINYVLLM_CACHE_DIR`, or `tinyvllm-lab` in the user's cache folder.

    Deleting it is always safe.
    """
    chosen = os.environ.get("TINYVLLM_CACHE_DIR")
    if chosen:
        return Path(chosen) / "kernels"
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "tinyvllm-lab" / "kernels"


def digest(*parts: object) -> str:
    """24 hex digits that change when any part changes; bytes as they are, the rest by `str()`."""
    sha = hashlib.sha256()
    for part in parts:
        data = part if isinstance(part, bytes) else str(part).encode()
        sha.update(len(data).to_bytes(8, "little") + data)
    return sha.hexdigest()[:24]


def build_once(name: str, build: Callable[[Path], None]) -> Path:
    """The folder `name` of the cache, filled by `build(folder)` if it is not there yet.

    The build happens in a temporary folder that is moved into place when it is complete, so a
    failed or interrupted build leaves nothing, and two processes cannot disturb each other.

    Raises:
        KernelError: the cache folder cannot be written; or whatever `build` raises.
    """
    target = cache_dir() / name
    if target.is_dir():
        return target
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=".building-", dir=target.parent))
    except OSError as error:
        raise KernelError(
            f"The build cache {target.parent} cannot be written: {error.strerror}.",
            fix="Set TINYVLLM_CACHE_DIR to a folder that you may write to.",
        ) from error
    try:
        build(temporary)
        _move_into_place(temporary, target)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return target


def _move_into_place(temporary: Path, target: Path) -> None:
    temporary.chmod(0o755)
    try:
        os.replace(temporary, target)
    except OSError:
        if not target.is_dir():  # else another process was faster, with the same result
            raise
