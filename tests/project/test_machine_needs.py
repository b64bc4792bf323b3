"""A machine that lacks a program says so in one line; CI refuses to leave anything out."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

CONFTEST = Path(__file__).parents[1] / "conftest.py"
SAMPLE = """
import pytest

@pytest.mark.needs("node")
def test_with_node():
    pass

@pytest.mark.needs("node")
def test_with_node_too():
    pass

def test_alone():
    pass
"""


@pytest.fixture
def run_without_tools(tmp_path: Path):
    (tmp_path / "conftest.py").write_text(CONFTEST.read_text())
    (tmp_path / "test_sample.py").write_text(SAMPLE)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = needs(*tools)\n")

    def run(ci: str) -> subprocess.CompletedProcess[str]:
        env = {**os.environ, "PATH": str(tmp_path), "CI": ci}
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
        return subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)

    return run


def test_a_missing_program_is_named_in_one_line(run_without_tools) -> None:
    done = run_without_tools(ci="")
    assert done.returncode == 0
    lines = [line for line in done.stdout.splitlines() if line.startswith("not run: ")]
    assert lines == ["not run: 2 test(s): needs node (install Node.js 18 or newer)"]
    assert "1 passed, 2 skipped" in done.stdout


def test_ci_fails_rather_than_leave_a_test_out(run_without_tools) -> None:
    done = run_without_tools(ci="true")
    assert done.returncode == 1
    assert "1 passed, 2 errors" in done.stdout
    assert "not run" not in done.stdout.replace("Not run, and CI", "")
