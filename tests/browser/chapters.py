"""A notebook with panels, run in JupyterLab as a reader does, and then played with.

These notebooks are executed here and nowhere else; `tests/course/test_shipped_notebooks.py` has the
others, and all of them where there is no browser. Two files share them, for two test processes.
"""

from collections.abc import Callable
from pathlib import Path

import pytest
from widget_drivers import drive

from tinyvllm_lab.course.notebook_format import read
from tinyvllm_lab.course.notebook_run import output_differences, panel_cells
from tinyvllm_lab.course.notebooks import all_notebooks


def with_panels(is_mine: Callable[[str], bool]) -> list:
    """The notebooks that have cells with the tag `panel`, as parameters of a test."""
    return [
        pytest.param(path, id=path.stem)
        for path in all_notebooks()
        if is_mine(path.stem) and panel_cells(read(path))
    ]


def run_and_play(path: Path, lab, open_notebook, record_property) -> None:
    """It prints what is stored, and its panels show the engine's state whatever one does."""
    notebook = open_notebook(lab.copy(path))
    done = notebook.run_as_a_reader(path)
    record_property("took", f"{done.summary}, in JupyterLab")
    differences = output_differences(done.stored, done.executed)
    assert not differences, "\n".join(["outputs are not what is stored:", *differences])
    for index in panel_cells(done.stored):
        drive(notebook.cell(index))
    assert notebook.trouble() == []
