"""A panel in front of a live engine, in JupyterLab: it runs, pauses, steps, scrubs, stops."""

import pytest
from run_panels import RunPanels

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
KERNELS = "@jupyterlab/apputils-extension:kernels-settings"
LISTEN = """
import gc, threading, weakref
threads = set()
panel.feed.on_msg(lambda *_: threads.add(threading.current_thread().name))
print(json.dumps(None))
"""
REMEMBER = """
old = [weakref.ref(engine), weakref.ref(runner), weakref.ref(engine.executor)]
old_state = lambda: "gone" if old[1]() is None else old[1]().state
print(json.dumps(old_state()))
"""
IS_FREE = "gc.collect()\nprint(json.dumps([ref() is None for ref in old]))"


@pytest.mark.parametrize("subshells", ["perCommTarget", "disabled"])
def test_a_live_engine(subshells, lab, open_notebook, page):
    with lab.setting(KERNELS, commsOverSubshells=subshells):
        notebook = open_notebook(lab.write("live.ipynb", MAKE, SHOW))
    notebook.run_all()
    page.wait_for_function(f"{HOOK}?.step > 20 && Object.keys({HOOK}.slots).length > 2")
    cell = notebook.cell(1)
    assert cell.panel_roots.count() == 1
    assert cell.node.locator("img").count() == 0, "the still shows beside the panel"
    notebook.value(LISTEN)
    panels = RunPanels(cell, *cell.models())
    root, feed = cell.panel_roots, cell.panels()[0]["feed"]

    cell.press("Pause the engine")
    cell.wait_until("p.engine === 'paused'")
    step = panels.ask("step_and_rest", feed)
    panels.note(feed, step)
    cell.press("One step on")
    panels.note(feed, step + 1)
    panels.compare_with_engine(feed)
    notebook.value("print(json.dumps(runner.set_knob('max_num_seqs', 9)))")
    cell.press("One step on")
    panels.note(feed, step + 2)
    assert notebook.value("print(json.dumps(engine.config.max_num_seqs))") == 9
    panels.compare()

    root.focus()
    page.keyboard.press("Home")
    cell.wait_until("p.step === 0 && !p.live")
    page.keyboard.press("End")
    cell.wait_until("p.live")
    page.keyboard.press("Space")
    cell.wait_until(f"p.engine === 'running' && p.step > {step + 20}")
    threads = notebook.value("print(json.dumps(sorted(threads)))")
    assert subshells != "disabled" or threads == ["MainThread"]

    # Running the cell again closes the panel: its engine stops and its memory is free.
    assert notebook.value(REMEMBER) == "running"
    notebook.run_cell(1)
    page.wait_for_function("document.querySelectorAll('.tvl').length === 1")
    notebook.wait_for(IS_FREE, lambda free: free == [True] * 3)
    cell.wait_until("p.engine === 'running'")
    cell.press("Stop the engine")
    cell.wait_until("p.engine === 'stopped'")
    cell.press("Play")
    cell.wait_until("p.playing")


BREAK = """
def broken(output):
    raise ValueError("the listener is broken")
runner.listeners.append(broken)
runner.step()
"""


def test_a_reloaded_page_and_an_error(lab, open_notebook, page):
    notebook = open_notebook(lab.write("reload.ipynb", MAKE, SHOW, "print()", BREAK.strip()))
    notebook.run_cell(0)
    notebook.run_cell(1)
    page.wait_for_function(f"{HOOK}?.step > 20")
    page.evaluate("() => jupyterapp.commands.execute('docmanager:save')")
    page.reload()
    notebook.wait_for_kernel()
    # JupyterLab sometimes holds back all messages of a page that was loaded anew until a cell runs.
    notebook.run_cell(2)
    page.wait_for_function(f"{HOOK}?.step > 60 && {HOOK}.live")
    cell = notebook.cell(1)
    cell.press("Pause the engine")
    cell.wait_until("p.engine === 'paused'")

    notebook.run_cell(3)
    error = page.locator(".tvl-error")
    error.wait_for()
    assert error.locator("summary").inner_text() == "ValueError: the listener is broken"
    assert not error.locator("pre").is_visible()
    error.locator("summary").click()
    assert "in broken" in error.locator("pre").inner_text()
    panels = RunPanels(cell, notebook.value("print(json.dumps(panel.model_id))"))
    feed = cell.panels()[0]["feed"]
    panels.note(feed, panels.ask("last_step", feed))
    panels.compare()
