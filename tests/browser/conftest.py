"""Real JupyterLab and a real browser: one server for all tests, a fresh page for each.

Both run on this machine alone. A notebook is written by the test that opens it, or copied.
"""

import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import nbformat
import pytest

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
START_S, IDLE_MS = 60, 60_000


@dataclass
class Lab:
    url: str
    token: str
    root: Path

    def write(self, name: str, *cells: str) -> str:
        """A notebook with these code cells."""
        notebook = nbformat.v4.new_notebook()
        notebook.cells = [nbformat.v4.new_code_cell(cell) for cell in cells]
        notebook.metadata.kernelspec = {"name": "python3", "display_name": "Python 3"}
        nbformat.write(notebook, self.root / name)
        return name


class Notebook:
    """A notebook that is open in the browser."""

    def __init__(self, page) -> None:
        self.page = page

    def wait_for_kernel(self) -> None:
        self.page.wait_for_function(
            "window.jupyterapp?.shell?.currentWidget?.sessionContext?.session?.kernel?.status"
            " === 'idle'",
            timeout=IDLE_MS,
        )

    def run_all(self) -> None:
        command = "() => jupyterapp.commands.execute('notebook:run-all-cells')"
        assert self.page.evaluate(command), self.outputs()

    def run_cell(self, index: int) -> None:
        self.page.evaluate(
            "index => { const {content} = jupyterapp.shell.currentWidget;"
            "content.activeCellIndex = index; content.deselectAll(); }",
            index,
        )
        command = "() => jupyterapp.commands.execute('notebook:run-cell')"
        assert self.page.evaluate(command), self.outputs()

    def outputs(self):
        return self.page.evaluate(
            "jupyterapp.shell.currentWidget.content.model.sharedModel.cells.map(c => c.outputs)"
        )

    def printed(self, index: int) -> str:
        """What a cell has printed; "" until it has."""
        streams = [o for o in self.outputs()[index] or [] if o["output_type"] == "stream"]
        return "".join("".join(o["text"]) for o in streams)

    def value(self, code: str, index: int) -> object:
        """What the kernel prints for `code`, put into cell `index` and run, as JSON."""
        self.page.evaluate(
            "([index, code]) => jupyterapp.shell.currentWidget.content.model.sharedModel"
            ".cells[index].setSource(code)",
            [index, code],
        )
        self.run_cell(index)
        return json.loads(self.printed(index))

    def shutdown(self) -> None:
        self.page.evaluate("() => jupyterapp.shell.currentWidget.sessionContext.shutdown()")


@pytest.fixture(scope="session")
def lab(tmp_path_factory):
    root, home = tmp_path_factory.mktemp("notebooks"), tmp_path_factory.mktemp("jupyter")
    port, token = _free_port(), secrets.token_hex(16)
    with open(home / "log", "w") as log:
        command = [
            *(sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root"),
            *("--ServerApp.ip=127.0.0.1", f"--ServerApp.port={port}"),
            *("--ServerApp.port_retries=0", f"--ServerApp.root_dir={root}"),
            "--LabApp.expose_app_in_browser=True",
        ]
        server = subprocess.Popen(
            command,
            stdout=log,
            stderr=log,
            env={**os.environ, **_homes(home), "JUPYTER_TOKEN": token},
        )
    url = f"http://127.0.0.1:{port}"
    try:
        _wait_for(f"{url}/api?token={token}", server, home / "log")
        yield Lab(url, token, root)
    finally:
        server.terminate()
        try:
            server.wait(15)
        except subprocess.TimeoutExpired:
            server.kill()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _homes(home: Path) -> dict[str, str]:
    """Settings of its own, with no question about news in a corner of the page."""
    settings = home / "settings" / "@jupyterlab" / "apputils-extension"
    settings.mkdir(parents=True)
    no_news = {"fetchNews": "false", "checkForUpdates": False}
    (settings / "notification.jupyterlab-settings").write_text(json.dumps(no_news))
    return {
        "JUPYTER_CONFIG_DIR": str(home / "config"),
        "JUPYTER_RUNTIME_DIR": str(home / "runtime"),
        "IPYTHONDIR": str(home / "ipython"),
        "JUPYTERLAB_SETTINGS_DIR": str(home / "settings"),
        "JUPYTERLAB_WORKSPACES_DIR": str(home / "workspaces"),
    }


def _wait_for(url: str, server: subprocess.Popen, log: Path) -> None:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        with suppress(OSError):
            urllib.request.urlopen(url, timeout=2).read()
            return
        assert server.poll() is None, log.read_text()[-3000:]
        time.sleep(0.1)
    raise AssertionError(f"JupyterLab did not answer: {log.read_text()[-3000:]}")


@pytest.fixture(scope="session")
def chromium():
    from playwright.sync_api import sync_playwright

    program = next(filter(None, map(shutil.which, BROWSERS)))
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=program, args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        yield browser
        browser.close()


@pytest.fixture
def page(chromium):
    """A page that fails the test if it asks the network for anything, or an error is thrown."""
    context = chromium.new_context(viewport={"width": 1400, "height": 1000})
    context.set_default_timeout(IDLE_MS)
    page = context.new_page()
    asked, errors = [], []
    page.on("request", lambda r: asked.append(r.url) if _is_outside(r.url) else None)
    page.on("pageerror", lambda error: errors.append(str(error)))
    yield page
    context.close()
    assert not asked, f"the page asked the network for {asked}"
    assert not errors, errors


def _is_outside(url: str) -> bool:
    return url.startswith("http") and "127.0.0.1" not in url


@pytest.fixture
def open_notebook(lab, page):
    """Opens a notebook of `lab.root` and waits for its kernel."""
    opened = []

    def open_it(name: str) -> Notebook:
        page.goto(f"{lab.url}/lab/tree/{name}?token={lab.token}&reset")
        opened.append(Notebook(page))
        opened[-1].wait_for_kernel()
        return opened[-1]

    yield open_it
    for notebook in opened:
        notebook.shutdown()
