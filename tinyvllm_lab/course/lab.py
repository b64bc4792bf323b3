"""How JupyterLab is started for the course: notebooks trusted, chapter 00 open, no pop-ups."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tinyvllm_lab.course.notebooks import all_notebooks
from tinyvllm_lab.errors import TinyVllmError

# A course that works offline does not ask the network for news.
_QUIET = (
    "--LabApp.news_url=None",
    "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
)


def trust() -> None:
    """Trust the shipped notebooks, so that JupyterLab shows their stored charts and panels.

    Raises:
        TinyVllmError: Jupyter is not installed, or this installation has no notebooks.
    """
    files = [str(path) for path in all_notebooks()]
    done = subprocess.run(
        [sys.executable, "-m", "jupyter", "trust", *files], capture_output=True, text=True
    )
    if done.returncode:
        raise TinyVllmError(
            f"The notebooks could not be trusted: {done.stderr.strip()[-200:]}",
            fix="make lab (in the clone), or: pip install -e '.[lab]'",
        )


def lab_command(arguments: Sequence[str]) -> list[str]:
    """The command that opens JupyterLab on chapter 00.

    Args:
        arguments: further options for JupyterLab, such as "--no-browser".
    """
    first: Path = all_notebooks()[0]
    root = ["--allow-root"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    return [sys.executable, "-m", "jupyterlab", *_QUIET, *root, *arguments, str(first)]
