"""Every notebook of the course: its stored form, and one run from top to bottom.

CI executes each notebook once: those with panels in JupyterLab (`tests/browser`), the others here;
without a browser, all of them here. The time of each cell is in pytest's report.
"""

import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tinyvllm_lab.course import notebook_format
from tinyvllm_lab.course.notebook_run import output_differences, panel_cells, run
from tinyvllm_lab.course.notebook_stills import BROWSERS
from tinyvllm_lab.course.notebooks import all_notebooks

HERE = Path(__file__)
IN_LAB = sorted((HERE.parents[1] / "browser").glob("test_*_chapters_in_lab.py"))
HAS_BROWSER = any(map(shutil.which, BROWSERS))
NOTEBOOKS = [pytest.param(path, id=path.stem) for path in all_notebooks()]
RUN_HERE = [
    pytest.param(path, id=path.stem)
    for path in all_notebooks()
    if not (HAS_BROWSER and panel_cells(notebook_format.read(path)))
]


@pytest.mark.parametrize("path", NOTEBOOKS)
def test_it_is_stored_in_the_canonical_form(path: Path) -> None:
    assert notebook_format.check_file(path) == []


if RUN_HERE:  # pytest would call an empty list a test that is left out

    @pytest.mark.timeout(900)
    @pytest.mark.parametrize("path", RUN_HERE)
    def test_it_runs_and_prints_what_is_stored(path: Path, record_property) -> None:
        done = run(path)
        record_property("took", done.summary)
        differences = output_differences(done.stored, done.executed)
        assert not differences, "\n".join(["outputs are not what is stored:", *differences])


def _executions(path_variable: str) -> Counter[str]:
    """How often each notebook is run, here and in JupyterLab, with these programs."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider"]
    env = {**os.environ, "PATH": path_variable}
    listed = subprocess.run(
        [*command, HERE, *IN_LAB], env=env, capture_output=True, text=True, check=True
    ).stdout
    here = re.findall(r"test_it_runs_and_prints_what_is_stored\[(.+)\]", listed)
    in_lab = re.findall(r"_chapters_in_lab\.py::\w+\[(.+)\]", listed)
    has_browser = any(shutil.which(name, path=path_variable) for name in BROWSERS)
    return Counter([*here, *(in_lab if has_browser else [])])  # else they are marked `needs`


def test_each_notebook_is_executed_once_with_a_browser_and_without(tmp_path: Path) -> None:
    once = Counter(path.stem for path in all_notebooks())
    assert _executions(os.environ["PATH"]) == once
    assert _executions(str(tmp_path)) == once
