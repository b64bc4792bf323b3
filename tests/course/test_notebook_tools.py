"""The tools' command line, the web pages, and `require`."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from nbformat import v4
from typer.testing import CliRunner

import tinyvllm_lab
from tinyvllm_lab.course import notebook_format as form
from tinyvllm_lab.course.notebook_html import export
from tinyvllm_lab.course.notebook_run import NotebookFailure
from tinyvllm_lab.course.notebooks import all_notebooks, app
from tinyvllm_lab.engine.config import field_specs
from tinyvllm_lab.errors import TinyVllmError


def tool(*arguments: object):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture
def notebook(tmp_path: Path) -> Path:
    cells = [
        v4.new_markdown_cell("# One & two"),
        v4.new_code_cell("print(1 + 1)"),
        v4.new_code_cell("import time\nprint(time.time())", metadata={"tags": ["varies"]}),
    ]
    path = tmp_path / "00_a.ipynb"
    path.write_text(form.text_of(v4.new_notebook(cells=cells)))
    return path


def test_an_author_fixes_writes_checks_and_runs(notebook: Path) -> None:
    assert tool("check", notebook).exit_code == 1
    assert "rewritten" in tool("fix", notebook).output
    done = tool("write", notebook)
    assert done.exit_code == 0, done.exception
    assert form.read(notebook).cells[1].outputs[0].text == "2\n"
    assert tool("check", notebook).exit_code == 0
    done = tool("run", notebook)
    assert done.exit_code == 0, done.output
    assert "00_a.ipynb cell 2" in done.output


def test_a_stored_output_that_is_not_printed_fails_the_run(notebook: Path) -> None:
    tool("write", notebook)
    notebook.write_text(notebook.read_text().replace('"2\\n"', '"3\\n"'))
    done = tool("run", notebook)
    assert done.exit_code == 1
    assert "-3" in done.output
    assert "+2" in done.output


def test_a_failing_notebook_is_a_message_and_keeps_its_file(notebook: Path) -> None:
    notebook.write_text(notebook.read_text().replace("1 + 1", "1 / 0"))
    before = notebook.read_bytes()
    done = tool("write", notebook)
    assert isinstance(done.exception, NotebookFailure)
    assert "ZeroDivisionError" in str(done.exception)
    assert notebook.read_bytes() == before


def test_the_module_runs_and_turns_our_errors_into_a_message(notebook: Path) -> None:
    notebook.write_text(notebook.read_text().replace("1 + 1", "1 / 0"))
    command = [sys.executable, "-m", "tinyvllm_lab.course.notebooks", "run", str(notebook)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.startswith("00_a.ipynb, cell 1: raised an error")


def test_pages_need_no_network(notebook: Path, tmp_path: Path) -> None:
    index = export([notebook], tmp_path / "html")
    assert '<a href="00_a.html">One &amp; two</a>' in index.read_text()
    for page in index.parent.glob("*.html"):
        fetched = re.findall(r"""(?:src|href)=["']?(https?:[^"'> ]+)""", page.read_text())
        assert fetched == [], page.name
    knobs = (index.parent / "engine_config.html").read_text()
    assert all(spec.name in knobs for spec in field_specs())


def test_formulas_become_mathml_and_money_and_code_do_not(tmp_path: Path) -> None:
    text = "It is $O(N^2)$, not `$x$`, for $5 and $6.\n\n$$\\frac{a}{b}$$\n\n```\n$$y$$\n```"
    path = tmp_path / "a.ipynb"
    form.write(v4.new_notebook(cells=[v4.new_markdown_cell(text)]), path)
    page = (export([path], tmp_path / "html").parent / "a.html").read_text()
    assert page.count("<math ") == 2
    assert "<mfrac><mrow><mi>a</mi></mrow><mrow><mi>b</mi></mrow></mfrac>" in page
    assert "<code>$x$</code>, for $5 and $6." in page
    assert "$$y$$" in page


def test_chapters_are_listed_in_order() -> None:
    names = [path.name for path in all_notebooks()]
    chapters = [name for name in names if name[0].isdigit()]
    assert chapters == sorted(chapters)
    assert names[: len(chapters)] == chapters


def test_require_lets_this_version_pass_and_refuses_an_older_one() -> None:
    tinyvllm_lab.require("0.1")
    with pytest.raises(TinyVllmError, match=r"needs tinyvllm-lab 99\.0"):
        tinyvllm_lab.require("99.0")
    with pytest.raises(TinyVllmError, match="no version"):
        tinyvllm_lab.require("latest")
