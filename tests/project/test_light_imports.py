"""What must be light is light: no torch, no plotly, no widget, never pycuda."""

import subprocess
import sys

import pytest

HEAVY = ("torch", "plotly", "pandas", "anywidget", "ipywidgets", "pycuda", "transformers")


@pytest.mark.parametrize(
    "module",
    [
        "tinyvllm_lab",
        "tinyvllm_lab.cache",
        "tinyvllm_lab.engine.scheduler",
        "tinyvllm_lab.engine.engine",
        "tinyvllm_lab.engine.runner",
        "tinyvllm_lab.engine.metrics",
        "tinyvllm_lab.engine.replay",
        "tinyvllm_lab.simulate",
        "tinyvllm_lab.simulate.run",
        "tinyvllm_lab.kernels",
        "tinyvllm_lab.widgets",
        "tinyvllm_lab.cli",
    ],
)
def test_importing(module):
    code = f"import sys, {module}; print([m for m in {HEAVY} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
