"""`show`: several panels side by side, with one bar of controls for each run."""

from __future__ import annotations

from typing import Any

import ipywidgets
from PIL import Image

from tinyvllm_lab.errors import ConfigError
from tinyvllm_lab.widgets.display import Displayed
from tinyvllm_lab.widgets.feed import RunFeed
from tinyvllm_lab.widgets.panel import Panel
from tinyvllm_lab.widgets.still import to_png

_GAP = 16  # pixels between two stills
_LEAST = 360  # px of a panel that stands beside another


class PanelPage(Displayed, ipywidgets.GridBox):
    """Panels in a grid; made by `show`."""

    def __init__(self, panels: tuple[Panel, ...], columns: int) -> None:
        self.panels = panels
        self.columns = columns
        # Fewer in a row where the page is narrow.
        share = f"max({_LEAST}px, (100% - {(columns - 1) * 8}px) / {columns})"
        fitting = f"repeat(auto-fit, minmax(min(100%, {share}), 1fr))"
        layout = ipywidgets.Layout(grid_template_columns=fitting, grid_gap="8px", width="100%")
        super().__init__(children=panels, layout=layout)

    def still(self) -> bytes:
        """All panels in one picture, as PNG."""
        images = [panel.still_image() for panel in self.panels]
        rows = [images[i : i + self.columns] for i in range(0, len(images), self.columns)]
        width = max(sum(i.width for i in row) + _GAP * (len(row) - 1) for row in rows)
        height = sum(max(i.height for i in row) for row in rows) + _GAP * (len(rows) - 1)
        sheet = Image.new("RGB", (width, height), "#ffffff")
        top = 0
        for row in rows:
            left = 0
            for image in row:
                sheet.paste(image, (left, top))
                left += image.width + _GAP
            top += max(image.height for image in row) + _GAP
        return to_png(sheet)

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        return self._bundle(ipywidgets.GridBox._repr_mimebundle_(self, **kwargs))

    def shown_feeds(self) -> list[RunFeed]:
        """The feeds of the runs on the page."""
        return list({panel.feed_id: panel.feed for panel in self.panels}.values())

    def __repr__(self) -> str:
        return ", ".join(repr(panel) for panel in self.panels)


def show(*panels: Panel, columns: int = 1) -> PanelPage:
    """Put panels on one page. The last panel of each run keeps the controls for all of them.

    Args:
        panels: as they follow each other, row by row.
        columns: panels in a row.

    Raises:
        ConfigError: there is no panel, or no column.
    """
    if not panels or columns < 1:
        raise ConfigError("There is nothing to show.", "at least one panel, and one column")
    last = {panel.feed_id: panel for panel in panels}
    for panel in panels:
        panel.controls = panel.controls and last[panel.feed_id] is panel
    return PanelPage(panels, columns)
