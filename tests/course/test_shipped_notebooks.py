"""Every notebook of the course: its stored form, and one run from top to bottom.

CI executes each notebook once: here. The time of each cell is in pytest's report.
"""

from pathlib import Path

import pytest

from tinyvllm_lab.course import notebook_format
from tinyvllm_lab.course.notebook_run import output_differences, run
from tinyvllm_lab.course.notebooks import all_notebooks

NOTEBOOKS = [pytest.param(path, id=path.stem) for path in all_notebooks()]


@pytest.mark.parametrize("path", NOTEBOOKS)
def test_it_is_stored_in_the_canonical_form(path: Path) -> None:
    assert notebook_format.check_file(path) == []


@pytest.mark.timeout(900)
@pytest.mark.parametrize("path", NOTEBOOKS)
def test_it_runs_and_prints_what_is_stored(path: Path, record_property) -> None:
    done = run(path)
    slow = sorted(done.times, key=lambda t: -t.seconds)[:5]
    cells = ", ".join(f"cell {t.index} {t.seconds:.1f} s" for t in slow if t.seconds >= 0.5)
    record_property("took", f"{path.name}: {done.seconds:.1f} s ({cells or 'all fast'})")
    differences = output_differences(done.stored, done.executed)
    assert not differences, "\n".join(["outputs are not what is stored:", *differences])
