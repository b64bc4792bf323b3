"""The playground in JupyterLab: buttons and sliders move the engine, and the panels show it."""

import pytest

from tinyvllm_lab import recorded_run

pytestmark = [pytest.mark.needs("chromium"), pytest.mark.timeout(300)]

MAKE = """
import json
from tinyvllm_lab.engine.history import History
from tinyvllm_lab.widgets import Playground, PlaygroundSettings, WorkloadKnobs

workload = WorkloadKnobs(num_requests=200, rate_per_s=60.0)
playground = Playground(PlaygroundSettings(workload=workload))
playground
"""
HOOK = "window.__tinyvllm?.airport"
STATE = """
log = playground.feed.event_log
s = History(log).at(log.num_steps - 1)
print(json.dumps([log.num_steps - 1, s.slots, len(s.ref_counts)]))
"""


def press(page, name):
    page.get_by_role("button", name=name, exact=True).first.click()


def slider(page, label):
    row = page.locator(".widget-slider", has_text=label)
    return row.locator("[role=slider]").first


def shown(page):
    return page.evaluate(f"[{HOOK}.step, {HOOK}.slots, {HOOK}.blocks.used]")


def test_buttons_and_sliders_move_the_engine(lab, open_notebook, page):
    notebook = open_notebook(lab.write("playground.ipynb", MAKE.strip(), ""))
    notebook.run_all()
    page.wait_for_function(f"{HOOK}?.lastStep > 100")

    press(page, "Run")
    page.wait_for_function(f"{HOOK}.live && {HOOK}.engine === 'running' && {HOOK}.step > 10")
    page.get_by_role("tab", name="Scheduler").click()
    seats = slider(page, "max_num_seqs")
    seats.focus()
    for _ in range(4):
        seats.press("ArrowRight")
    page.wait_for_function(f"Object.keys({HOOK}.slots).length > 8")

    press(page, "Pause")
    page.wait_for_function(f"{HOOK}.engine === 'paused'")
    page.wait_for_timeout(300)
    assert shown(page) == notebook.value(STATE.strip(), 1)
    seats_now = "print(json.dumps(playground.runner.engine.config.max_num_seqs))"
    assert notebook.value(seats_now, 1) == 12
    step = page.evaluate(f"{HOOK}.step")
    press(page, "Step")
    page.wait_for_function(f"{HOOK}.step === {step + 1}")

    # A knob that needs a restart: another engine, in front of the same panels.
    old = "old = playground.runner\nprint(json.dumps(old.state))"
    assert notebook.value(old, 1) == "paused"
    page.get_by_role("tab", name="Memory").click()
    blocks = slider(page, "block_size")
    blocks.focus()
    blocks.press("ArrowRight")
    page.get_by_text("cannot change while the engine runs: restarted, same seed").wait_for()
    page.wait_for_function(f"{HOOK}.engine === 'running' && {HOOK}.step > 3")
    check = (
        "import time; time.sleep(.5)\n"
        "print(json.dumps([old.state, playground.runner.engine.config.block_size]))"
    )
    assert notebook.value(check, 1) == ["stopped", 32]

    press(page, "Reset")
    page.wait_for_function(f"!{HOOK}.live && {HOOK}.lastStep > 100")
    page.get_by_role("button", name="Copy as code").click()
    assert "block_size=32" in page.locator("textarea:visible").last.input_value()

    page.get_by_label("recorded").select_option("preemption")
    page.wait_for_function(f"{HOOK}.lastStep === {recorded_run('preemption').num_steps - 1}")
