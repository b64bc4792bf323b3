"""All panels in one file from `save_html`, opened from disk: they show the engine's state."""

import pytest

from tinyvllm_lab.engine.config import EngineConfig
from tinyvllm_lab.engine.events import Kind
from tinyvllm_lab.engine.history import History
from tinyvllm_lab.simulate.arrivals import Poisson
from tinyvllm_lab.simulate.presets import chat
from tinyvllm_lab.simulate.run import simulate
from tinyvllm_lab.widgets import (
    Airport,
    BlockMap,
    BlockTable,
    ContiguousStrip,
    MetricStrip,
    SlotTimeline,
    TokenStream,
    compare,
    save_html,
)
from tinyvllm_lab.widgets.moment import busiest_step

pytestmark = [pytest.mark.needs("chromium"), pytest.mark.timeout(300)]
PANELS = (
    Airport, SlotTimeline, BlockMap, BlockTable, TokenStream, MetricStrip, ContiguousStrip,
)  # fmt: skip
NAMES = [panel.module for panel in PANELS]


@pytest.fixture(scope="module")
def run():
    config = EngineConfig(max_num_seqs=8, num_blocks=110, max_num_batched_tokens=512)
    return simulate(chat(30, Poisson(30.0), think_s=0.1, seed=2), config=config)


@pytest.fixture(scope="module")
def saved(run, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "run.html"
    return save_html(path, *[panel(run) for panel in PANELS])


@pytest.fixture
def opened(page, saved):
    page.context.set_offline(True)
    page.goto(saved.as_uri())
    page.wait_for_function(f"{NAMES}.every(name => window.__tinyvllm?.[name]?.draws > 0)")
    return page


def shown(page, name="airport"):
    return page.evaluate(
        f"(p => ({{step: p.step, slots: p.slots, blocks: p.blocks, waiting: p.waiting}}))"
        f"(window.__tinyvllm.{name})"
    )


def expected(run, step):
    state = History(run.log).at(step)
    cached = len(state.cached.keys() - state.ref_counts.keys())
    used = len(state.ref_counts)
    return {
        "step": step,
        "slots": {str(slot): request for slot, request in state.slots.items()},
        "blocks": {"used": used, "cached": cached, "free": 109 - used - cached},
        "waiting": state.waiting,
    }


def test_every_step_is_the_engines(opened, run):
    assert shown(opened) == expected(run, busiest_step(run.log))
    last = run.log.num_steps - 1
    for step in (0, 1, last // 3, last // 2, last - 1, last, 5):
        opened.evaluate(f"window.__tinyvllm.airport.seek({step})")
        for name in NAMES:
            assert shown(opened, name) == expected(run, step)


def test_keys_buttons_and_jumps(opened, run):
    panel = opened.locator(".tvl").first
    panel.focus()
    for key, step in (("Home", 0), ("ArrowRight", 1), ("ArrowRight", 2), ("ArrowLeft", 1)):
        opened.keyboard.press(key)
        assert shown(opened)["step"] == step
    opened.keyboard.press("End")
    assert shown(opened)["step"] == run.log.num_steps - 1
    opened.keyboard.press("Home")
    opened.get_by_label("Jump to the next event of a kind").first.select_option("preempt")
    rows = run.log.as_array()
    first = run.log.step_of(int((rows[:, 0] == int(Kind.PREEMPT)).argmax()))
    assert shown(opened)["step"] == first
    panel.locator(f"canvas[aria-label^='Step {first}: ']").wait_for()
    words = panel.locator("canvas").get_attribute("aria-label")
    assert "preempted #" in words
    opened.keyboard.press("Space")
    opened.wait_for_function(f"window.__tinyvllm.block_map.step > {first + 5}")
    opened.get_by_role("button", name="Pause").first.click()
    step = shown(opened)["step"]
    opened.wait_for_timeout(200)
    assert shown(opened, "metric_strip")["step"] == step


def test_a_click_on_the_timeline_moves_and_marks_in_all_panels(opened, run):
    last = run.log.num_steps - 1
    opened.evaluate(f"window.__tinyvllm.airport.seek({last // 2})")
    opened.wait_for_timeout(100)
    canvas = opened.locator(".tvl canvas").nth(1)
    canvas.scroll_into_view_if_needed()
    canvas.hover(position={"x": 400, "y": 15})
    tip = opened.locator(".tvl-tip:visible").inner_text()
    canvas.click(position={"x": 400, "y": 15})
    step = shown(opened)["step"]
    assert f"step {step:,}, seat 0" in tip
    focus = opened.evaluate(f"{NAMES}.map(name => window.__tinyvllm[name].focus)")
    assert len(set(focus)) == 1
    assert expected(run, step)["slots"].get("0") == focus[0]
    opened.mouse.move(5, 5)
    assert opened.evaluate("window.__tinyvllm.block_map.focus") == focus[0]


def test_two_runs_mark_the_same_request(page, run, tmp_path):
    """With one seat the turns of the chats come in another order: the numbers differ."""
    slow = simulate(run.workload, EngineConfig(max_num_seqs=1, num_blocks=110))
    names, others = (
        [about["id"] for _, about in sorted(r.log.requests.items())] for r in (slow, run)
    )
    seated = next(n for n, name in enumerate(names) if name in others and name != others[n])
    rows = slow.log.as_array()
    admitted = (rows[:, 0] == int(Kind.ADMIT)) & (rows[:, 1] == seated)
    step = slow.log.step_of(int(admitted.argmax()))
    page.goto(save_html(tmp_path / "pair.html", *compare(slow, run, Airport).panels).as_uri())
    page.wait_for_function("window.__tinyvllm?.airport_b?.draws > 0")
    page.evaluate(f"window.__tinyvllm.airport_a.seek({step})")
    page.wait_for_timeout(200)
    marked = "[window.__tinyvllm.airport_a.focus, window.__tinyvllm.airport_b.focus]"
    seat = {"x": 290, "y": 40}
    page.locator(".tvl canvas").first.hover(position=seat)
    assert page.evaluate(marked) == [seated, others.index(names[seated])]
    page.locator(".tvl canvas").first.click(position=seat)
    page.mouse.move(2, 2)
    assert page.evaluate(marked) == [seated, others.index(names[seated])]


def test_less_motion_is_honoured(chromium, saved):
    context = chromium.new_context(reduced_motion="reduce")
    page = context.new_page()
    page.goto(saved.as_uri())
    page.wait_for_function("window.__tinyvllm?.airport?.draws > 0")
    draws = page.evaluate("window.__tinyvllm.airport.draws")
    page.evaluate("window.__tinyvllm.airport.seek(40)")
    page.wait_for_timeout(400)
    assert page.evaluate("window.__tinyvllm.airport.draws") <= draws + 2
    context.close()
