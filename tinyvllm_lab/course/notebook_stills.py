"""Pictures for readers without a kernel: a chart in a stored notebook also stands there as PNG.

GitHub, print and a notebook that is not trusted show neither plotly's data nor a widget. Plotly's
own engine draws the PNG, in the Chromium of this machine.
"""

from __future__ import annotations

import base64
import io
import shutil
from collections.abc import Iterator
from typing import Any

from nbformat import NotebookNode

from tinyvllm_lab.course.notebook_run import PLOTLY
from tinyvllm_lab.errors import TinyVllmError

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
WIDTH, HEIGHT = 700, 380  # px, of a figure that does not say its size
SCALE = 1
"""Pixels per px. Plotly's extension shows a stored still in JupyterLab until the mouse comes over
it, pixel by pixel: twice as many would fill twice the width, and lose half the chart."""
MAX_COLOUR_ERROR = 2.0  # of 255, root mean square: above it, shades turn into steps


def add_stills(nb: NotebookNode) -> int:
    """Give each plotly output of `nb` an `image/png`; returns how many there are.

    Raises:
        TinyVllmError: there are figures, but no kaleido or no Chromium to draw them.
    """
    outputs = list(_plotly_outputs(nb))
    if outputs:
        pictures = _draw([output.data[PLOTLY] for output in outputs])
        for output, (png, size) in zip(outputs, pictures, strict=True):
            output.data["image/png"] = base64.b64encode(packed(png)).decode()
            output.metadata["image/png"] = size
    return len(outputs)


def packed(png: bytes) -> bytes:
    """The same picture in fewer bytes: in 256 colours, or in all if these would show steps.

    A chart has few colours, and becomes four or five times smaller; a heatmap has shades.
    """
    from PIL import Image, ImageChops, ImageStat

    picture = Image.open(io.BytesIO(png)).convert("RGBA")
    few = picture.quantize(256, method=Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE)
    # On the page, colours count as much as they are opaque: "RGBa" has them multiplied.
    error = ImageChops.difference(picture.convert("RGBa"), few.convert("RGBA").convert("RGBa"))
    worst = max(ImageStat.Stat(channel).rms[0] for channel in error.split())
    packed_png = io.BytesIO()
    (few if worst <= MAX_COLOUR_ERROR else picture).save(packed_png, "PNG", optimize=True)
    return packed_png.getvalue()


def _plotly_outputs(nb: NotebookNode) -> Iterator[NotebookNode]:
    for cell in nb.cells:
        for output in cell.get("outputs", []):
            if PLOTLY in output.get("data", {}):
                yield output


def _draw(figures: list[dict[str, Any]]) -> Iterator[tuple[bytes, dict[str, int]]]:
    """PNG of each figure, and the size (px) at which it is to be shown."""
    kaleido, browser = _import_kaleido(), _find_browser()
    kaleido.start_sync_server(n=1, path=browser, silence_warnings=True)
    try:
        for figure in figures:
            layout = figure.get("layout", {})
            size = {"width": layout.get("width", WIDTH), "height": layout.get("height", HEIGHT)}
            spec = {"data": figure["data"], "layout": layout}
            png = kaleido.calc_fig_sync(spec, opts={"format": "png", "scale": SCALE, **size})
            yield png, size
    finally:
        kaleido.stop_sync_server(silence_warnings=True)


def _import_kaleido() -> Any:
    try:
        import kaleido
    except ImportError:
        raise TinyVllmError(
            "The package kaleido is not installed; it draws the stills.",
            fix="pip install 'tinyvllm-lab[test]'",
        ) from None
    return kaleido


def _find_browser() -> str:
    for name in BROWSERS:
        if path := shutil.which(name):
            return path
    raise TinyVllmError(
        "No Chromium on this machine; it draws the stills.",
        expected=f"one of {', '.join(BROWSERS)} on the PATH",
        fix="Install Chromium.",
    )
