"""`Panel`: what all panels of a run have in common, and how to add one.

A panel is a view: the events are in the page's `RunFeed`, the shown step and the request under the
pointer are shared by all panels of that run. To add a panel `name`:

1. `static/name.js`: a class with `height`, `draw`, `hit` and `legend` (the typedef `View` in
   `static/panel.js`), and `export default definePanel(() => new Name());`. It draws
   `scene.state` (the engine after `scene.step`) and `scene.run.series` (everything over time), and
   keeps nothing but positions of things that move. Import helpers by name from the other modules,
   one statement each on lines of its own: `esm` puts the modules together.
2. `name.py`: a subclass of `Panel` with `_esm = bundle("name")`, its texts, and the same picture
   for readers without a browser: `still_height`, `draw_still` and `still_legend`.
3. A line in `__init__.py`, and the name in the lists of `tests/widgets/test_panels.py`,
   `test_static.py` and `tests/browser/test_saved_page.py`. `npx tsc -p tests/widgets` checks types.

A panel that shows no run (a calculator) derives from `anywidget.AnyWidget` itself and takes what it
needs of `still`, `palette` and `static/draw.js`. The chapters' browser tests drive every panel of a
run by themselves; another kind of widget gets a function in `tests/browser/widget_drivers.py`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import anywidget
import traitlets
from PIL import Image

from tinyvllm_lab.errors import ConfigError
from tinyvllm_lab.widgets import cells
from tinyvllm_lab.widgets.display import Displayed
from tinyvllm_lab.widgets.esm import STATIC
from tinyvllm_lab.widgets.feed import RunFeed
from tinyvllm_lab.widgets.moment import Moment, busiest_step, duration
from tinyvllm_lab.widgets.still import LegendItem, StillCanvas, frame_still, to_png

SIZES = ("normal", "presenter")


class Panel(Displayed, anywidget.AnyWidget):
    """One picture of a run: live, in replay, and as a still.

    Args:
        run: an `EventLog`, the path of a stored one, an `EngineRunner`, an `LLM`, a simulation's
            `Run`, or a `RunFeed`.
        title: above the picture; None: the panel's name.
        caption: below it; None: what the panel shows.
        size: "normal", or "presenter" for a projector.
        controls: show play, step, scrub, speed and jump.
        name: of the page's debug hook `window.__tinyvllm[name]`; None: the panel's name.
        still_step: the step that the still shows, and the page at first; None: the busiest one.
        options: for the panel, by name.

    Attributes:
        feed: carries the run to the browser.

    Raises:
        LogError: `run` is none of them.
        ConfigError: the size or an option is unknown.
    """

    _css = (STATIC / "panel.css").read_text(encoding="utf-8")
    module: ClassVar[str] = ""
    default_title: ClassVar[str] = ""
    default_caption: ClassVar[str] = ""
    default_options: ClassVar[dict[str, Any]] = {}

    feed_id = traitlets.Unicode().tag(sync=True)
    name = traitlets.Unicode().tag(sync=True)
    title = traitlets.Unicode().tag(sync=True)
    caption = traitlets.Unicode().tag(sync=True)
    size = traitlets.Unicode("normal").tag(sync=True)
    controls = traitlets.Bool(True).tag(sync=True)
    options = traitlets.Dict().tag(sync=True)
    linked_feed = traitlets.Unicode().tag(sync=True)  # a run that moves with this one: `compare`

    def __init__(
        self,
        run: Any,
        *,
        title: str | None = None,
        caption: str | None = None,
        size: str = "normal",
        controls: bool = True,
        name: str | None = None,
        still_step: int | None = None,
        **options: Any,
    ) -> None:
        _check(type(self).__name__, size, options, self.default_options)
        self.feed = RunFeed.of(run)
        self.still_step = still_step
        if still_step is not None:
            self.feed.open_at(still_step)
        super().__init__(
            feed_id=self.feed.feed_id,
            name=name or self.module,
            title=self.default_title if title is None else title,
            caption=self.default_caption if caption is None else caption,
            size=size,
            controls=controls,
            options={**self.default_options, **options},
        )
        cells.register(self, self.feed)

    def save_html(self, path: str | Path) -> Path:
        """Write one file that shows the panel, animated, in any browser, with no network.

        Raises:
            OSError: the file cannot be written.
        """
        from tinyvllm_lab.widgets.export import save_html

        return save_html(path, self)

    # ------------------------------------------------------------------- still

    def still(self) -> bytes:
        """The panel's picture, as PNG."""
        return to_png(self.still_image())

    def still_image(self) -> Image.Image:
        """The same as an image of Pillow."""
        moment = self._moment()
        word, sentence = moment.source_words
        last = max(self.feed.event_log.num_steps - 1, 0)
        clock = duration(moment.clock_us)
        now = f"step {moment.step:,} of {last:,} · {clock}" if moment.events else "no step yet"
        return frame_still(
            self.title, word, now, self.still_legend(moment), f"{self.caption} {sentence}".strip(),
            self.still_height(moment), lambda canvas: self.draw_still(canvas, moment),
        )  # fmt: skip

    def _moment(self) -> Moment:
        log = self.feed.event_log
        return self.feed.moment(busiest_step(log) if self.still_step is None else self.still_step)

    def still_height(self, moment: Moment) -> float:
        """Height of the picture in px, without title, legend and caption."""
        raise NotImplementedError

    def draw_still(self, canvas: StillCanvas, moment: Moment) -> None:
        """Draw the picture on a canvas of that height."""
        raise NotImplementedError

    def still_legend(self, moment: Moment) -> list[LegendItem]:
        """What colours and marks mean."""
        raise NotImplementedError

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        """The widget, and its picture for those who cannot show a widget."""
        return self._bundle(anywidget.AnyWidget._repr_mimebundle_(self, **kwargs))

    def shown_feeds(self) -> list[RunFeed]:
        """The feed of the run."""
        return [self.feed]

    def __repr__(self) -> str:
        log = self.feed.event_log
        return f"{type(self).__name__}({log.num_steps:,} steps, {len(log.requests):,} requests)"


def _check(panel: str, size: str, options: dict[str, Any], known: dict[str, Any]) -> None:
    if size not in SIZES:
        raise ConfigError(f"{panel}: the size is {size!r}.", "one of " + ", ".join(SIZES))
    for option in options:
        if option not in known:
            expected = "one of " + ", ".join(known) if known else "no options"
            raise ConfigError(f"{panel} has no option {option!r}.", expected)
