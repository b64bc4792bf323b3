"""How JupyterLab is started for the course: notebooks trusted, chapter 00 open, no pop-ups."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tinyvllm_lab.course.notebooks import all_notebooks
from tinyvllm_lab.errors import TinyVllmError
from tinyvllm_lab.paths import resource_dir

# Defaults of JupyterLab's settings: a course that works offline asks nobody for news.
_SETTINGS = Path(__file__).with_name("lab_settings")


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
    """The command that opens JupyterLab on chapter 00, with the whole clone in its file browser.

    Args:
        arguments: further options for JupyterLab, such as "--no-browser".
    """
    is_root = hasattr(os, "geteuid") and os.geteuid() == 0
    return [
        sys.executable, "-m", "jupyterlab",
        f"--LabApp.app_settings_dir={_SETTINGS}",
        f"--ServerApp.root_dir={resource_dir('notebooks').parent}",
        *(["--allow-root"] if is_root else []),
        *arguments,
        str(all_notebooks()[0]),
    ]  # fmt: skip
