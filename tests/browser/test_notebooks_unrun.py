"""Every notebook as somebody finds it: opened in JupyterLab, not trusted, and nothing is run."""

import pytest
from lab_page import Notebook

from tinyvllm_lab.course.notebook_format import read
from tinyvllm_lab.course.notebook_run import panel_cells
from tinyvllm_lab.course.notebooks import all_notebooks

pytestmark = [pytest.mark.needs("chromium"), pytest.mark.timeout(300)]

OPEN = """
async path => {
  const widget = await jupyterapp.commands.execute('docmanager:open', { path });
  await widget.context.ready;
  await widget.revealed;
  const cells = widget.content.widgets.map(cell => cell.model);
  return cells.some(cell => cell.type === 'code' && cell.outputs.length > 0 && cell.trusted);
}
"""
SEEN = """
index => [...document.querySelectorAll(`[data-cell="${index}"] .jp-OutputArea-output img`)]
  .some(image => image.naturalWidth > 0 && image.clientWidth > 0)
"""


def test_every_panel_shows_its_still(lab, page):
    page.goto(f"{lab.url}/lab?token={lab.token}&reset")
    page.wait_for_function("window.jupyterapp !== undefined")
    page.evaluate("jupyterapp.restored")
    stills = 0
    for path in all_notebooks():
        name = lab.copy(path, folder="unrun")
        assert not page.evaluate(OPEN, name), f"{path.name} is trusted"
        notebook = Notebook(page, lab.root / name)
        for index in panel_cells(read(path)):
            cell = notebook.cell(index)
            page.wait_for_function(SEEN, arg=index)
            assert cell.node.locator(".tvl").count() == 0
            stills += 1
        assert notebook.trouble() == [], path.name
    assert stills > 0
    page.goto("about:blank")
    lab.shutdown_all()
