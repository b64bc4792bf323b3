"""Pictures of every panel, in `assets/screenshots`: light and dark, for a laptop and a projector.

    make screenshots                                  all of them, in three minutes
    pytest tests/browser/screenshots.py -k airport    one panel

Pytest runs it for the fixtures of this folder: JupyterLab and Chromium. Its name keeps it out of
the test suite; `test_screenshots.py` holds the folder to the table of scenes below.
"""

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

FOLDER = Path(__file__).parents[2] / "assets" / "screenshots"
THEMES = {"light": "JupyterLab Light", "dark": "JupyterLab Dark"}
WIDTHS = {"laptop": (1440, "normal"), "projector": (1280, "presenter")}  # CSS px, a panel's size
HEIGHT = 5000  # CSS px: more than any panel needs, as only what is in sight can be taken
SCALE = 1.2  # device pixels a CSS pixel: sharp enough to read, and all pictures in 4 MB
COMMON, OTHERS = 16, 64  # colours: those of the large areas exactly, the rest about
MARGIN = 1  # CSS px around a panel
SETTLE_MS = 500

AROUND = """margin => {
  const parts = document.querySelectorAll(".jp-OutputArea .tvl, .jp-OutputArea .jupyter-widgets");
  const boxes = [...parts].map(part => part.getBoundingClientRect()).filter(box => box.width);
  const [left, top] = ["left", "top"].map(side => Math.min(...boxes.map(box => box[side])));
  const [right, bottom] = ["right", "bottom"].map(side => Math.max(...boxes.map(box => box[side])));
  return {x: left - margin, y: top - margin, width: right - left + 2 * margin,
          height: bottom - top + 2 * margin};
}"""

IMPORTS = """
from tinyvllm_lab import recorded_run
from tinyvllm_lab.kernels import recorded_xray
from tinyvllm_lab.paths import assets_dir
from tinyvllm_lab.widgets import *
"""

X_RAY = """
KernelXRay(
    {name: recorded_xray(f"rmsnorm_{name}_f32") for name in ("tree", "warp")}, step=10, size=SIZE
)
"""
CURVE = """
explorer = LatencyThroughput(size=SIZE)
explorer.wait()
explorer.turn(max_num_seqs=32)
explorer.wait()
explorer.selected_place = 4
explorer
"""

# Name of the pictures -> code that makes the panel, and the step to show, or None for the busiest.
# SIZE is "normal" or "presenter".
SCENES = {
    "airport": ('Airport(recorded_run("continuous"), size=SIZE)', 123),
    "slot_timeline": ('SlotTimeline(recorded_run("chunked_prefill"), size=SIZE)', 153),
    "block_map": ('BlockMap(recorded_run("prefix_sharing"), size=SIZE)', None),
    "block_table": ('BlockTable(recorded_run("prefix_sharing"), size=SIZE)', None),
    "contiguous_strip": ('ContiguousStrip(recorded_run("first_fit"), size=SIZE)', None),
    "token_stream": ('TokenStream(recorded_run("eight_prompts"), size=SIZE)', 60),
    "metric_strip": ('MetricStrip(recorded_run("preemption"), size=SIZE)', 240),
    "compare": ('compare(recorded_run("static"), recorded_run("continuous"), size=SIZE)', 240),
    "playground": ("Playground(size=SIZE)", None),
    "kv_wallet": ("KVWallet(size=SIZE)", None),
    "latency_throughput": (CURVE, None),
    "launch_geometry": ("LaunchGeometry(size=SIZE)", None),
    "roofline": ("Roofline(size=SIZE)", None),
    "safetensors_map": ('SafetensorsMap(assets_dir() / "models" / "tiny", size=SIZE)', None),
    "kernel_xray": (X_RAY, None),
}


def file_of(scene: str, theme: str, width: str) -> str:
    """The name of a picture."""
    return f"{scene}-{theme}-{width}.png"


@pytest.fixture
def context_options():
    viewport = {"width": 1440, "height": HEIGHT}
    return {"viewport": viewport, "device_scale_factor": SCALE, "reduced_motion": "reduce"}


@pytest.mark.needs("chromium")
@pytest.mark.timeout(300)
@pytest.mark.parametrize("scene", SCENES)
def test_take(scene, lab, open_notebook, page):
    notebook = open_notebook(lab.write(f"{scene}.ipynb", IMPORTS.strip(), ""))
    page.evaluate("jupyterapp.shell.collapseLeft()")
    notebook.run_cell(0)
    for width, (pixels, size) in WIDTHS.items():
        page.set_viewport_size({"width": pixels, "height": HEIGHT})
        code, step = SCENES[scene]
        show(notebook, code.strip().replace("SIZE", repr(size)), step)
        for theme in THEMES:
            (FOLDER / file_of(scene, theme, width)).write_bytes(take(page, theme))


def show(notebook, code, step):
    """Put the code into the second cell, run it, and go to the step."""
    page = notebook.page
    page.evaluate(
        "code => jupyterapp.shell.currentWidget.content.model.sharedModel.cells[1].setSource(code)",
        code,
    )
    notebook.run_cell(1)
    page.locator(".tvl").first.wait_for()
    if step is not None:
        page.wait_for_function("document.querySelector('.tvl').tinyvllm?.draws > 0")
        page.evaluate("step => document.querySelector('.tvl').tinyvllm.seek(step)", step)


def take(page, theme):
    """The panel's picture in a theme, as a small PNG."""
    page.evaluate(
        "theme => jupyterapp.commands.execute('apputils:change-theme', {theme})", THEMES[theme]
    )
    light = str(theme == "light").lower()
    page.wait_for_function(f"document.body.dataset.jpThemeLight === '{light}'")
    page.mouse.move(0, 0)
    page.wait_for_timeout(SETTLE_MS)
    shot = page.screenshot(clip=page.evaluate(AROUND, MARGIN))
    small = io.BytesIO()
    in_few_colours(Image.open(io.BytesIO(shot)).convert("RGB")).save(small, "PNG", optimize=True)
    return small.getvalue()


def in_few_colours(image):
    """The picture with a palette: its commonest colours, and some that lie far apart."""
    packed = np.asarray(image).astype(int) @ (1 << 16, 1 << 8, 1)  # [height, width]
    values, places, counts = np.unique(packed, return_inverse=True, return_counts=True)
    colours = np.stack([values >> 16, values >> 8 & 255, values & 255], 1)  # [different, 3]
    common = colours[np.argsort(-counts)[:COMMON]]
    others = image.quantize(OTHERS, Image.Quantize.MAXCOVERAGE, 2).getpalette()[: 3 * OTHERS]
    palette = np.concatenate([common, np.reshape(others, (-1, 3))])
    nearest = ((colours[:, None] - palette) ** 2).sum(2).argmin(1).astype(np.uint8)
    made = Image.fromarray(nearest[places].reshape(image.height, image.width), "P")
    made.putpalette(palette.astype(np.uint8).tobytes())
    return made
