"""A panel in front of a live engine, in JupyterLab: it runs, pauses, steps, scrubs, stops."""

import pytest

pytestmark = [pytest.mark.needs("chromium"), pytest.mark.timeout(300)]

MAKE = """
import json
from tinyvllm_lab.engine.config import EngineConfig
from tinyvllm_lab.engine.engine import Engine
from tinyvllm_lab.engine.runner import EngineRunner
from tinyvllm_lab.engine.history import History
from tinyvllm_lab.simulate import CostModel
from tinyvllm_lab.simulate.executor import SimulatedExecutor, VirtualClock
from tinyvllm_lab.simulate.feed import WorkloadFeed
from tinyvllm_lab.simulate.presets import airport
from tinyvllm_lab.widgets import Airport
"""
SHOW = """
config = EngineConfig(
    max_num_seqs=6, num_blocks=240, max_model_len=4096, max_num_batched_tokens=256
)
executor = SimulatedExecutor(CostModel("A10G", "llama-3.2-1b"))
engine = Engine(config, executor, clock=VirtualClock())
engine.log.info["time"] = "simulated"
runner = EngineRunner(engine, WorkloadFeed(airport(400)), pace=60)
panel = Airport(runner, name="live")
runner.start()
panel
"""
HOOK = "window.__tinyvllm?.live"


def test_a_live_engine(lab, open_notebook, page):
    notebook = open_notebook(lab.write("live.ipynb", MAKE, SHOW, ""))
    notebook.run_all()
    page.wait_for_function(f"{HOOK}?.step > 20 && Object.keys({HOOK}.slots).length > 2")
    assert page.locator(".tvl").count() == 1
    assert page.locator(".jp-OutputArea-output img").count() == 0, (
        "the still shows beside the panel"
    )

    page.get_by_role("button", name="Pause the engine").click()
    page.wait_for_function(f"{HOOK}.engine === 'paused'")
    page.wait_for_timeout(300)
    step = page.evaluate(f"{HOOK}.step")
    page.get_by_role("button", name="One step on").click()
    page.wait_for_function(f"{HOOK}.step === {step + 1}")

    shown = page.evaluate(f"({{step: {HOOK}.step, slots: {HOOK}.slots, blocks: {HOOK}.blocks}})")
    state = notebook.value(
        "s = History(engine.log).at(engine.log.num_steps - 1)\n"
        "print(json.dumps([engine.log.num_steps - 1, s.slots, len(s.ref_counts)]))",
        2,
    )
    assert [shown["step"], shown["slots"], shown["blocks"]["used"]] == state

    page.locator(".tvl").focus()
    page.keyboard.press("Home")
    page.wait_for_function(f"{HOOK}.step === 0 && !{HOOK}.live")
    page.keyboard.press("End")
    page.wait_for_function(f"{HOOK}.live")
    page.keyboard.press("Space")
    page.wait_for_function(f"{HOOK}.engine === 'running' && {HOOK}.step > {step + 20}")

    # Running the cell again closes the panel, and its engine stops.
    old = notebook.value("old = runner\nprint(json.dumps(old.state))", 2)
    assert old == "running"
    notebook.run_cell(1)
    page.wait_for_function("document.querySelectorAll('.tvl').length === 1")
    assert notebook.value(
        "import time; time.sleep(.5)\nprint(json.dumps([old.state, panel.feed.runner is old]))", 2
    ) == ["stopped", False]

    page.get_by_role("button", name="Stop the engine").click()
    page.wait_for_function(f"{HOOK}.engine === 'stopped'")
    page.get_by_role("button", name="Play").click()
    page.wait_for_function(f"{HOOK}.playing")


BREAK = """
def broken(output):
    raise ValueError("the listener is broken")
runner.listeners.append(broken)
runner.step()
"""


def test_a_reloaded_page_and_an_error(lab, open_notebook, page):
    notebook = open_notebook(lab.write("reload.ipynb", MAKE, SHOW, "", BREAK.strip()))
    notebook.run_cell(0)
    notebook.run_cell(1)
    page.wait_for_function(f"{HOOK}?.step > 20")
    page.evaluate("() => jupyterapp.commands.execute('docmanager:save')")
    page.reload()
    notebook.wait_for_kernel()
    # JupyterLab sometimes holds back all messages of a page that was loaded anew until a cell runs.
    assert notebook.value("print(json.dumps(1))", 2) == 1
    page.wait_for_function(f"{HOOK}?.step > 60 && {HOOK}.live")
    page.get_by_role("button", name="Pause the engine").click()
    page.wait_for_function(f"{HOOK}.engine === 'paused'")

    notebook.run_cell(3)
    error = page.locator(".tvl-error")
    error.wait_for()
    assert error.locator("summary").inner_text() == "ValueError: the listener is broken"
    assert not error.locator("pre").is_visible()
    error.locator("summary").click()
    assert "in broken" in error.locator("pre").inner_text()
    state = notebook.value(
        "s = History(engine.log).at(engine.log.num_steps - 1)\n"
        "print(json.dumps([engine.log.num_steps - 1, s.slots, len(s.ref_counts)]))",
        2,
    )
    shown = page.evaluate(f"[{HOOK}.step, {HOOK}.slots, {HOOK}.blocks.used]")
    assert shown == state
