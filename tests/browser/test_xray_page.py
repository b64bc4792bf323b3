"""The kernel x-ray in a page of its own: steps, keys, tabs, and what lights up what."""

from collections import Counter

import pytest

from tinyvllm_lab.kernels import recorded_xray
from tinyvllm_lab.widgets import KernelXRay
from tinyvllm_lab.widgets.kernel_xray_still import thread_states
from tinyvllm_lab.widgets.xray_run import XRayRun

pytestmark = [pytest.mark.needs("chromium"), pytest.mark.timeout(120)]
HOOK = "document.querySelector('.tvl').tinyvllm"
WORDS = {"barrier": "waiting", "idle": "idle", "done": "done"}


@pytest.fixture(scope="module")
def panel():
    return KernelXRay({"broken": recorded_xray("tree"), "repaired": recorded_xray("tree_2")})


@pytest.fixture
def opened(page, panel, tmp_path):
    page.context.set_offline(True)
    page.goto(panel.save_html(tmp_path / "xray.html").as_uri())
    page.wait_for_function(f"{HOOK}?.draws > 0")
    return page


def test_every_step_is_what_python_counts(opened, panel):
    opened.get_by_role("button", name="repaired").click()
    run = XRayRun("", panel.xrays["repaired"])
    assert opened.evaluate(f"{HOOK}.label") == "repaired"
    assert opened.evaluate(f"{HOOK}.lastStep") == run.timeline.ticks - 1
    for tick in range(run.timeline.ticks):
        opened.evaluate(f"{HOOK}.seek({tick})")
        states = Counter(WORDS.get(state, "active") for state in thread_states(run, tick))
        shown = opened.evaluate(f"{HOOK}.threads")
        assert {state: n for state, n in shown.items() if n} == dict(states)


def test_it_opens_at_the_race_and_goes_there_again(opened, panel):
    run = XRayRun("", panel.xrays["broken"])
    assert opened.evaluate(f"{HOOK}.step") == run.start
    chips = opened.locator(".tvl-code-finding").all_inner_texts()
    assert "race" in chips
    opened.locator(".tvl").focus()
    opened.keyboard.press("Home")
    assert opened.evaluate(f"{HOOK}.step") == 0
    opened.locator(".tvl-finding").first.click()
    assert opened.evaluate(f"{HOOK}.step") == run.start
    finding = panel.xrays["broken"].findings[0]
    chosen = '.tvl-code-line[data-now="chosen"] .tvl-code-number'  # drawn in the next frame
    opened.locator(chosen, has_text=str(finding.line)).wait_for()


def test_keys_and_playing(opened):
    opened.locator(".tvl").focus()
    for key, step in (("Home", 0), ("ArrowRight", 1), ("ArrowRight", 2), ("ArrowLeft", 1)):
        opened.keyboard.press(key)
        assert opened.evaluate(f"{HOOK}.step") == step
    opened.keyboard.press("End")
    last = opened.evaluate(f"{HOOK}.lastStep")
    assert opened.evaluate(f"{HOOK}.step") == last
    opened.keyboard.press("Home")
    opened.keyboard.press("ArrowDown")
    assert opened.evaluate(f"{HOOK}.warp") == 1
    opened.get_by_label("Speed").select_option("100")
    opened.get_by_role("button", name="Play").click()
    opened.wait_for_function(f"{HOOK}.step === {last} && !{HOOK}.playing")
    words = f"Step {last + 1} of {last + 1}. Warp 1 is done."
    opened.locator(f'canvas[aria-label^="{words}"]').wait_for()


def test_a_line_finds_its_steps_and_a_thread_its_line(opened):
    opened.locator(".tvl").focus()
    opened.keyboard.press("Home")
    line = opened.locator(".tvl-code-line", has_text="__syncthreads")
    line.click()
    opened.wait_for_function(f"{HOOK}.words.includes('at the barrier')")
    opened.locator(".tvl-xray-body canvas").hover(position={"x": 120, "y": 64})
    tip = opened.locator(".tvl-tip:visible").inner_text()
    assert tip.startswith("thread (")
    pointed = opened.locator('.tvl-code-line[data-pointed="true"] .tvl-code-text')
    assert pointed.inner_text().startswith("__syncthreads")
