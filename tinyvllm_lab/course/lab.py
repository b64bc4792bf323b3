"""How JupyterLab is started for the course: notebooks trusted, chapter 00 open, no pop-ups."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from nbformat.sign import NotebookNotary

from tinyvllm_lab.course.notebook_format import read
from tinyvllm_lab.course.notebooks import all_notebooks
from tinyvllm_lab.paths import resource_dir

# Defaults of JupyterLab's settings: a course that works offline asks nobody for news.
_SETTINGS = Path(__file__).with_name("lab_settings")


def trust() -> None:
    """Trust the shipped notebooks, so that JupyterLab shows their stored charts and panels.

    Raises:
        TinyVllmError: this installation has no notebooks.
    """
    notary = NotebookNotary()
    for path in all_notebooks():
        notebook = read(path)
        if not notary.check_signature(notebook):
            notary.sign(notebook)


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
