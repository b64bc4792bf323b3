"""The one form in which notebooks are stored, so that a diff shows only what an author changed.

`fixed` brings a notebook into that form; `problems` says what is not in it, including what no
program can put right. The form is nbformat 4.5 with cell ids, kernel `python3`, no widget state
(GitHub refuses a notebook whose widget state is incomplete), no editor's leftovers, and slide
marks on the headings.
"""

from __future__ import annotations

import copy
import hashlib
import re
from collections.abc import Iterator
from pathlib import Path

import nbformat
from nbformat import NotebookNode

MAX_BYTES = 2_000_000
METADATA = {
    "kernelspec": {
        "display_name": "Python 3 (ipykernel)",
        "language": "python",
        "name": "python3",
    },
    "language_info": {"name": "python"},
}
TAGS = {
    "exercise": "a place where the reader works",
    "panel": "shows a panel; its still is kept as image/png",
    "raises-exception": "ends with an error on purpose",
    "varies": "prints timings or other text that differs from run to run",
}
SLIDE_TYPES = {"slide", "subslide", "fragment", "skip", "notes"}
WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"

_CELL_METADATA = ("jupyter", "slideshow", "tags")
_CELL_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_SOMEBODYS_PATH = re.compile(r"(/home/|/Users/|/root/|/tmp/|[A-Z]:\\Users\\)[\w.-]+|site-packages")


def read(path: Path) -> NotebookNode:
    """The notebook at `path`, as stored: nothing is converted."""
    return nbformat.reads(path.read_text(encoding="utf-8"), as_version=nbformat.NO_CONVERT)


def text_of(nb: NotebookNode) -> str:
    """The bytes, as text, that we store for `nb`."""
    return nbformat.writes(nb, version=nbformat.NO_CONVERT).rstrip("\n") + "\n"


def write(nb: NotebookNode, path: Path) -> None:
    """Store `nb` in canonical form."""
    path.write_text(text_of(fixed(nb)), encoding="utf-8")


def fixed(nb: NotebookNode) -> NotebookNode:
    """A copy of `nb` in canonical form, as far as a program can bring it there."""
    nb = copy.deepcopy(nb)
    nb.nbformat, nb.nbformat_minor = 4, 5
    nb.metadata = nbformat.from_dict(METADATA)
    seen: set[str] = set()
    for index, cell in enumerate(nb.cells):
        cell.id = _valid_id(cell, index, seen)
        seen.add(cell.id)
        cell.metadata = nbformat.from_dict(_cell_metadata(cell))
        cell.source = "\n".join(line.rstrip() for line in cell.source.rstrip().split("\n"))
        if cell.cell_type == "code":
            cell.outputs = [o for o in map(_without_widget_view, cell.outputs) if o is not None]
    return nb


def problems(nb: NotebookNode, *, size: int | None = None) -> list[str]:
    """What keeps `nb` from being a notebook of this course; empty if nothing does.

    Args:
        nb: the notebook as stored.
        size: bytes of the file, to hold them to `MAX_BYTES`.
    """
    found = [*_unlike(nb, fixed(nb)), *_order_problems(nb)]
    if size is not None and size > MAX_BYTES:
        found.append(f"the file has {size:,} bytes, the limit is {MAX_BYTES:,}: smaller stills")
    if not nb.cells or not nb.cells[0].source.startswith("# "):
        found.append("the first cell is not a heading of level 1")
    for index, cell in enumerate(nb.cells):
        found += [f"cell {index}: {text}" for text in _cell_problems(cell)]
    return found


def check_file(path: Path) -> list[str]:
    """Problems of the notebook file at `path`, its byte-exact form included."""
    text = path.read_text(encoding="utf-8")
    nb = read(path)
    found = problems(nb, size=len(text.encode()))
    if not found and text != text_of(nb):
        found = ["the file is not written in the canonical way: `fix` rewrites it"]
    return found


def _valid_id(cell: NotebookNode, index: int, seen: set[str]) -> str:
    old = str(cell.get("id", ""))
    if _CELL_ID.fullmatch(old) and old not in seen:
        return old
    return hashlib.sha256(f"{index}\n{cell.source}".encode()).hexdigest()[:12]


