"""Find a kernel's source file and everything it includes."""

import re
from pathlib import Path

from tinyvllm_lab.errors import KernelError
from tinyvllm_lab.kernels.build_cache import build_once, digest
from tinyvllm_lab.paths import kernels_dir

_INCLUDE = re.compile(rb'^\s*#\s*include\s+["<]([^">]+)[">]', re.M)


def find_source(name: str | Path) -> Path:
    """The course's `kernels/<name>.cu`, or the file at a path that ends in `.cu`.

    Raises:
        KernelError: there is no such file; the message lists the course's kernels.
    """
    path = Path(name)
    if path.suffix != ".cu":
        path = kernels_dir() / f"{name}.cu"
    if path.is_file():
        return path.resolve()
    known = ", ".join(sorted(p.stem for p in kernels_dir().glob("*.cu")))
    raise KernelError(f"There is no kernel file {str(name)!r}.", f"a path, or one of: {known}")


def write_source(text: str, name: str) -> Path:
    """Keep a learner's source text as a file, so that reports can name its lines.

    Raises:
        KernelError: `name` is not a plain word.
    """
    if not name.isidentifier():
        raise KernelError(f"{name!r} cannot be a file name.", expected="a name like my_rmsnorm")
    folder = build_once(f"source-{digest(name, text)}", lambda d: _write(d / f"{name}.cu", text))
    return folder / f"{name}.cu"


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")


def include_dirs(source: Path) -> list[Path]:
    """Where the file's `#include "..."` are looked up: beside it, then among the course's."""
    return list(dict.fromkeys([source.parent, kernels_dir()]))


def source_closure(source: Path) -> dict[Path, bytes]:
    """The file and every file of ours that it includes, directly or not: path -> contents.

    System headers are left out: the compiler's version stands for them.
    """
    closure: dict[Path, bytes] = {}
    todo = [source]
    while todo:
        path = todo.pop()
        if path in closure:
            continue
        closure[path] = path.read_bytes()
        for included in _INCLUDE.findall(closure[path]):
            candidates = [d / included.decode() for d in [path.parent, *include_dirs(source)]]
            todo += [c.resolve() for c in candidates if c.is_file()][:1]
    return closure
