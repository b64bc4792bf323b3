"""The latency-throughput explorer: in JupyterLab, and in a saved page without a kernel."""

import json

import pytest

from tinyvllm_lab.widgets import LatencyThroughput

pytestmark = [pytest.mark.needs("chromium"), pytest.mark.timeout(300)]
HOOK = "window.__tinyvllm?.latency_throughput"
MAKE = """
import json
from tinyvllm_lab.widgets import Airport, LatencyThroughput
"""
SHOW = """
explorer = LatencyThroughput(max_num_seqs=16, prompt=64, answer=16)
explorer
"""


def goodput(page):
    """Heights of the marks in the second chart."""
    return page.evaluate(
        "[...document.querySelectorAll('.tvl-charts svg:nth-child(2) .tvl-dot')]"
        ".map(dot => Number(dot.getAttribute('cy')))"
    )


def test_a_saved_page_shows_the_curves_and_says_what_it_cannot(page, tmp_path):
    explorer = LatencyThroughput(max_num_seqs=16, prompt=64, answer=16)
    explorer.wait()
    explorer.turn(max_num_seqs=8)
    explorer.selected_place = 2
    path = explorer.save_html(tmp_path / "page.html")
    explorer.close()
    page.context.set_offline(True)
    page.goto(path.as_uri())
    page.wait_for_function(f"{HOOK}?.draws > 0")
    curves = page.evaluate(f"({{curve: {HOOK}.curve, former: {HOOK}.former}})")
    assert curves == json.loads(json.dumps(explorer.curves))
    assert page.get_by_text("This page has no kernel").is_visible()
    assert page.get_by_role("slider", name="max_num_seqs").is_disabled()
    assert page.locator(".tvl-readout").inner_text().startswith("explorer.run(2): ")
    before, limit = goodput(page), page.get_by_role("slider", name="limit of TPOT")
    assert len(before) == 10
    limit.focus()
    page.keyboard.press("Home")  # 2 ms: no answer is that fast
    page.get_by_text("At no rate here do 95 % of the requests meet").wait_for()
    assert len(set(goodput(page))) == 1
    page.locator(".tvl-load").focus()
    for key, place in (
        ("End", 9),
        ("ArrowLeft", 8),
        ("Home", 0),
        ("ArrowRight", 1),
        ("Escape", None),
    ):
        page.keyboard.press(key)
        assert page.evaluate(f"{HOOK}.selected") == place
    page.locator(".tvl-target").nth(4).click()
    assert page.evaluate(f"{HOOK}.selected") == 4


def test_with_a_kernel_points_come_one_by_one(lab, open_notebook, page):
    notebook = open_notebook(lab.write("explorer.ipynb", MAKE.strip(), SHOW.strip()))
    notebook.run_cell(0)
    notebook.run_cell(1)
    page.wait_for_function(f"{HOOK}?.curve?.done && {HOOK}.draws > 0")
    assert page.locator(".jp-OutputArea-output img").count() == 0, "the still shows beside it"
    page.evaluate(
        f"window.seen = []; const see = () => {{ window.seen.push({HOOK}.curve.points.length);"
        " requestAnimationFrame(see); }; see()"
    )
    seats = page.get_by_role("slider", name="max_num_seqs")
    seats.focus()
    page.keyboard.press("ArrowLeft")
    page.wait_for_function(f"{HOOK}.curve.knobs.max_num_seqs < 16 && {HOOK}.curve.done")
    assert len(set(page.evaluate("window.seen"))) > 4
    assert page.evaluate(f"{HOOK}.former.knobs.max_num_seqs") == 16
    page.locator(".tvl-target").nth(6).click()
    page.wait_for_function(f"{HOOK}.selected === 6")
    rates = notebook.value(
        "point = explorer.sweep.points[6]\n"
        "print(json.dumps([explorer.selected is point.run, point.rate, point.requests_per_s]))"
    )
    shown = page.evaluate(f"[{HOOK}.curve.points[6].rate, {HOOK}.curve.points[6].requests]")
    assert rates == [True, *shown]
    notebook.run_cell(1)  # anew: the old one closes, and no thread is left
    page.wait_for_function("document.querySelectorAll('.tvl-load').length === 1")
    page.wait_for_function(f"{HOOK}.curve.done && {HOOK}.former === null")
    assert notebook.value(
        "import threading\n"
        "print(json.dumps([t.name for t in threading.enumerate()].count('sweep')))"
    ) == 0  # fmt: skip
