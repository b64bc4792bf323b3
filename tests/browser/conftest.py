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
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat
import pytest
from lab_page import IDLE_MS, Notebook

from tinyvllm_lab.course.lab import _SETTINGS as COURSE_SETTINGS
from tinyvllm_lab.course.notebook_stills import BROWSERS

HERE = Path(__file__).parent
START_S = 60


@dataclass
class Lab:
    url: str
    token: str
    root: Path
    settings: Path

    def write(self, name: str, *cells: str) -> str:
        """A notebook with these code cells."""
        notebook = nbformat.v4.new_notebook()
        notebook.cells = [nbformat.v4.new_code_cell(cell) for cell in cells]
        notebook.metadata.kernelspec = {"name": "python3", "display_name": "Python 3"}
        nbformat.write(notebook, self.root / name)
        return name

    def copy(self, path: Path, folder: str = ".") -> str:
        """A fresh copy of a notebook, which nobody has trusted."""
        (self.root / folder).mkdir(exist_ok=True)
        return os.path.relpath(shutil.copy(path, self.root / folder), self.root)

    def shutdown_all(self) -> None:
        """End the kernels of all notebooks that were opened."""
        for session in json.loads(self._ask("GET", "api/sessions")):
            self._ask("DELETE", f"api/sessions/{session['id']}")

    def _ask(self, method: str, path: str) -> bytes:
        headers = {"Authorization": f"token {self.token}"}
        request = urllib.request.Request(f"{self.url}/{path}", headers=headers, method=method)
        return urllib.request.urlopen(request, timeout=START_S).read()

    @contextmanager
    def setting(self, plugin: str, **values: Any) -> Iterator[None]:
        """A setting of JupyterLab for the pages that are opened meanwhile."""
        folder, name = plugin.split(":")
        file = self.settings / folder / f"{name}.jupyterlab-settings"
        file.parent.mkdir(parents=True, exist_ok=True)
        before = file.read_text() if file.exists() else "{}"
        file.write_text(json.dumps(json.loads(before) | values))
        try:
            yield
        finally:
            file.write_text(before)


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
            f"--LabApp.app_settings_dir={_defaults(home)}",
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
        yield Lab(url, token, root, home / "settings")
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


def _defaults(home: Path) -> Path:
    """Defaults of JupyterLab's settings: the course's own, and the time of each cell is kept."""
    folder = home / "defaults"
    folder.mkdir()
    settings = json.loads((COURSE_SETTINGS / "overrides.json").read_text())
    settings["@jupyterlab/notebook-extension:tracker"] = {"recordTiming": True}
    (folder / "overrides.json").write_text(json.dumps(settings))
    return folder


def _homes(home: Path) -> dict[str, str]:
    """Folders of its own, so that nothing is trusted or set that the tests did not."""
    return {
        "JUPYTER_CONFIG_DIR": str(home / "config"),
        "JUPYTER_DATA_DIR": str(home / "data"),
        "JUPYTER_RUNTIME_DIR": str(home / "runtime"),
        "IPYTHONDIR": str(home / "ipython"),
        "JUPYTERLAB_SETTINGS_DIR": str(home / "settings"),
        "JUPYTERLAB_WORKSPACES_DIR": str(home / "workspaces"),
        # Figures as data instead of 5 MB of script; `kernel_side` for the kernels.
        "PLOTLY_RENDERER": "plotly_mimetype",
        "PYTHONPATH": os.pathsep.join(filter(None, [str(HERE), os.environ.get("PYTHONPATH")])),
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
def context_options():
    """How the browser's window is; a test file may have its own."""
    return {"viewport": {"width": 1400, "height": 1000}}


@pytest.fixture
def page(chromium, context_options):
    """A page that fails the test if it asks the network for anything, or an error is thrown."""
    context = chromium.new_context(**context_options)
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
        opened.append(Notebook(page, lab.root / name))
        opened[-1].wait_for_kernel()
        return opened[-1]

    yield open_it
    for notebook in opened:
        notebook.shutdown()
