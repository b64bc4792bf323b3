"""Tools for the notebooks: `python -m tinyvllm_lab.course.notebooks check|fix|run|write|html`.

Each command takes notebook files, and means all of the course's when none is given.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tinyvllm_lab.course import notebook_format
from tinyvllm_lab.errors import TinyVllmError
from tinyvllm_lab.paths import resource_dir

app = typer.Typer(add_completion=False, no_args_is_help=True, help=__doc__)
Files = Annotated[list[Path] | None, typer.Argument(exists=True, dir_okay=False)]


def all_notebooks() -> list[Path]:
    """Every notebook of the course, chapters first, in order.

    Raises:
        TinyVllmError: this installation has none (the wheel carries no notebooks).
    """
    folder = resource_dir("notebooks")
    found = [p for p in folder.rglob("*.ipynb") if ".ipynb_checkpoints" not in p.parts]
    return sorted(found, key=lambda p: (not p.name[0].isdigit(), str(p)))


@app.command()
def check(files: Files = None) -> None:
    """Say which notebooks are not stored in the canonical form; change nothing."""
    bad = 0
    for path in files or all_notebooks():
        for problem in notebook_format.check_file(path):
            typer.echo(f"{path.name}: {problem}")
            bad += 1
    if bad:
        raise typer.Exit(1)


@app.command()
def fix(files: Files = None) -> None:
    """Bring notebooks into the canonical form; outputs are kept."""
    for path in files or all_notebooks():
        before = path.read_text(encoding="utf-8")
        notebook_format.write(notebook_format.read(path), path)
        if path.read_text(encoding="utf-8") != before:
            typer.echo(f"{path.name}: rewritten")


@app.command()
def run(files: Files = None) -> None:
    """Run notebooks, print the time of each cell, and compare outputs with the stored ones."""
    from tinyvllm_lab.course.notebook_run import output_differences
    from tinyvllm_lab.course.notebook_run import run as run_notebook

    failed = False
    for path in files or all_notebooks():
        done = run_notebook(path)
        for t in done.times:
            typer.echo(f"{t.seconds:7.2f} s  {path.name} cell {t.index}: {t.title}")
        typer.echo(f"{done.seconds:7.2f} s  {path.name}")
        for difference in output_differences(done.stored, done.executed):
            typer.echo(f"{path.name}: {difference}")
            failed = True
    if failed:
        raise typer.Exit(1)


@app.command()
def write(files: Files = None) -> None:
    """Run notebooks and store their outputs, with a still of every chart."""
    from tinyvllm_lab.course.notebook_run import run as run_notebook
    from tinyvllm_lab.course.notebook_stills import add_stills

    for path in files or all_notebooks():
        done = run_notebook(path)
        stills = add_stills(done.executed)
        notebook_format.write(done.executed, path)
        typer.echo(f"{path.name}: {done.seconds:.1f} s, {stills} stills")


@app.command()
def html(folder: Path, files: Files = None) -> None:
    """Export the stored notebooks as web pages that need no network."""
    from tinyvllm_lab.course.notebook_html import export

    typer.echo(f"{export(files or all_notebooks(), folder)}")


def main() -> None:
    """Run the command line; our own errors become a message and exit status 1."""
    try:
        app()
    except TinyVllmError as error:
        typer.echo(str(error), err=True)
        raise SystemExit(1) from None


if __name__ == "__main__":
    main()
