"""How a panel gets into a notebook: as a widget, with a picture for readers who cannot show one.

The picture is made when the cell shows the panel, which for a live run is at its start. Where no
browser listens (a notebook that is executed by a program, as the shipped ones are), the picture
follows: when the engine is at rest after a later cell, the stored output gets the new one.
"""

from __future__ import annotations

import base64
import uuid
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tinyvllm_lab.widgets.feed import RunFeed


class Displayed:
    """Gives a widget its picture. The widget has `still()` and `shown_feeds()`."""

    _display_id = ""

    def still(self) -> bytes:
        """The picture, as PNG."""
        raise NotImplementedError

    def shown_feeds(self) -> list[RunFeed]:
        """The feeds of the runs that are shown."""
        raise NotImplementedError

    def _bundle(self, widget_bundle: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """A widget's bundle with picture and text."""
        data, metadata = widget_bundle if isinstance(widget_bundle, tuple) else (widget_bundle, {})
        picture = base64.b64encode(self.still()).decode()
        return {**data, "image/png": picture, "text/plain": repr(self)}, metadata

    def _repr_mimebundle_(self, **_: Any) -> Any:
        raise NotImplementedError

    def _ipython_display_(self) -> None:
        from IPython.display import display

        if self._repr_mimebundle_ is None:  # a closed widget
            display({"text/plain": repr(self)}, raw=True)
            return
        self._display_id = self._display_id or uuid.uuid4().hex
        data, metadata = self._repr_mimebundle_()
        display(data, metadata=metadata, raw=True, display_id=self._display_id)
        for feed in self.shown_feeds():
            feed.displays.add(self)

    def refresh_still(self) -> None:
        """Replace the picture in the stored output."""
        from IPython.display import update_display

        if self._display_id and self._repr_mimebundle_ is not None:
            data, metadata = self._repr_mimebundle_()
            update_display(data, metadata=metadata, raw=True, display_id=self._display_id)
