"""The playground in JupyterLab, measured: from a key press to the picture, first paint, CPU.

    python tests/bench/bench_playground.py

JupyterLab and Chromium are those of the browser tests. A picture counts as drawn when all panels
have drawn it and the browser has shown that frame; Chromium draws in software.
"""

import json
import os
import statistics
import sys
from pathlib import Path

import pytest
from verdict import met

BROWSER_TESTS = Path(__file__).parent.parent / "browser"
CHANGES, PAINTS, CPU_S = 20, 5, 6
PANELS = ("Airport", "SlotTimeline", "BlockMap", "MetricStrip")

SETUP = """
import json, time
from tinyvllm_lab import EngineConfig
from tinyvllm_lab.engine.events import Kind
from tinyvllm_lab.simulate.presets import airport
from tinyvllm_lab.simulate.run import simulate
from tinyvllm_lab.widgets import Airport, BlockMap, MetricStrip, Playground, SlotTimeline
from tinyvllm_lab.widgets import PlaygroundSettings, WorkloadKnobs

log = simulate(airport(200)).log
"""
RUSH = """
from tinyvllm_lab.paths import assets_dir

config = EngineConfig(max_num_seqs=48, num_blocks=1025)
path = assets_dir() / "workloads" / "rush.jsonl"
playground = Playground(PlaygroundSettings(workload=path, config=config))
playground
"""
CHAT = """
config = EngineConfig(max_num_seqs=48, num_blocks=2049, max_model_len=8192)
knobs = WorkloadKnobs(preset="chat", num_requests=500, rate_per_s=2.0)
playground = Playground(PlaygroundSettings(workload=knobs, config=config))
playground
"""
RUN = """
rows = playground.feed.event_log.as_array()
kinds = [int((rows[:, 0] == int(kind)).sum()) for kind in (Kind.FINISH, Kind.SCHEDULED)]
print(json.dumps([*kinds, len(rows)]))
"""
CPU = f"""
def busy(act):
    act()
    time.sleep(1)
    wall, cpu = time.perf_counter(), time.process_time()
    time.sleep({CPU_S})
    return (time.process_time() - cpu) / (time.perf_counter() - wall)

runner = playground.settings.make_runner(pace=30.0)
headless = busy(runner.start)
runner.stop()
playground.pace.value = 30.0
shown = busy(playground.buttons["Run"].click)
steps = playground.feed.event_log.num_steps
playground.buttons["Pause"].click()
print(json.dumps([headless, shown, steps / ({CPU_S} + 1)]))
"""

WATCH = """names => {
  const hooks = names.map(name => window.__tinyvllm[name]);
  const before = hooks[0].drawn.run;
  window.watched = new Promise(done => {
    let pressed = null, first = null;
    const options = { capture: true, once: true };
    document.addEventListener('keydown', event => { pressed = event.timeStamp; }, options);
    requestAnimationFrame(function look() {
      const took = performance.now() - pressed;
      const isNew = pressed !== null && hooks.every(({ drawn }) => drawn.run > before);
      if (isNew) first ??= took;
      if (isNew && hooks.every(h => h.drawn.whole && h.drawn.steps === h.lastStep + 1)) {
        done([first, took]);
      } else requestAnimationFrame(look);
    });
  });
}"""
PAINT = """async ([source, names]) => {
  const { content } = jupyterapp.shell.currentWidget;
  content.model.sharedModel.cells[1].setSource(source);
  content.activeCellIndex = 1;
  content.deselectAll();
  window.__tinyvllm = {};
  const began = performance.now();
  const run = jupyterapp.commands.execute('notebook:run-cell');
  const painted = new Promise(done => requestAnimationFrame(function look() {
    if (names.every(name => window.__tinyvllm[name]?.draws > 0)) done(performance.now() - began);
    else requestAnimationFrame(look);
  }));
  if (!await run) throw new Error(JSON.stringify(content.model.sharedModel.cells[1].outputs));
  return painted;
}"""


def module(panel: str) -> str:
    return "".join("_" + c.lower() if c.isupper() else c for c in panel).strip("_")


MODULES = [module(panel) for panel in PANELS]


@pytest.fixture
def notebook(lab, open_notebook):
    opened = open_notebook(lab.write("bench.ipynb", SETUP.strip(), "", ""))
    opened.run_cell(0)
    return opened


