"""`tinyvllm-lab lab` (what `make lab` ends with) reaches a JupyterLab that has chapter 00."""

import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from tinyvllm_lab.course.lab import lab_command
from tinyvllm_lab.course.notebooks import all_notebooks

STARTS_WITHIN_S = 90


@pytest.fixture
def lab_url(tmp_path: Path):
    """The address of a JupyterLab that the command line started, and its token."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    code = "from tinyvllm_lab.cli import main; main()"
    options = ["--no-browser", "--ServerApp.ip=127.0.0.1", f"--ServerApp.port={port}"]
    folders = {name: str(tmp_path / name) for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR")}
    server = subprocess.Popen(
        [sys.executable, "-c", code, "lab", *options],
        env={**os.environ, **folders, "JUPYTER_TOKEN": "t"},
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait(timeout=30)


def get(url: str, path: str):
    request = urllib.request.Request(url + path, headers={"Authorization": "token t"})
    return urllib.request.urlopen(request, timeout=10)


def wait_for(url: str) -> None:
    ends = time.monotonic() + STARTS_WITHIN_S
    while True:
        try:
            get(url, "/api/status").close()
        except OSError:
            assert time.monotonic() < ends, "JupyterLab did not start"
            time.sleep(0.5)
        else:
            return


def test_jupyterlab_runs_with_chapter_00_and_a_kernel_of_this_environment(lab_url: str) -> None:
    wait_for(lab_url)
    first = all_notebooks()[0].name
    assert first.startswith("00_")
    with get(lab_url, f"/lab/tree/notebooks/{first}") as page:
        assert page.status == 200
    with get(lab_url, f"/api/contents/notebooks/{first}?content=1") as answer:
        cells = json.load(answer)["content"]["cells"]
    code_cells = [cell for cell in cells if cell["cell_type"] == "code" and cell["outputs"]]
    assert all(cell["metadata"]["trusted"] for cell in code_cells)
    with get(lab_url, "/lab/api/settings/@jupyterlab/apputils-extension:notification") as answer:
        assert json.load(answer)["schema"]["properties"]["fetchNews"]["default"] == "false"
    with get(lab_url, "/api/kernelspecs") as answer:
        assert "python3" in json.load(answer)["kernelspecs"]


def test_options_go_to_jupyterlab_and_root_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    command = lab_command(["--no-browser"])
    assert command[:3] == [sys.executable, "-m", "jupyterlab"]
    assert {"--no-browser", "--allow-root"} <= set(command)
    assert command[-1].endswith(all_notebooks()[0].name)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert "--allow-root" not in lab_command([])


def test_the_interpreter_of_the_environment_has_jupyter() -> None:
    assert shutil.which("jupyter-trust", path=str(Path(sys.executable).parent))
