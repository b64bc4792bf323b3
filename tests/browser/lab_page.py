"""A notebook that is open in JupyterLab, as tests drive it."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tinyvllm_lab.course import notebook_format
from tinyvllm_lab.course.notebook_run import NotebookRun

IDLE_MS = 60_000
WIDGET_TROUBLE = "error (displaying|creating|rendering) widget|model not found"

_ASK = """
async code => {
  const { kernel } = jupyterapp.shell.currentWidget.sessionContext.session;
  const future = kernel.requestExecute({ code, silent: true, store_history: false });
  let text = '';
  future.onIOPub = ({ header, content }) => {
    if (header.msg_type === 'stream' && content.name === 'stdout') text += content.text;
    if (header.msg_type === 'error') text += content.traceback.join('\\n');
  };
  const reply = await future.done;
  return [reply.content.status, text];
}
"""
_SHOW = """
async index => {
  const { content } = jupyterapp.shell.currentWidget;
  content.widgets[index].node.dataset.cell = index;
  content.activeCellIndex = index;
  content.deselectAll();
  await content.scrollToItem(index, 'start');
}
"""
_PANELS = """
([index, feed, test]) => {
  const roots = document.querySelectorAll(`[data-cell="${index}"] .tvl`);
  const panels = [...roots].map(root => root.tinyvllm);
  const found = panels.filter(p => p?.feed && (!feed || p.feed === feed));
  if (test) return found.length > 0 && found.every(new Function('p', `return ${test}`));
  return found.map(p => ({
    name: p.name, feed: p.feed, step: p.step, firstStep: p.firstStep, lastStep: p.lastStep,
    slots: p.slots, waiting: p.waiting, blocks: p.blocks, live: p.live, engine: p.engine,
    isFollower: p.isFollower,
  }));
}
"""


class Notebook:
    """A notebook that is open in the browser."""

    def __init__(self, page: Any, path: Path) -> None:
        self.page = page
        self.path = path

    def wait_for_kernel(self) -> None:
        self.page.wait_for_function(
            "window.jupyterapp?.shell?.currentWidget?.sessionContext?.session?.kernel?.status"
            " === 'idle'",
            timeout=IDLE_MS,
        )

    # ------------------------------------------------------------------ running

    def run_all(self) -> None:
        """Run every cell, and wait for the last one."""
        command = "() => jupyterapp.commands.execute('notebook:run-all-cells')"
        assert self.page.evaluate(command), self.outputs()

    def run_cell(self, index: int) -> None:
        """Run a cell, and wait for it."""
        self.page.evaluate(_SHOW, index)
        command = "() => jupyterapp.commands.execute('notebook:run-cell')"
        assert self.page.evaluate(command), self.outputs()

    def run_as_a_reader(self, stored: Path) -> NotebookRun:
        """Run every cell of the open copy of `stored` and save it; the run, with its times."""
        self.run_all()
        self.page.evaluate("() => jupyterapp.commands.execute('docmanager:save')")
        return NotebookRun.saved(stored, notebook_format.read(self.path))

    def outputs(self) -> Any:
        """The outputs of all cells, as JupyterLab holds them."""
        return self.page.evaluate(
            "jupyterapp.shell.currentWidget.content.model.sharedModel.cells.map(c => c.outputs)"
        )

    def printed(self, index: int) -> str:
        """What a cell has printed; "" until it has."""
        streams = [o for o in self.outputs()[index] or [] if o["output_type"] == "stream"]
        return "".join("".join(o["text"]) for o in streams)

    def shutdown(self) -> None:
        self.page.evaluate("() => jupyterapp.shell.currentWidget.sessionContext.shutdown()")

    # ------------------------------------------------------------------- asking

    def value(self, code: str) -> Any:
        """What the kernel prints, as JSON, for code that is in no cell."""
        status, text = self.page.evaluate(_ASK, code)
        assert status == "ok", text
        return json.loads(text)

    def ask(self, function: str, *arguments: Any) -> Any:
        """What a function of `kernel_side` returns."""
        call = f"kernel_side.{function}(*json.loads({json.dumps(arguments)!r}))"
        return self.value(f"import json, kernel_side\nprint(json.dumps({call}))")

    def wait_for(self, code: str, test: Callable[[Any], bool]) -> Any:
        """Ask the kernel until what it says passes the test; what it said then."""
        deadline = time.monotonic() + IDLE_MS / 1000
        while not test(found := self.value(code)):
            assert time.monotonic() < deadline, f"{code}: {found}"
            self.page.wait_for_timeout(50)
        return found

    # -------------------------------------------------------------------- cells

    def cell(self, index: int) -> "Cell":
        """A cell, scrolled to the top of the page."""
        self.page.evaluate(_SHOW, index)
        return Cell(self, index)

    def trouble(self) -> list[str]:
        """What the page says about widgets that it cannot show."""
        return self.page.evaluate(f"document.body.innerText.match(/{WIDGET_TROUBLE}/gi) ?? []")


class Cell:
    """A cell of an open notebook, and the panels in it."""

    def __init__(self, notebook: Notebook, index: int) -> None:
        self.notebook, self.page, self.index = notebook, notebook.page, index
        self.node = self.page.locator(f'[data-cell="{index}"]')
        self.panel_roots = self.node.locator(".tvl")

    def models(self) -> list[str]:
        """The ids of the widgets that the cell shows."""
        outputs = self.notebook.outputs()[self.index] or []
        views = [o.get("data", {}).get(notebook_format.WIDGET_VIEW) for o in outputs]
        return [view["model_id"] for view in views if view]

    def panels(self, feed: str = "") -> list[dict[str, Any]]:
        """What the run panels show, in the order of the page; `feed`: those of one run."""
        return self.page.evaluate(_PANELS, [self.index, feed, ""])

    def wait_until(self, test: str, feed: str = "") -> None:
        """Wait until this is true of each panel `p`."""
        self.page.wait_for_function(_PANELS, arg=[self.index, feed, test], timeout=IDLE_MS)

    def press(self, name: str) -> None:
        """Press a button of the cell."""
        self.node.get_by_role("button", name=name, exact=True).first.click()
