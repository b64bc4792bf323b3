"""A notebook that a program executes: no browser answers, and the picture is that of the run."""

import base64
import io

import nbformat
import numpy as np
import pytest
from nbclient import NotebookClient
from PIL import Image

from tinyvllm_lab.widgets.palette import COLOURS, EMPTY, rgb

CELLS = [
    """
from tinyvllm_lab.engine.config import EngineConfig
from tinyvllm_lab.engine.engine import Engine
from tinyvllm_lab.engine.runner import EngineRunner
from tinyvllm_lab.simulate import CostModel
from tinyvllm_lab.simulate.executor import SimulatedExecutor, VirtualClock
from tinyvllm_lab.widgets import Airport, show
""",
    """
executor = SimulatedExecutor(CostModel("A10G", "llama-3.2-1b"))
engine = Engine(EngineConfig(max_num_seqs=4), executor, clock=VirtualClock())
runner = EngineRunner(engine)
for length in (30, 60, 90): runner.add(range(5, 5 + length))
Airport(runner)
""",
    "show(Airport(runner, still_step=2))",
    "runner.start().join()\nprint(runner.engine.num_steps)",
    "runner.stop()",
]


@pytest.fixture(scope="module")
def executed(tmp_path_factory):
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(c) for c in CELLS])
    folder = str(tmp_path_factory.mktemp("notebook"))
    client = NotebookClient(
        notebook, timeout=60, kernel_name="python3", resources={"metadata": {"path": folder}}
    )
    client.execute()
    return notebook


@pytest.mark.timeout(120)
@pytest.mark.parametrize("cell", [1, 2])
def test_the_stored_picture_shows_the_run(executed, cell):
    outputs = executed.cells[cell].outputs
    assert [o.output_type for o in outputs] == ["display_data"]
    data = outputs[0].data
    assert "application/vnd.jupyter.widget-view+json" in data
    steps = int(executed.cells[3].outputs[0].text)
    assert f"{steps:,} steps, 3 requests" in data["text/plain"]
    picture = Image.open(io.BytesIO(base64.b64decode(data["image/png"]))).convert("RGB")
    pixels = np.asarray(picture)[120:330, 350:1100].reshape(-1, 3).astype(int)  # the seats
    empty = np.abs(pixels - np.array(rgb(EMPTY))).sum(axis=1) < 10
    assert empty.mean() < 0.5, "three of four seats are taken at the busiest step"


EXPLORER = """
from tinyvllm_lab.widgets import LatencyThroughput
explorer = LatencyThroughput(max_num_seqs=8, prompt=64, answer=8)
explorer
"""


@pytest.mark.timeout(120)
def test_a_sweep_is_stored_whole_though_its_cell_was_the_last(tmp_path):
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(EXPLORER)])
    resources = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(notebook, timeout=60, kernel_name="python3", resources=resources).execute()
    (output,) = notebook.cells[0].outputs
    picture = Image.open(io.BytesIO(base64.b64decode(output.data["image/png"]))).convert("RGB")
    pixels = np.asarray(picture).reshape(-1, 3).astype(int)
    for colour in (COLOURS[4], COLOURS[2]):  # the marks of ten rates in both charts
        near = np.abs(pixels - np.array(rgb(colour))).sum(axis=1) < 30
        assert near.sum() > 10 * 100
