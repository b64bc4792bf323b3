"""One function for each kind of widget that a cell may show: moves it, and compares with Python.

`drive` finds the function by the widget's class. A kind without one must at least show a picture
that answers when its fields are moved.
"""

import re
from typing import Any

from lab_page import Cell
from run_panels import RunPanels

UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def drive(cell: Cell) -> None:
    """Drive all that the cell shows."""
    models = cell.models()
    assert models, f"cell {cell.index} is tagged `panel` and shows no widget"
    assert cell.node.locator(".jp-OutputArea-output img").count() == 0, "the still shows too"
    for model in models:
        about = cell.notebook.ask("about", model)
        driver = DRIVERS.get(about["kind"], drive_run if about["feeds"] else drive_fields)
        driver(cell, model)
    assert cell.node.locator(".tvl-error:visible").count() == 0


def drive_run(cell: Cell, model: str) -> None:
    """Panels of runs."""
    RunPanels(cell, model).drive()


# ------------------------------------------------------------------- playground


def drive_playground(cell: Cell, model: str) -> None:
    """Buttons, a knob that acts at once, one that needs a restart, and the panels."""
    notebook = cell.notebook
    panels = RunPanels(cell, model)
    feed = cell.panels()[0]["feed"]
    runner = f"import json, kernel_side\nrunner = kernel_side.widget({model!r}).runner\n"
    config = f"{runner}config = runner.engine.config\n"
    panels.note(feed)
    panels.compare()

    cell.press("Run")
    cell.wait_until("p.live && p.engine === 'running' && p.step > 5")
    cell.node.get_by_role("tab", name="Scheduler").click()
    seats = notebook.value(f"{config}print(json.dumps(config.max_num_seqs))")
    _turn(cell, "max_num_seqs", "ArrowRight", 4)
    ask = f"{config}print(json.dumps(config.max_num_seqs))"
    notebook.wait_for(ask, lambda now: now == seats + 4)

    cell.press("Pause")
    cell.wait_until("p.engine === 'paused'")
    step = panels.ask("step_and_rest", feed)
    panels.note(feed, step)
    panels.compare_with_engine(feed)
    cell.press("Step")
    panels.note(feed, step + 1)
    panels.compare()

    # Another engine, in front of the same panels; the one before stops.
    size = notebook.value(f"{config}old = runner\nprint(json.dumps(config.block_size))")
    cell.node.get_by_role("tab", name="Memory").click()
    _turn(cell, "block_size", "ArrowRight", 1)
    cell.node.get_by_text("cannot change while the engine runs: restarted, same seed").wait_for()
    notebook.wait_for("print(json.dumps(old.state))", lambda state: state == "stopped")
    assert notebook.value(f"{config}print(json.dumps(config.block_size))") == 2 * size
    cell.wait_until("p.engine === 'running' && p.step > 3")
    panels.drive()

    cell.press("Reset")
    cell.wait_until("!p.live && p.engine === ''")
    panels.note(feed)
    panels.compare()
    cell.press("Copy as code")
    code = cell.node.locator("textarea:visible").last.input_value()
    assert f"block_size={2 * size}" in code


def _turn(cell: Cell, label: str, key: str, times: int) -> None:
    """Press a key on the slider with this label."""
    row = cell.node.locator(".widget-slider:visible", has_text=label)
    for _ in range(times):
        row.locator("[role=slider]").first.press(key)


# ------------------------------------------------------------------ calculators


def drive_wallet(cell: Cell, model: str) -> None:
    """KV wallet: bytes and users."""
    ask = (
        f"import json, kernel_side\nw = kernel_side.widget({model!r})\n"
        "print(json.dumps([vars(w.wallet), w.choice]))"
    )

    def compare(words: str) -> None:
        wallet, choice = cell.notebook.value(ask)
        if wallet["weights"] > wallet["budget"]:
            assert "do not fit" in words
            return
        assert f". {wallet['fit']:,} such users fit." in words
        assert f"× {choice['context']:,} tokens" in words
        names = ("token", "user", "all", "weights")
        _assert_bytes(words, [wallet[name] for name in names])

    move_all_fields(cell, model, compare)


