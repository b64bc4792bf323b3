"""Running a notebook: times, failures that show everything, and the comparison of outputs."""

import base64
import copy
import io
from pathlib import Path

import pytest
from nbformat import v4
from PIL import Image

from tinyvllm_lab.course import notebook_format as form
from tinyvllm_lab.course.notebook_run import (
    NotebookFailure,
    NotebookRun,
    output_differences,
    panel_cells,
    run,
)
from tinyvllm_lab.course.notebook_stills import PLOTLY, add_stills, packed


def make(path: Path, *sources: str) -> Path:
    cells = [v4.new_markdown_cell("# Title"), *map(v4.new_code_cell, sources)]
    form.write(v4.new_notebook(cells=cells), path)
    return path


def test_cells_run_in_the_notebooks_folder_and_are_timed(tmp_path: Path) -> None:
    (tmp_path / "beside.txt").write_text("beside")
    path = make(tmp_path / "a.ipynb", "import time; time.sleep(0.2)", "open('beside.txt').read()")
    before = path.read_bytes()
    done = run(path)
    assert [t.index for t in done.times] == [1, 2]
    assert done.times[0].seconds >= 0.2
    assert done.executed.cells[2].outputs[0].data["text/plain"] == "'beside'"
    assert path.read_bytes() == before
    form.write(done.executed, path)
    assert form.check_file(path) == []


def test_a_notebook_that_jupyterlab_ran_tells_its_times(tmp_path: Path) -> None:
    path = make(tmp_path / "a.ipynb", "slow()", "x = 1", "never_run()")
    executed = form.read(path)
    for index, ended in ((1, "09:00:02.250"), (2, "09:00:00.100")):
        executed.cells[index].metadata["execution"] = {
            "iopub.execute_input": "2026-11-30T09:00:00.000000Z",
            "shell.execute_reply": f"2026-11-30T{ended}000Z",
        }
    done = NotebookRun.saved(path, executed)
    assert [(t.index, t.seconds) for t in done.times] == [(1, 2.25), (2, 0.1)]
    assert done.summary == "a.ipynb: 2.4 s (cell 1 2.2 s)"
    assert done.executed is executed
    assert done.stored == form.read(path)


def test_panel_cells_are_those_with_the_tag() -> None:
    cells = [_printing("", tags).cells[0] for tags in ((), ("panel",), ("varies", "panel"))]
    assert panel_cells(v4.new_notebook(cells=cells)) == [1, 2]


def test_a_failing_cell_shows_its_source_its_output_and_the_times_before(tmp_path: Path) -> None:
    path = make(tmp_path / "a.ipynb", "x = 1", "print('so far'); 1/0")
    with pytest.raises(NotebookFailure) as failure:
        run(path)
    text = str(failure.value)
    for part in ("a.ipynb, cell 2: raised", "print('so far')", "    so far", "ZeroDivisionError"):
        assert part in text
    assert "s  cell 1: x = 1" in text
    assert "s  cell 2" not in text


def test_a_dead_kernel_is_called_by_its_name(tmp_path: Path) -> None:
    path = make(tmp_path / "a.ipynb", "x = 1", "import os; os._exit(1)")
    with pytest.raises(NotebookFailure, match="cell 2: KERNEL DEAD"):
        run(path)


def test_a_cell_that_hangs_is_ended(tmp_path: Path) -> None:
    path = make(tmp_path / "a.ipynb", "import time; time.sleep(60)")
    with pytest.raises(NotebookFailure, match="cell 1: took too long"):
        run(path, timeout=1)


def _printing(text: str, tags: tuple[str, ...] = ()):
    stdout = v4.new_output("stream", text=text)
    bar = v4.new_output("stream", name="stderr", text=f"progress {text}")
    cell = v4.new_code_cell("print(x)", metadata={"tags": list(tags)}, outputs=[stdout, bar])
    return v4.new_notebook(cells=[cell])


def test_a_changed_line_is_found_and_colours_are_not() -> None:
    (difference,) = output_differences(_printing("1\n2\n"), _printing("1\n3\n"))
    assert "cell 0: print(x)" in difference
    assert "-2" in difference
    assert "+3" in difference
    assert output_differences(_printing("1"), _printing("\x1b[31m1\x1b[0m")) == []


def test_pictures_and_tagged_cells_are_not_compared() -> None:
    assert output_differences(_printing("1", ("varies",)), _printing("2", ("varies",))) == []
    old = v4.new_notebook(cells=[v4.new_code_cell("fig")])
    new = copy.deepcopy(old)
    new.cells[0].outputs = [v4.new_output("display_data", {PLOTLY: {}, "text/plain": "Figure"})]
    assert output_differences(old, new) == []


@pytest.mark.needs("chromium")
def test_a_chart_gets_a_still(tmp_path: Path) -> None:
    source = "import plotly.graph_objects as go\ngo.Figure(go.Bar(y=[1, 2]), {'width': 300})"
    done = run(make(tmp_path / "a.ipynb", source))
    assert add_stills(done.executed) == 1
    form.write(done.executed, tmp_path / "a.ipynb")
    assert form.check_file(tmp_path / "a.ipynb") == []
    (output,) = form.read(tmp_path / "a.ipynb").cells[1].outputs
    assert set(output.data) == {PLOTLY, "image/png"}
    assert output.metadata["image/png"] == {"width": 300, "height": 380}
    still = Image.open(io.BytesIO(base64.b64decode(output.data["image/png"])))
    assert still.size == (300, 380)


def _png(picture: Image.Image) -> bytes:
    file = io.BytesIO()
    picture.save(file, "PNG", compress_level=0)
    return file.getvalue()


def test_a_still_of_few_colours_is_packed_into_a_palette() -> None:
    picture = Image.new("RGBA", (200, 100), (0, 0, 0, 0))
    picture.paste((0, 114, 178, 255), (20, 20, 180, 80))
    small = Image.open(io.BytesIO(packed(_png(picture))))
    assert small.mode == "P"
    assert small.convert("RGBA").tobytes() == picture.tobytes()


def test_a_still_of_many_shades_keeps_them() -> None:
    fade = Image.new("RGBA", (256, 100), (213, 94, 0, 255))
    fade.putalpha(Image.linear_gradient("L").resize((256, 100)))
    assert Image.open(io.BytesIO(packed(_png(fade)))).convert("RGBA") == fade
