"""Makes the recorded x-rays of chapters 06, 07 and 11: `python make_xrays.py`.

It runs the cells of the chapters as they stand, and keeps each x-ray and each check on the way. So
make them again after a change of these chapters or of the kernels that they show. Cells that build
a model, and those that need what such a cell made, are left out: they x-ray nothing.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tinyvllm_lab import kernels
from tinyvllm_lab.course.notebook_format import read
from tinyvllm_lab.kernels import inspection
from tinyvllm_lab.kernels.arguments import geometry
from tinyvllm_lab.kernels.cpu.build import find_compiler
from tinyvllm_lab.kernels.module import Function
from tinyvllm_lab.kernels.recorded import INDEX, SUFFIX, call_key, source_key, write_xray
from tinyvllm_lab.kernels.xray_data import XRay
from tinyvllm_lab.paths import kernels_dir

HERE = Path(__file__).parent
NOTEBOOKS = HERE.parents[1] / "notebooks"
CHAPTERS = ("06_kernels_one", "07_kernels_two", "11_paged_attention_kernel")


@dataclass
class Recorder:
    """Stands in for `xray` and `check`, and keeps what they found."""

    sources: set[str] = field(default_factory=set)
    xrays: dict[str, XRay] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    checks: dict[str, Any] = field(default_factory=dict)

    def xray(
        self,
        function: Function,
        *args: Any,
        grid: int | Sequence[int],
        block: int | Sequence[int],
        shared: int = 0,
        blocks: int | range = 1,
    ) -> XRay:
        """As `kernels.xray`."""
        size = {"grid": grid, "block": block, "shared": shared}
        found = inspection.xray(function, *args, **size, blocks=blocks)
        launch = geometry(grid, block, shared)
        key = call_key(function, args, launch, inspection.logged_blocks(blocks, launch.num_blocks))
        if key not in self.names:
            self.names[key] = self._free_name(function)
            self.xrays[self.names[key]] = found
        self.sources.add(source_key(function.module))
        return found

    def check(
        self,
        function: Function,
        *args: Any,
        grid: int | Sequence[int],
        block: int | Sequence[int],
        shared: int = 0,
    ) -> inspection.CheckResult:
        """As `kernels.check`."""
        size = {"grid": grid, "block": block, "shared": shared}
        found = inspection.check(function, *args, **size)
        findings = [finding.to_json() for finding in found.findings]
        stored = {**vars(found), "findings": findings, "seconds": 0.0}
        self.checks[call_key(function, args, geometry(grid, block, shared), None)] = stored
        self.sources.add(source_key(function.module))
        return found

    def _free_name(self, function: Function) -> str:
        """The kernel's name for the course's files, the file's for those of a cell."""
        source = function.module.source
        name = function.name if source.parent == kernels_dir().resolve() else source.stem
        names = itertools.chain([name], (f"{name}_{n}" for n in itertools.count(2)))
        return next(one for one in names if one not in self.xrays)


def record(chapter: str, recorder: Recorder) -> None:
    """Run a chapter's cells, up to its last x-ray, with the recorder in place."""
    cells = list(_cells(chapter))
    last = max(n for n, cell in enumerate(cells) if "xray" in cell or "look" in cell)
    names: dict[str, Any] = {"__name__": chapter}
    with _in_place(recorder), contextlib.redirect_stdout(io.StringIO()):
        for cell in cells[: last + 1]:
            with contextlib.suppress(NameError):
                exec(compile(cell, chapter, "exec"), names)


def _cells(chapter: str) -> Iterator[str]:
    for cell in read(NOTEBOOKS / f"{chapter}.ipynb").cells:
        left_out = {"exercise", "varies"} & set(cell.metadata.get("tags", []))
        if cell.cell_type == "code" and not left_out and "LLM(" not in cell.source:
            yield cell.source


@contextlib.contextmanager
def _in_place(recorder: Recorder) -> Iterator[None]:
    """`from tinyvllm_lab.kernels import xray, check` gives the recorder's."""
    mine = {"xray": recorder.xray, "check": recorder.check}
    old = {name: getattr(kernels, name) for name in mine}
    vars(kernels).update(mine)
    try:
        yield
    finally:
        vars(kernels).update(old)


def store(recorder: Recorder, folder: Path) -> None:
    """Write the x-rays and their index."""
    for old in folder.glob(f"*{SUFFIX}"):
        old.unlink()
    for name, found in recorder.xrays.items():
        write_xray(found, folder / f"{name}{SUFFIX}")
    index = {
        "compiler": find_compiler().version,
        "sources": sorted(recorder.sources),
        "xrays": dict(sorted(recorder.names.items())),
        "checks": dict(sorted(recorder.checks.items())),
    }
    (folder / INDEX).write_text(json.dumps(index, indent=1) + "\n", encoding="utf-8")


def main() -> None:
    """Make all of them again, in place."""
    recorder = Recorder()
    for chapter in CHAPTERS:
        record(chapter, recorder)
    store(recorder, HERE)
    print(f"{len(recorder.xrays)} x-rays, {len(recorder.checks)} checks")


if __name__ == "__main__":
    main()