def drive_roofline(cell: Cell, model: str) -> None:
    """Roofline: time, rate and bound of both points."""
    ask = (
        "import json, kernel_side\n"
        "from tinyvllm_lab.widgets.moment import duration\n"
        "from tinyvllm_lab.widgets.roofline import rate_text\n"
        f"points = kernel_side.widget({model!r}).points.values()\n"
        "print(json.dumps([[p.intensity, p.fits, rate_text(p.rate) + ', ' "
        "+ duration(p.seconds * 1e6) + ' a step', 'limited by ' + p.bound] for p in points]))"
    )

    def compare(words: str) -> None:
        lines = words.splitlines()
        for line, (intensity, fits, *parts) in zip(lines, cell.notebook.value(ask), strict=False):
            said = re.search(r": ([\d,.]+) FLOPs a byte", line)
            assert abs(float(said[1].replace(",", "")) / intensity - 1) < 0.006, line
            assert all(part in line for part in parts), (line, parts)
            assert ("more than this card holds" in line) is not fits

    move_all_fields(cell, model, compare)


def drive_launch(cell: Cell, model: str) -> None:
    """Launch geometry: threads, elements, who idles, and how full the GPU gets."""
    ask = (
        f"import json, kernel_side\nw = kernel_side.widget({model!r})\nf = w.figures\n"
        "elements = w.choice['rows'] * w.choice['columns']\n"
        "print(json.dumps([[f.threads, elements, f.idle], f.occupancy]))"
    )

    def compare(words: str) -> None:
        numbers, occupancy = cell.notebook.value(ask)
        said = re.search(r"= ([\d,]+) threads? for ([\d,]+) elements?.* Idle: ([\d,]+) thr", words)
        assert [int(text.replace(",", "")) for text in said.groups()] == numbers, words
        now = cell.node.locator(".tvl-now").inner_text()
        said = re.search(r"([\d.]+) % occupancy", now)
        assert abs(float(said[1]) - 100 * occupancy) <= 0.51, now

    move_all_fields(cell, model, compare)


def move_all_fields(cell: Cell, model: str, compare: Any) -> None:
    """Move every field of a calculator; its answer must follow Python's choice each time."""
    ask = f"import json, kernel_side\nprint(json.dumps(kernel_side.widget({model!r}).choice))"
    answer = cell.node.locator(".tvl-answer")
    compare(answer.inner_text())
    fields = cell.node.locator(".tvl-field").locator("select, input[type=range]")
    for index in range(fields.count()):
        before = cell.notebook.value(ask)
        shown = _move(fields.nth(index))
        if shown is not None:
            cell.notebook.wait_for(ask, lambda choice, old=before, new=shown: new in [
                str(choice[name]) for name in choice if choice[name] != old[name]
            ])  # fmt: skip
            compare(answer.inner_text())


def _move(field: Any) -> str | None:
    """Choose something else, or move a slider with keys; what it says then. None: it cannot."""
    low, high, value, is_select = field.evaluate(
        "e => [Number(e.min), Number(e.max), Number(e.value), e.tagName === 'SELECT']"
    )
    if field.is_disabled() or (not is_select and low == high):
        return None
    if is_select:
        place = field.evaluate("e => (e.selectedIndex + 1) % e.options.length")
        field.select_option(index=place)
        return field.input_value()
    for _ in range(3):  # one press may be less than a whole number
        field.press("ArrowRight" if value - low < (high - low) / 2 else "ArrowLeft")
    return field.get_attribute("aria-valuetext")


