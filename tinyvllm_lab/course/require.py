"""`require`: what the first code cell of a chapter calls."""

import sys

from packaging.version import InvalidVersion, Version

import tinyvllm_lab
from tinyvllm_lab.errors import TinyVllmError


def require(version: str) -> None:
    """Stop at once, with the reason, if the installed package is older than a notebook needs.

    Args:
        version: the oldest release of tinyvllm-lab that the notebook works with, as "0.1".

    Raises:
        TinyVllmError: the installed package is older, or `version` is no version.
    """
    try:
        wanted = Version(version)
    except InvalidVersion:
        raise TinyVllmError(f"{version!r} is no version.", expected="such as '0.1'") from None
    if Version(tinyvllm_lab.__version__) < wanted:
        raise TinyVllmError(
            f"This notebook needs tinyvllm-lab {version}, and {tinyvllm_lab.__version__} runs here "
            f"({sys.executable}).",
            expected=f"tinyvllm-lab {version} or newer",
            fix="Run `make lab` again in the clone that the notebook came from, then restart "
            "JupyterLab (not only the kernel).",
        )
