"""Every link within the course leads to a file, and every chapter to the next one."""

import re
from itertools import pairwise
from pathlib import Path

import pytest

from tinyvllm_lab.course import notebook_format
from tinyvllm_lab.course.notebooks import all_notebooks

ROOT = Path(__file__).parents[2]
NOTEBOOKS = all_notebooks()
CODE = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)
TARGET = re.compile(r"\]\(\s*([^)\s]+)")


def prose(path: Path) -> str:
    """The text of a Markdown file, or of a notebook's Markdown cells, without code."""
    if path.suffix == ".ipynb":
        cells = [c for c in notebook_format.read(path).cells if c.cell_type == "markdown"]
        text = "\n\n".join(cell.source for cell in cells)
    else:
        text = path.read_text(encoding="utf-8")
    return CODE.sub("", text)


def local_links(path: Path) -> list[str]:
    targets = [target.split("#")[0] for target in TARGET.findall(prose(path))]
    return [target for target in targets if target and "://" not in target]


@pytest.mark.parametrize("path", [ROOT / "README.md", *NOTEBOOKS], ids=lambda path: path.stem)
def test_every_relative_link_leads_to_a_file(path: Path) -> None:
    missing = [link for link in local_links(path) if not (path.parent / link).is_file()]
    assert missing == []


@pytest.mark.parametrize(
    ("chapter", "following"), [*pairwise(NOTEBOOKS)], ids=lambda path: path.stem
)
def test_each_chapter_ends_with_a_link_to_the_next(chapter: Path, following: Path) -> None:
    last = prose(chapter).split("**Next:**")
    assert len(last) == 2
    assert f"]({following.name})" in last[1]
