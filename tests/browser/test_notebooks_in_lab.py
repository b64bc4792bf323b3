"""Every notebook that has panels, run in JupyterLab as a reader does, and then played with.

These are executed here and nowhere else; `tests/course/test_shipped_notebooks.py` has the others,
and all of them where there is no browser.
"""

from pathlib import Path

import pytest
from widget_drivers import drive

from tinyvllm_lab.course.notebook_format import read
from tinyvllm_lab.course.notebook_run import output_differences, panel_cells
from tinyvllm_lab.course.notebooks import all_notebooks

pytestmark = [pytest.mark.needs("chromium"), pytest.mark.timeout(600)]
WITH_PANELS = [
    pytest.param(path, id=path.stem) for path in all_notebooks() if panel_cells(read(path))
]


@pytest.mark.parametrize("path", WITH_PANELS)
def test_it_prints_what_is_stored_and_its_panels_show_the_engine(
    path: Path, lab, open_notebook, record_property
):
    notebook = open_notebook(lab.copy(path))
    done = notebook.run_as_a_reader(path)
    record_property("took", f"{done.summary}, in JupyterLab")
    differences = output_differences(done.stored, done.executed)
    assert not differences, "\n".join(["outputs are not what is stored:", *differences])
    for index in panel_cells(done.stored):
        drive(notebook.cell(index))
    assert notebook.trouble() == []
