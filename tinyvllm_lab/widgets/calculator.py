"""`Calculator`: what widgets without a run have in common: sliders, tables, and a still."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import anywidget
import traitlets

from tinyvllm_lab.errors import ConfigError
from tinyvllm_lab.widgets.display import Displayed
from tinyvllm_lab.widgets.esm import STATIC
from tinyvllm_lab.widgets.feed import RunFeed
from tinyvllm_lab.widgets.panel import SIZES


class Calculator(Displayed, anywidget.AnyWidget):
    """A picture that follows its sliders in the browser alone, from tables that Python gave it.

    Args:
        tables: `models` and `gpus` (lists of rows with a `name`) and `dtypes`, and what else the
            browser needs.
        choice: what the sliders say first: `model`, `gpu`, `dtype`, and whole numbers.
        size: "normal", or "presenter" for a projector.

    Raises:
        ConfigError: a name is in none of the tables, or a number is not positive.
    """

    _css = (STATIC / "panel.css").read_text() + (STATIC / "calculator.css").read_text()
    default_caption: ClassVar[str] = ""

    choice = traitlets.Dict().tag(sync=True)
    tables = traitlets.Dict().tag(sync=True)
    caption = traitlets.Unicode().tag(sync=True)
    size = traitlets.Unicode("normal").tag(sync=True)

    def __init__(self, tables: dict[str, Any], choice: dict[str, Any], size: str) -> None:
        self._check(choice, tables)
        if size not in SIZES:
            raise ConfigError(f"{self._name}: the size is {size!r}.", "one of " + ", ".join(SIZES))
        super().__init__(choice=choice, tables=tables, size=size, caption=self.default_caption)

    @property
    def _name(self) -> str:
        return type(self).__name__

    def _check(self, choice: Mapping[str, Any], tables: Mapping[str, Any]) -> None:
        known = {
            "model": [row["name"] for row in tables["models"]],
            "gpu": [row["name"] for row in tables["gpus"]],
            "dtype": list(tables["dtypes"]),
        }
        for name, value in choice.items():
            if name in known and value not in known[name]:
                expected = "one of " + ", ".join(known[name])
                raise ConfigError(f"{self._name}: the {name} is {value!r}.", expected)
            if name not in known and value < 1:
                raise ConfigError(f"{self._name}: {name} is {value!r}.", "1 or more")

    def shown_feeds(self) -> list[RunFeed]:
        """None: a calculator shows no run."""
        return []

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        """The widget, and its picture for those who cannot show a widget."""
        return self._bundle(anywidget.AnyWidget._repr_mimebundle_(self, **kwargs))