def value(notebook, page, code: str):
    """What the kernel prints for `code`, put into the last cell and run, as JSON."""
    cell = "jupyterapp.shell.currentWidget.content.model.sharedModel.cells[2]"
    page.evaluate(f"code => {cell}.setSource(code)", code.strip())
    notebook.run_cell(2)
    return json.loads(notebook.printed(2))


def changes(page, count: int) -> tuple[list[float], list[float]]:
    """Keys on the slider of seats: ms to the first picture of the new run, and to the whole."""
    page.get_by_role("tab", name="Scheduler").click()
    row = page.locator(".widget-slider", has_text="max_num_seqs")
    row.locator("[role=slider]").first.focus()
    times = []
    for number in range(count + 1):
        page.evaluate(WATCH, MODULES)
        page.keyboard.press("ArrowLeft" if number % 2 else "ArrowRight")
        times.append(page.evaluate("window.watched"))
        page.wait_for_timeout(150)
    first, whole = zip(*times[1:], strict=True)  # the first change warms up
    return sorted(first), sorted(whole)


def in_words(times: list[float]) -> str:
    return f"median {statistics.median(times):.0f} ms ({times[0]:.0f} to {times[-1]:.0f})"


def measure_a_slider_on_a_fixed_workload(notebook, page):
    page.evaluate(PAINT, [RUSH.strip(), MODULES])
    _, whole = changes(page, CHANGES)
    finished, request_steps, events = value(notebook, page, RUN)
    print(
        f"slider to finished picture, rush.jsonl ({finished} requests, {request_steps:,} "
        f"request-steps, {events:,} events), {len(whole)} changes: {in_words(whole)}; "
        f"median at most 150: {met(statistics.median(whole) <= 150)}"
    )


def measure_a_slider_on_the_chat_preset(notebook, page):
    page.evaluate(PAINT, [CHAT.strip(), MODULES])
    page.wait_for_function("window.__tinyvllm.airport.drawn.whole")
    first, whole = changes(page, CHANGES // 2)
    finished, request_steps, events = value(notebook, page, RUN)
    print(
        f"slider to picture, chat ({finished} requests, {request_steps:,} request-steps, "
        f"{events:,} events), {len(whole)} changes: first part {in_words(first)}, whole "
        f"{in_words(whole)}; at most 150 and 2,000: "
        f"{met(statistics.median(first) <= 150 and statistics.median(whole) <= 2000)}"
    )


def first_paint(notebook, page, cell) -> float:
    """ms, in a notebook that shows nothing yet."""
    value(notebook, page, "import ipywidgets\nipywidgets.Widget.close_all()\nprint(0)")
    page.wait_for_timeout(200)
    return page.evaluate(PAINT, list(cell))


def measure_first_paint(notebook, page):
    cells = {panel: (f"{panel}(log)", [module(panel)]) for panel in PANELS}
    cells["Playground"] = ("playground = Playground()\nplayground", MODULES)
    for name, cell in cells.items():
        times = sorted(first_paint(notebook, page, cell) for _ in range(PAINTS))
        print(
            f"cell run to first pixels, {name}: {in_words(times)}; "
            f"at most 500: {met(statistics.median(times) <= 500)}"
        )


def measure_the_kernel(notebook, page):
    knobs = "WorkloadKnobs(num_requests=300)"
    make = f"playground = Playground(PlaygroundSettings(workload={knobs}))\nplayground"
    page.evaluate(PAINT, [make, MODULES])
    headless, shown, pace = value(notebook, page, CPU)
    print(
        f"kernel, playground live at {pace:.0f} steps/s: {shown:.1%} of a core, the engine alone "
        f"{headless:.1%}; {shown - headless:.1%} beyond it, at most 8 %: "
        f"{met(shown - headless <= 0.08)}"
    )


def pytest_report_teststatus(report):
    """No dots between the results."""
    return (report.outcome, "", "") if report.passed and report.when == "call" else None


def main() -> int:
    sys.path.insert(0, str(BROWSER_TESTS))
    options = ["-q", "-s", "--noconftest", "-p", "conftest", "--no-header", "--tb=short"]
    options += ["-o", "python_files=bench_*.py", "-o", "python_functions=measure_*"]
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    return pytest.main([*options, __file__], plugins=[sys.modules["__main__"]])


if __name__ == "__main__":
    sys.exit(main())