def drive_map(cell: Cell, model: str) -> None:
    """Safetensors map: what it says of the part under the pointer, and the whole table."""
    ask = f"import json, kernel_side\nprint(json.dumps(kernel_side.widget({model!r}).parts))"
    parts = cell.notebook.value(ask)
    words = cell.node.locator(".tvl-answer")
    for number in (1, len(parts) // 2, len(parts) - 1):
        part = parts[number]
        cell.node.locator(f'.tvl-part[data-part="{number}"]').first.hover()
        said = words.inner_text()
        assert said.startswith(f"{part['name']}: {part['dtype']}, shape {part['shape']}, "), said
        assert f"bytes {part['begin']:,} to {part['end'] - 1:,} of the file" in said
    cell.node.locator("details summary").click()
    assert cell.node.locator("details tr").count() == len(parts)


def _assert_bytes(words: str, expected: list[float]) -> None:
    said = re.findall(rf"([\d.]+) ({'|'.join(UNITS)})\b", words)
    assert len(said) == len(expected), words
    for (number, unit), count in zip(said, expected, strict=True):
        half_a_digit = 0.0501 if "." in number else 0.501
        assert abs(float(number) - count / 1024 ** UNITS.index(unit)) <= half_a_digit, words


# ------------------------------------------------------------------ other kinds


def drive_slider(cell: Cell, model: str) -> None:
    """A slider of ipywidgets beside a panel: Python hears of it."""
    ask = f"import json, kernel_side\nprint(json.dumps(kernel_side.widget({model!r}).value))"
    before = cell.notebook.value(ask)
    cell.node.locator("[role=slider]").first.press("ArrowRight")
    cell.notebook.wait_for(ask, lambda value: value > before)


def drive_explorer(cell: Cell, model: str) -> None:
    """Latency and throughput: the curve is Python's, before and after a knob was turned."""
    root = cell.panel_roots.first
    ask = f"import json, kernel_side\nw = kernel_side.widget({model!r})\n"
    curve = f"{ask}print(json.dumps(w.curves['curve']))"
    shown = "e => e.tinyvllm.curve"
    done = cell.notebook.wait_for(curve, lambda found: found["done"])
    _wait(root, f"e => e.tinyvllm.draws > 0 && ({shown})(e)?.done")
    assert root.evaluate(shown) == done
    root.get_by_label("max_num_seqs").press("ArrowLeft")
    after = cell.notebook.wait_for(
        curve, lambda found: found["done"] and found["knobs"] != done["knobs"]
    )
    _wait(
        root, f"(e, number) => ({shown})(e).number === number && ({shown})(e).done", after["number"]
    )
    assert root.evaluate(shown) == after
    root.focus()
    root.press("End")
    place = root.evaluate("e => e.tinyvllm.selected")
    cell.notebook.wait_for(f"{ask}print(json.dumps(w.selected_place))", lambda at: at == place)


def drive_xray(cell: Cell, model: str) -> None:
    """Kernel x-ray: at each step the threads are in the states that Python's timeline has."""
    root = cell.panel_roots.first
    root.locator("canvas").first.wait_for()
    for run in range(max(root.locator(".tvl-tab:visible").count(), 1)):
        if run or root.locator(".tvl-tab:visible").count():
            root.locator(".tvl-tab").nth(run).click()
        said = [_xray_words(root)]
        root.focus()
        for key in ("Home", "ArrowRight", "ArrowRight", "ArrowLeft", "End"):
            root.press(key)
            said.append(_xray_words(root))
        scrub = root.get_by_label("Step of the block")
        box = scrub.bounding_box()
        scrub.click(position={"x": box["width"] / 3, "y": box["height"] / 2})
        said.append(_xray_words(root))
        steps = [step for step, _, _ in said]
        assert steps[1] == 1
        assert steps[5] == said[0][1]
        states = cell.notebook.ask("thread_states", model, run, [step - 1 for step in steps])
        for (_, ticks, counts), expected in zip(said, states, strict=True):
            assert (ticks, counts) == (expected["ticks"], expected["counts"])


def _xray_words(root: Any) -> tuple[int, int, dict[str, int]]:
    """The step (from 1), how many there are, and threads by state, when they are drawn."""
    step = re.search(
        r"step (\d+) of", root.get_by_label("Step of the block").get_attribute("aria-valuetext")
    )
    canvas = root.locator(f'canvas[aria-label^="Step {step[1]} of "]')
    words = canvas.get_attribute("aria-label")
    counts = {state: int(n) for n, state in re.findall(r"(\d+) threads ([a-z ]+)[,.]", words)}
    return int(step[1]), int(re.search(r"of (\d+)", words)[1]), counts


_LOOK = """
e => [e.innerText, ...[...e.querySelectorAll('svg')].map(s => s.outerHTML),
  ...[...e.querySelectorAll('canvas')].map(c => c.toDataURL())].join()
"""


def drive_fields(cell: Cell, model: str) -> None:
    """A kind that has no function of its own: the picture changes when a field is moved."""
    root = cell.panel_roots.first
    root.locator("canvas:visible, svg:visible").first.wait_for()
    fields = root.locator("select:visible, input[type=range]:visible")
    assert fields.count() > 0, "nothing to move: write a function for this kind of widget"
    before = root.evaluate(_LOOK)
    _move(fields.first)
    _wait(root, f"(e, old) => ({_LOOK})(e) !== old", before)


def _wait(root: Any, test: str, value: Any = None) -> None:
    """Wait until this is true of the element."""
    root.page.wait_for_function(
        f"([e, value]) => ({test})(e, value)", arg=[root.element_handle(), value]
    )


DRIVERS = {
    "Playground": drive_playground,
    "KVWallet": drive_wallet,
    "Roofline": drive_roofline,
    "SafetensorsMap": drive_map,
    "LaunchGeometry": drive_launch,
    "LatencyThroughput": drive_explorer,
    "KernelXRay": drive_xray,
    "IntSlider": drive_slider,
}
