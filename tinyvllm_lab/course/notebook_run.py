"""Run a notebook as a reader would, cell by cell, and compare its outputs with the stored ones."""

from __future__ import annotations

import copy
import difflib
import os
import re
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
from nbformat import NotebookNode

from tinyvllm_lab.course.notebook_format import WIDGET_VIEW, read
from tinyvllm_lab.errors import TinyVllmError

CELL_TIMEOUT_S = 300
PLOTLY = "application/vnd.plotly.v1+json"

_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_PICTURES = (PLOTLY, WIDGET_VIEW, "image/png", "image/svg+xml")


class NotebookFailure(TinyVllmError):
    """A notebook did not run to its end."""


@dataclass(slots=True)
class CellTime:
    """How long one code cell took."""

    index: int
    seconds: float
    title: str


@dataclass(slots=True)
class NotebookRun:
    """A notebook that ran from top to bottom."""

    path: Path
    stored: NotebookNode
    executed: NotebookNode
    times: list[CellTime] = field(default_factory=list)

    @classmethod
    def saved(cls, path: Path, executed: NotebookNode) -> NotebookRun:
        """A run in JupyterLab, which has saved the notebook with the time of each cell.

        Args:
            path: the notebook as it is stored.
            executed: the same notebook, run and saved with JupyterLab's setting `recordTiming`.
        """
        return cls(path, read(path), executed, list(_recorded_times(executed)))

    @property
    def seconds(self) -> float:
        """Time of all cells together, without the start of the kernel."""
        return sum(t.seconds for t in self.times)

    @property
    def summary(self) -> str:
        """The time of the notebook and of its slowest cells, in one line."""
        slow = sorted(self.times, key=lambda t: -t.seconds)[:5]
        cells = ", ".join(f"cell {t.index} {t.seconds:.1f} s" for t in slow if t.seconds >= 0.5)
        return f"{self.path.name}: {self.seconds:.1f} s ({cells or 'all fast'})"


def run(path: Path, *, timeout: int = CELL_TIMEOUT_S) -> NotebookRun:
    """Run every cell of the notebook at `path` in a fresh kernel, in the notebook's folder.

    Args:
        path: the notebook; it is not changed.
        timeout: seconds that one cell may take.

    Raises:
        NotebookFailure: a cell raised, took too long, or killed the kernel. The message shows the
            cell, everything that it had printed, and the time of each cell before it.
    """
    stored = read(path)
    result = NotebookRun(path, stored, copy.deepcopy(stored))
    clock = _CellClock(result.times)
    client = NotebookClient(
        result.executed,
        timeout=timeout,
        kernel_name="python3",
        coalesce_streams=True,
        store_widget_state=False,
        record_timing=False,
        extra_arguments=["--log-level=ERROR"],
        resources={"metadata": {"path": str(path.parent)}},
        on_cell_start=clock.start,
        on_cell_executed=clock.stop,
    )
    with tempfile.TemporaryDirectory() as ipython_dir:
        try:
            client.execute(env=_kernel_environment(ipython_dir))
        except (CellExecutionError, CellTimeoutError, DeadKernelError) as error:
            raise NotebookFailure(_failure_text(result, clock, error)) from None
    return result


def panel_cells(nb: NotebookNode) -> list[int]:
    """The places of the cells that show a panel."""
    return [i for i, cell in enumerate(nb.cells) if "panel" in cell.metadata.get("tags", [])]


def output_differences(stored: NotebookNode, executed: NotebookNode) -> list[str]:
    """Where the stored text outputs are not what the code prints, as unified diffs.

    Pictures are not compared, nor what goes to stderr (progress bars), nor cells tagged `varies`
    or `panel`.
    """
    found = []
    for index, (old, new) in enumerate(zip(stored.cells, executed.cells, strict=True)):
        if old.cell_type != "code" or {"varies", "panel"} & set(old.metadata.get("tags", [])):
            continue
        diff = difflib.unified_diff(
            _printed(old).splitlines(), _printed(new).splitlines(), "stored", "printed", lineterm=""
        )
        if lines := list(diff):
            found.append("\n".join([f"cell {index}: {_title(old)}", *lines]))
    return found


class _CellClock:
    """Times the cells of one run; nbclient calls it before and after each code cell."""

    def __init__(self, times: list[CellTime]) -> None:
        self.times = times
        self.index = 0
        self.began = time.perf_counter()

    def start(self, cell: NotebookNode, cell_index: int) -> None:
        self.index, self.began = cell_index, time.perf_counter()

    def stop(self, cell: NotebookNode, cell_index: int, execute_reply: dict[str, Any]) -> None:
        self.times.append(CellTime(cell_index, self.elapsed, _title(cell)))

    @property
    def elapsed(self) -> float:
        return time.perf_counter() - self.began


def _recorded_times(nb: NotebookNode) -> Iterator[CellTime]:
    for index, cell in enumerate(nb.cells):
        moments = cell.metadata.get("execution", {})
        if "shell.execute_reply" in moments:
            began, ended = (
                datetime.fromisoformat(moments[name])
                for name in ("iopub.execute_input", "shell.execute_reply")
            )
            yield CellTime(index, (ended - began).total_seconds(), _title(cell))


def _kernel_environment(ipython_dir: str) -> dict[str, str]:
    # No start-up files of whoever runs this, and figures as data instead of 5 MB of script.
    return {**os.environ, "IPYTHONDIR": ipython_dir, "PLOTLY_RENDERER": "plotly_mimetype"}


def _failure_text(result: NotebookRun, clock: _CellClock, error: Exception) -> str:
    cell = result.executed.cells[clock.index]
    happened = {
        DeadKernelError: "KERNEL DEAD (out of memory, or a crash in compiled code)",
        CellTimeoutError: "took too long",
    }.get(type(error), "raised an error")
    return "\n".join([
        f"{result.path.name}, cell {clock.index}: {happened} after {clock.elapsed:.1f} s.",
        *(f"    {line}" for line in cell.source.split("\n")),
        "It had printed:",
        *(f"    {line}" for line in "\n".join(_everything(cell)).split("\n")),
        "Cells before it:",
        *(f"    {t.seconds:6.1f} s  cell {t.index}: {t.title}" for t in result.times
          if t.index < clock.index),
    ])  # fmt: skip


def _everything(cell: NotebookNode) -> Iterator[str]:
    for output in cell.outputs:
        if output.output_type == "error":
            yield _ANSI.sub("", "\n".join(output.traceback))
        else:
            yield output.get("text", "") or str(output.get("data", {}).get("text/plain", ""))


def _printed(cell: NotebookNode) -> str:
    return _ANSI.sub("", "".join(map(_printed_by, cell.outputs)))


def _printed_by(output: NotebookNode) -> str:
    if output.output_type == "stream":
        return output.text if output.name == "stdout" else ""
    if output.output_type == "error":
        return f"{output.ename}: {output.evalue}\n"
    if any(kind in output.data for kind in _PICTURES):
        return ""
    return str(output.data.get("text/plain", "")) + "\n"


def _title(cell: NotebookNode) -> str:
    return next((line.strip() for line in cell.source.split("\n") if line.strip()), "(empty)")[:60]
