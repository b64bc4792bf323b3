"""The chapters as web pages: stored outputs and stills, no kernel, no network."""

from __future__ import annotations

import copy
import html
import re
from pathlib import Path

from latex2mathml.converter import convert
from nbconvert import HTMLExporter
from nbformat import NotebookNode

from tinyvllm_lab.course.notebook_format import read
from tinyvllm_lab.engine.config import FieldSpec, field_specs

# Code (which is left alone), a formula on its own, a formula in a line. "$5 and $6" is neither.
_MATH = re.compile(
    r"(```.*?```|`[^`\n]*`)"
    r"|\$\$(.+?)\$\$"
    r"|(?<![\\\w$])\$(?![\s$])([^$\n]*?[^\s$\\])\$(?!\w)",
    re.DOTALL,
)
_MARK = "\ue000"  # a private character: no text has it
_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<meta name="viewport" content="width=device-width">
<style>
:root {{ color-scheme: light dark }}
body {{ font: 1rem/1.6 sans-serif; max-width: 60rem; margin: 3rem auto; padding: 1rem }}
table {{ border-collapse: collapse }}
td, th {{ border-bottom: 1px solid #8884; padding: .4rem .8rem; text-align: left }}
</style></head><body>
<h1>{title}</h1>
{body}
</body></html>
"""


def export(notebooks: list[Path], folder: Path) -> Path:
    """Write one page for each notebook, a table of the engine's knobs, and `index.html`.

    Returns:
        The path of the index page.
    """
    folder.mkdir(parents=True, exist_ok=True)
    # The scripts that nbconvert would fetch from elsewhere: left out, the pages work offline.
    exporter = HTMLExporter(
        require_js_url="", jquery_url="", mathjax_url="", mermaid_js_url="", embed_images=True
    )
    links = []
    for path in notebooks:
        nb = read(path)
        page = folder / f"{path.stem}.html"
        plain, formulas = without_formulas(nb)
        body, _ = exporter.from_notebook_node(plain, resources={"metadata": {"name": path.stem}})
        page.write_text(with_formulas(body, formulas), encoding="utf-8")
        links.append(f'<li><a href="{page.name}">{html.escape(title_of(nb))}</a></li>')
    (folder / "engine_config.html").write_text(_knobs_page(), encoding="utf-8")
    links.append('<li><a href="engine_config.html">All settings of the engine</a></li>')
    index = folder / "index.html"
    body = f"<ul>\n{chr(10).join(links)}\n</ul>"
    index.write_text(_PAGE.format(title="tinyvllm-lab", body=body), encoding="utf-8")
    return index


def without_formulas(nb: NotebookNode) -> tuple[NotebookNode, list[str]]:
    """A copy of `nb` with a mark for each formula, and the formulas as MathML.

    Browsers draw MathML themselves: no MathJax is fetched. It must not pass through nbconvert,
    which takes its tags apart.
    """
    nb, formulas = copy.deepcopy(nb), []

    def replace(match: re.Match[str]) -> str:
        code, block, inline = match.groups()
        if code is not None:
            return code
        formulas.append(convert(block or inline, display="block" if block else "inline"))
        return f"{_MARK}{len(formulas) - 1}{_MARK}"

    for cell in nb.cells:
        if cell.cell_type == "markdown":
            cell.source = _MATH.sub(replace, cell.source)
    return nb, formulas


def with_formulas(page: str, formulas: list[str]) -> str:
    """The page, with each mark replaced by its formula."""
    return re.sub(f"{_MARK}(\\d+){_MARK}", lambda match: formulas[int(match.group(1))], page)


def title_of(nb: NotebookNode) -> str:
    """The notebook's heading of level 1."""
    first = nb.cells[0].source.split("\n")[0] if nb.cells else ""
    return first.lstrip("# ").strip() or "(no title)"


def _knobs_page() -> str:
    head = "<tr><th>setting</th><th>default</th><th>range</th><th>what it does</th></tr>"
    rows = "\n".join(map(_knob_row, field_specs()))
    return _PAGE.format(title="EngineConfig", body=f"<table>{head}\n{rows}</table>")


def _knob_row(spec: FieldSpec) -> str:
    if spec.choices:
        limits = ", ".join(spec.choices)
    elif spec.minimum is not None:
        limits = f"{spec.minimum} to {spec.maximum} {spec.unit}".rstrip()
    else:
        limits = "true, false" if spec.type is bool else ""
    when = "" if spec.live else " (set at the start)"
    cells = (spec.name, str(spec.default), limits, spec.help + when)
    return "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in cells) + "</tr>"
