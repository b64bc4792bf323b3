"""`KernelXRay`: a launch from inside, step by step (chapters 06, 07 and 11)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anywidget
import traitlets
from PIL import Image

from tinyvllm_lab.errors import ConfigError
from tinyvllm_lab.kernels.module import Function
from tinyvllm_lab.kernels.xray_data import XRay
from tinyvllm_lab.widgets.display import Displayed
from tinyvllm_lab.widgets.esm import STATIC, bundle
from tinyvllm_lab.widgets.feed import RunFeed
from tinyvllm_lab.widgets.kernel_xray_still import still_of
from tinyvllm_lab.widgets.panel import SIZES
from tinyvllm_lab.widgets.still import to_png
from tinyvllm_lab.widgets.xray_run import XRayRun

CAPTION = (
    "Measured on the CPU back end: what each thread does, bytes, sectors, passes and lanes are "
    "exact for this program; no GPU time is. Drawn: which warp goes when. Here they take turns."
)


class KernelXRay(Displayed, anywidget.AnyWidget):
    """Threads, memory, barriers and the source of one launch, step by step; or of several.

    Args:
        launch: an x-ray, the path of a recorded one, a mapping from labels to such (broken and
            repaired, slow and fast), or a kernel from `Module.get_function`, which is then run.
        args: for a kernel: as in its call.
        title: above the picture; None: the kernel's name.
        caption: below it; None: what the panel shows.
        size: "normal", or "presenter" for a projector.
        name: of the page's debug hook `window.__tinyvllm[name]`.
        step: to begin with, from 0; None: that of a finding, or the one that wastes most.
        launch_options: for a kernel: `grid`, `block`, `shared`, `blocks` as for `kernels.xray`.

    Attributes:
        xrays: label -> the x-ray.

    Raises:
        ConfigError: it is none of them, or the size is unknown.
        KernelError: the kernel cannot be run, or there is no such recording.
    """

    module = "kernel_xray"
    _esm = bundle("kernel_xray")
    _css = "".join(
        (STATIC / name).read_text(encoding="utf-8")
        for name in ("panel.css", "calculator.css", "kernel_xray.css")
    )

    name = traitlets.Unicode().tag(sync=True)
    title = traitlets.Unicode().tag(sync=True)
    caption = traitlets.Unicode().tag(sync=True)
    size = traitlets.Unicode("normal").tag(sync=True)
    runs = traitlets.List(traitlets.Dict()).tag(sync=True)

    def __init__(
        self,
        launch: Any,
        *args: Any,
        title: str | None = None,
        caption: str | None = None,
        size: str = "normal",
        name: str = "kernel_xray",
        step: int | None = None,
        **launch_options: Any,
    ) -> None:
        if size not in SIZES:
            raise ConfigError(f"KernelXRay: the size is {size!r}.", "one of " + ", ".join(SIZES))
        self.xrays = _xrays(launch, args, launch_options)
        self._shown = [XRayRun(label, xray) for label, xray in self.xrays.items()]
        pages = [run.to_page() for run in self._shown]
        for page in pages:
            page["start"] = min(page["start"] if step is None else step, max(page["ticks"] - 1, 0))
        self._starts = [page["start"] for page in pages]
        self._titles = [title or f"Kernel x-ray: {xray.kernel}" for xray in self.xrays.values()]
        kernels = dict.fromkeys(xray.kernel for xray in self.xrays.values())
        super().__init__(
            name=name,
            title=f"Kernel x-ray: {', '.join(kernels)}" if title is None else title,
            caption=CAPTION if caption is None else caption,
            size=size,
            runs=pages,
        )

    def save_html(self, path: str | Path) -> Path:
        """Write one file that shows the panel in any browser, with no network.

        Raises:
            OSError: the file cannot be written.
        """
        from tinyvllm_lab.widgets.export import save_html

        return save_html(path, self)

    def still(self) -> bytes:
        """The picture, as PNG: of several launches all, one below the other."""
        return to_png(self.still_image())

    def still_image(self) -> Image.Image:
        """The same as an image of Pillow."""
        captions = [*[""] * (len(self._shown) - 1), self.caption]
        shown = zip(self._titles, self._shown, self._starts, captions, strict=True)
        images = [still_of(*one) for one in shown]
        sheet = Image.new("RGB", (images[0].width, sum(i.height for i in images)), "#ffffff")
        top = 0
        for image in images:
            sheet.paste(image, (0, top))
            top += image.height
        return sheet

    def shown_feeds(self) -> list[RunFeed]:
        """None: it shows no run of the engine."""
        return []

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        """The widget, and its picture for those who cannot show a widget."""
        return self._bundle(anywidget.AnyWidget._repr_mimebundle_(self, **kwargs))

    def __repr__(self) -> str:
        parts = [
            f"{run.label}: {run.timeline.ticks:,} steps, {len(run.xray.findings)} findings"
            for run in self._shown
        ]
        return f"KernelXRay({'; '.join(parts)})"


def _xrays(launch: Any, args: tuple[Any, ...], options: dict[str, Any]) -> dict[str, XRay]:
    if isinstance(launch, Function):
        from tinyvllm_lab.kernels.inspection import xray

        return {launch.name: xray(launch, *args, **options)}
    if args or options:
        unused = ", ".join([*map(repr, args), *options])
        raise ConfigError(f"KernelXRay: {unused} would be for a kernel.", "an x-ray alone")
    if isinstance(launch, Mapping) and launch:
        return {str(label): _xray(one) for label, one in launch.items()}
    found = _xray(launch)
    return {found.kernel: found}


def _xray(source: Any) -> XRay:
    if isinstance(source, XRay):
        return source
    if isinstance(source, str | Path):
        from tinyvllm_lab.kernels.recorded import read_xray

        return read_xray(Path(source))
    raise ConfigError(
        f"KernelXRay cannot show {type(source).__name__}.",
        "an x-ray, the path of a recorded one, a mapping from labels to them, or a kernel",
    )
