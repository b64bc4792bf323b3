"""The canonical form: what is fixed, what is only reported, and that fixing is idempotent."""

from pathlib import Path

import nbformat
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nbformat import v4

from tinyvllm_lab.course import notebook_format as form


def chapter(*cells: nbformat.NotebookNode) -> nbformat.NotebookNode:
    return form.fixed(v4.new_notebook(cells=[v4.new_markdown_cell("# Title"), *cells]))


def code(source: str, *, tags: list[str] | None = None, outputs=(), count: int = 1):
    return v4.new_code_cell(
        source, metadata={"tags": tags or []}, outputs=list(outputs), execution_count=count
    )


def picture(**data: str) -> nbformat.NotebookNode:
    return v4.new_output("display_data", data=data)


def messy() -> nbformat.NotebookNode:
    """What JupyterLab, Colab and a widget leave behind."""
    nb = v4.new_notebook(
        cells=[
            v4.new_markdown_cell("# Title  \n\n"),
            v4.new_markdown_cell("## Part", metadata={"slideshow": {"slide_type": "-"}}),
            code("x = 1\n\n", tags=["varies"], outputs=[_view("text/plain")]),
        ]
    )
    nb.metadata = nbformat.from_dict(
        {"widgets": {"application/vnd.jupyter.widget-state+json": {}}, "colab": {"name": "x"}}
    )
    nb.cells[2].metadata["execution"] = {"iopub.status.busy": "2026-01-01"}
    nb.cells[1].id = nb.cells[0].id
    return nb


def _view(*others: str) -> nbformat.NotebookNode:
    return picture(**{form.WIDGET_VIEW: {"model_id": "1"}, **dict.fromkeys(others, "x")})


def test_a_messy_notebook_is_reported_and_fixed() -> None:
    nb = messy()
    text = "\n".join(form.problems(nb))
    for part in ("metadata.widgets", "metadata.colab", "cell 1: id", "cell 2: outputs"):
        assert part in text
    fixed = form.fixed(nb)
    assert form.problems(fixed) == []
    assert "widgets" not in fixed.metadata
    assert fixed.metadata.kernelspec.name == "python3"
    assert fixed.cells[2].metadata == {"tags": ["varies"]}
    assert fixed.cells[1].metadata.slideshow.slide_type == "slide"
    assert messy().cells[0].source == nb.cells[0].source == "# Title  \n\n", "the input is kept"


def test_a_fixed_notebook_is_valid_for_the_library() -> None:
    nbformat.validate(form.fixed(messy()))


def test_headings_become_slides_and_other_cells_go_on() -> None:
    nb = chapter(
        v4.new_markdown_cell("## Part"),
        v4.new_markdown_cell("### Detail"),
        v4.new_markdown_cell("#no heading"),
        v4.new_markdown_cell("## Notes", metadata={"slideshow": {"slide_type": "notes"}}),
        code("1"),
    )
    types = [c.metadata.get("slideshow", {}).get("slide_type") for c in nb.cells]
    assert types == ["slide", "slide", "subslide", None, "notes", None]


def test_the_widget_view_goes_and_the_still_stays() -> None:
    still = _view("image/png", "text/plain")
    nb = chapter(code("panel", tags=["panel"], outputs=[still]))
    assert set(nb.cells[1].outputs[0].data) == {"image/png", "text/plain"}
    assert form.problems(nb) == []


@pytest.mark.parametrize(
    ("cell", "words"),
    [
        (v4.new_markdown_cell("### Exercise 1: a pool"), "without the tag `exercise`"),
        (code("1", tags=["vary"]), "unknown tag vary"),
        (code("p", tags=["panel"]), "holds no still|hold no still"),
        (code("1", outputs=[picture(**{"text/html": "<script src='x'>"})]), "with a script"),
        (code("1", outputs=[v4.new_output("stream", text="/home/ann/x")]), "path of one machine"),
        (
            code("1", outputs=[v4.new_output("error", ename="E", evalue="", traceback=[])]),
            "is an error",
        ),
        (code("1", count=7), "not run once each from top to bottom"),
    ],
)
def test_what_no_program_can_fix_is_reported(cell, words: str) -> None:
    nb = chapter(cell)
    (problem,) = form.problems(nb)
    assert any(w in problem for w in words.split("|"))
    assert form.problems(form.fixed(nb)) == [problem]


def test_an_error_on_purpose_is_no_problem() -> None:
    error = v4.new_output("error", ename="E", evalue="", traceback=[])
    assert form.problems(chapter(code("1/0", tags=["raises-exception"], outputs=[error]))) == []


def test_a_notebook_without_a_title_or_over_the_limit_is_reported() -> None:
    nb = form.fixed(v4.new_notebook(cells=[v4.new_markdown_cell("text")]))
    assert form.problems(nb) == ["the first cell is not a heading of level 1"]
    (problem,) = form.problems(chapter(), size=form.MAX_BYTES + 1)
    assert "2,000,001 bytes" in problem


def test_a_file_is_held_to_the_exact_bytes(tmp_path: Path) -> None:
    path = tmp_path / "00_x.ipynb"
    form.write(messy(), path)
    assert form.check_file(path) == []
    path.write_text(path.read_text().replace("\n ", "\n  "))
    assert form.check_file(path) == [
        "the file is not written in the canonical way: `fix` rewrites it"
    ]


cells = st.builds(
    lambda kind, source, tags, cell_id: {
        "cell_type": kind, "source": source, "metadata": {"tags": tags, "x": 1}, "id": cell_id,
        **({"outputs": [], "execution_count": None} if kind == "code" else {}),
    },
    st.sampled_from(["code", "markdown", "raw"]), st.text(max_size=20),
    st.lists(st.sampled_from([*form.TAGS, "odd"]), max_size=3), st.text(max_size=3),
)  # fmt: skip


@given(st.lists(cells, max_size=6))
def test_fixing_twice_changes_nothing_more(raw: list[dict]) -> None:
    nb = nbformat.from_dict({"cells": raw, "metadata": {}, "nbformat": 4, "nbformat_minor": 4})
    once = form.fixed(nb)
    assert form.fixed(once) == once
    assert len({c.id for c in once.cells}) == len(raw)
    assert [c.source.split() for c in once.cells] == [c["source"].split() for c in raw]
    nbformat.validate(once)
    assert nbformat.reads(form.text_of(once), as_version=4) == once