def _cell_metadata(cell: NotebookNode) -> dict:
    kept = {key: cell.metadata[key] for key in _CELL_METADATA if key in cell.metadata}
    tags = sorted(set(kept.pop("tags", [])))
    slide = kept.pop("slideshow", {}).get("slide_type", "")
    # "-" means "goes on"; the slide extension of JupyterLab hides such a cell.
    slide = "" if slide == "-" else slide
    if not slide and cell.cell_type == "markdown":
        slide = _slide_of_heading(cell.source)
    if tags:
        kept["tags"] = tags
    if slide:
        kept["slideshow"] = {"slide_type": slide}
    return dict(sorted(kept.items()))


def _slide_of_heading(source: str) -> str:
    level = len(source) - len(source.lstrip("#"))
    if not source[level : level + 1].isspace():
        return ""
    return {1: "slide", 2: "slide", 3: "subslide"}.get(level, "")


def _without_widget_view(output: NotebookNode) -> NotebookNode | None:
    data = output.get("data", {})
    output.get("metadata", {}).pop(WIDGET_VIEW, None)
    if data.pop(WIDGET_VIEW, None) is None or any(kind != "text/plain" for kind in data):
        return output
    return None


def _unlike(nb: NotebookNode, want: NotebookNode) -> Iterator[str]:
    if (nb.nbformat, nb.nbformat_minor) != (4, 5):
        yield f"nbformat is {nb.nbformat}.{nb.nbformat_minor}, not 4.5"
    for key in sorted({*nb.metadata, *want.metadata}):
        if nb.metadata.get(key) != want.metadata.get(key):
            yield f"metadata.{key} is not canonical"
    for index, (is_, should) in enumerate(zip(nb.cells, want.cells, strict=True)):
        for key in sorted({*is_, *should}):
            if is_.get(key) != should.get(key):
                yield f"cell {index}: {key} is {_short(is_.get(key))}: {_short(should.get(key))}"


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 100 else text[:100] + "…"


def _order_problems(nb: NotebookNode) -> Iterator[str]:
    cells = [c for c in nb.cells if c.cell_type == "code" and c.source.strip()]
    counts = [c.execution_count for c in cells]
    if counts != list(range(1, len(cells) + 1)):
        yield "the cells were not run once each from top to bottom: `make notebooks` does"


def _cell_problems(cell: NotebookNode) -> Iterator[str]:
    tags = cell.metadata.get("tags", [])
    if unknown := sorted(set(tags) - set(TAGS)):
        yield f"unknown tag {', '.join(unknown)}; known are {', '.join(TAGS)}"
    slide = cell.metadata.get("slideshow", {}).get("slide_type", "slide")
    if slide not in SLIDE_TYPES:
        yield f"slide_type {slide!r} is none of {', '.join(sorted(SLIDE_TYPES))}"
    heading = cell.source.split("\n")[0].lower() if cell.cell_type == "markdown" else ""
    if re.match(r"#+ exercise\b", heading) and "exercise" not in tags:
        yield "an exercise without the tag `exercise`"
    if cell.cell_type == "code":
        yield from _output_problems(cell, set(tags))


def _output_problems(cell: NotebookNode, tags: set[str]) -> Iterator[str]:
    data = [output.get("data", {}) for output in cell.outputs]
    if "panel" in tags and not any("image/png" in d for d in data):
        yield "tagged `panel`, but its outputs hold no still (image/png)"
    if "raises-exception" not in tags and any(o.output_type == "error" for o in cell.outputs):
        yield "its output is an error"
    if any("<script" in str(d.get("text/html", "")) for d in data):
        yield "an HTML output with a script: untrusted notebooks drop it"
    texts = [o.get("text", "") for o in cell.outputs] + [str(d.get("text/plain", "")) for d in data]
    if path := _SOMEBODYS_PATH.search("\n".join(texts)):
        yield f"an output names a path of one machine: {path.group()}"
