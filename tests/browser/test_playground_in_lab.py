"""The playground where JupyterLab sends what the page says to the kernel's main thread.

`test_later_chapters_in_lab.py` drives the one of `playground.ipynb`, with JupyterLab's defaults.
"""

import pytest
from widget_drivers import drive

pytestmark = [pytest.mark.needs("chromium"), pytest.mark.timeout(300)]

KERNELS = "@jupyterlab/apputils-extension:kernels-settings"
MAKE = """
import gc, json, weakref
from tinyvllm_lab.widgets import Playground, PlaygroundSettings, WorkloadKnobs
"""
SHOW = """
workload = WorkloadKnobs(num_requests=200, rate_per_s=60.0)
playground = Playground(PlaygroundSettings(workload=workload))
playground
"""
REMEMBER = """
old = [weakref.ref(playground.runner), weakref.ref(playground.runner.engine)]
print(json.dumps(playground.runner.state))
"""
IS_FREE = "gc.collect()\nprint(json.dumps([ref() is None for ref in old]))"


def test_buttons_and_sliders_act_without_subshells(lab, open_notebook):
    with lab.setting(KERNELS, commsOverSubshells="disabled"):
        notebook = open_notebook(lab.write("playground.ipynb", MAKE.strip(), SHOW.strip()))
    notebook.run_all()
    cell = notebook.cell(1)
    drive(cell)
    cell.press("Run")
    cell.wait_until("p.live && p.engine === 'running'")
    assert notebook.value(REMEMBER) == "running"
    notebook.run_cell(1)
    notebook.wait_for(IS_FREE, lambda free: free == [True] * 2)
