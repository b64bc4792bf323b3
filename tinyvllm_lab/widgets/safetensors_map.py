"""`SafetensorsMap`: what lies where in a Safetensors file, from its header alone (chapter 02)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import anywidget
import traitlets

from tinyvllm_lab.errors import ConfigError
from tinyvllm_lab.model.safetensors import SINGLE_FILE, SafetensorsFile
from tinyvllm_lab.widgets.display import Displayed
from tinyvllm_lab.widgets.esm import STATIC, bundle
from tinyvllm_lab.widgets.feed import RunFeed
from tinyvllm_lab.widgets.palette import PAGE, ink_on
from tinyvllm_lab.widgets.panel import SIZES
from tinyvllm_lab.widgets.still import INNER_WIDTH, LegendItem, StillCanvas, frame_still, to_png

KINDS = {
    "header": ("#8a919c", "header"),
    "embedding": ("#56B4E9", "embedding and output head"),
    "attention": ("#E69F00", "attention"),
    "mlp": ("#009E73", "MLP"),
    "norm": ("#D55E00", "norm"),
    "other": ("#CC79A7", "other"),
}
"""Colour and words of each kind of part."""
CAPTION = (
    "All bytes of the file in their order, wrapped over lines; a part too small to see is drawn a "
    "little wider. Nothing but the header was read."
)
_ENTRIES_A_LINE, _MOST_LINES = 12, 12
_ROW, _BAR, _GAP, _SEEN = 30.0, 26.0, 0.7, 1.6  # px


class Piece(NamedTuple):
    """A part of the file on one line, in px of a picture `INNER_WIDTH` px wide."""

    part: int
    line: int
    x: float
    width: float


class SafetensorsMap(Displayed, anywidget.AnyWidget):
    """The tensors of a file over its bytes: name, dtype, shape and offsets of each.

    Args:
        path: a Safetensors file, or a folder with a `model.safetensors`.
        size: "normal", or "presenter" for a projector.

    Attributes:
        parts: the header and the tensors, in the order of the file: name, kind, dtype, shape,
            and the bytes of the file that it takes, `begin` to `end - 1`.

    Raises:
        SafetensorsError: the file cannot be opened, or is damaged.
        ConfigError: the size is unknown.
    """

    _esm = bundle("safetensors_map")
    _css = (STATIC / "panel.css").read_text() + (STATIC / "calculator.css").read_text()
    title = traitlets.Unicode().tag(sync=True)
    caption = traitlets.Unicode(CAPTION).tag(sync=True)
    size = traitlets.Unicode("normal").tag(sync=True)
    parts = traitlets.List(traitlets.Dict()).tag(sync=True)
    pieces = traitlets.List(traitlets.List()).tag(sync=True)
    kinds = traitlets.Dict().tag(sync=True)
    geometry = traitlets.Dict().tag(sync=True)
    legend_items = traitlets.List(traitlets.List()).tag(sync=True)

    def __init__(self, path: str | Path, *, size: str = "normal") -> None:
        if size not in SIZES:
            raise ConfigError(
                f"SafetensorsMap: the size is {size!r}.", "one of " + ", ".join(SIZES)
            )
        path = Path(path)
        is_folder = path.is_dir()
        file = path / SINGLE_FILE if is_folder else path
        shown = f"{path.name}/{file.name}".lstrip("/") if is_folder else file.name
        parts = _parts(file)
        super().__init__(
            title=f"Safetensors map: {shown}",
            size=size,
            parts=parts,
            pieces=[list(piece) for piece in _pieces(parts)],
            kinds={kind: {"fill": fill, "ink": ink_on(fill)} for kind, (fill, _) in KINDS.items()},
            geometry={"width": INNER_WIDTH, "row": _ROW, "bar": _BAR},
            legend_items=[list(item) for item in _legend(parts)],
        )

    def still(self) -> bytes:
        """The picture, as PNG."""
        legend = [LegendItem((fill,), words) for fill, words in self.legend_items]
        now = f"{len(self.parts) - 1:,} tensors, {bytes_text(self.parts[-1]['end'])}"
        height = (max(piece[1] for piece in self.pieces) + 1) * _ROW
        return to_png(frame_still(self.title, "read", now, legend, CAPTION, height, self._draw))

    def shown_feeds(self) -> list[RunFeed]:
        """None: it shows no run."""
        return []

    def _draw(self, canvas: StillCanvas) -> None:
        for number, line, x, width in self.pieces:
            part = self.parts[number]
            fill = KINDS[part["kind"]][0]
            canvas.rect(x, line * _ROW, width, _BAR, fill)
            if width > 2 * _SEEN:
                canvas.rect(x + width - _GAP, line * _ROW, _GAP, _BAR, PAGE)
            for label in part["labels"]:
                if canvas.text_width(label, 10) + 8 < width:
                    middle = line * _ROW + _BAR / 2
                    canvas.text(label, x + 4, middle, size=10, colour=ink_on(fill))
                    break

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        """The widget, and its picture for those who cannot show a widget."""
        return self._bundle(anywidget.AnyWidget._repr_mimebundle_(self, **kwargs))

    def __repr__(self) -> str:
        return f"SafetensorsMap({len(self.parts) - 1:,} tensors)"


def _legend(parts: list[dict[str, Any]]) -> Iterator[tuple[str, str]]:
    """Colour, and what has it: the kind, how many, and their bytes."""
    for kind, (fill, words) in KINDS.items():
        sizes = [part["end"] - part["begin"] for part in parts if part["kind"] == kind]
        number = f"{len(sizes)} tensors, " if len(sizes) > 1 else ""
        if sizes:
            yield fill, f"{words}: {number}{bytes_text(sum(sizes))}"


def kind_of(name: str) -> str:
    """The kind of a tensor, by the names that Llama checkpoints use."""
    parts = name.lower()
    if "norm" in parts:
        return "norm"
    if "embed" in parts or "lm_head" in parts:
        return "embedding"
    if "attn" in parts or "attention" in parts:
        return "attention"
    return "mlp" if "mlp" in parts else "other"


def bytes_text(count: int) -> str:
    """Bytes in binary units, as in `static/calculator.js`."""
    power = min((max(count, 1).bit_length() - 1) // 10, 4)
    value = count / 1024**power
    unit = ["B", "KiB", "MiB", "GiB", "TiB"][power]
    return f"{value:.0f} {unit}" if value >= 100 or power == 0 else f"{value:.1f} {unit}"


def _parts(path: Path) -> list[dict[str, Any]]:
    with SafetensorsFile(path) as file:
        start = file.data_start
        found = [_part("header", "header", "JSON", [], 0, start)]
        for name in file:
            info = file.info(name)
            begin, end = (start + offset for offset in info.data_offsets)
            found.append(_part(name, kind_of(name), info.dtype, list(info.shape), begin, end))
    return found


def _part(
    name: str, kind: str, dtype: str, shape: list[int], begin: int, end: int
) -> dict[str, Any]:
    label = name.removeprefix("model.").removesuffix(".weight")
    labels = [label, label.rpartition(".")[2]]  # the first one that has room is shown
    return {
        "name": name, "labels": labels, "kind": kind, "dtype": dtype, "shape": shape,
        "begin": begin, "end": end,
    }  # fmt: skip


def _pieces(parts: list[dict[str, Any]]) -> Iterator[Piece]:
    """All parts, line by line; the small ones last, so that they lie on top."""
    total = max(parts[-1]["end"], 1)
    lines = max(1, min(_MOST_LINES, math.ceil(len(parts) / _ENTRIES_A_LINE)))
    a_line = math.ceil(total / lines)
    pieces = []
    for number, part in enumerate(parts):
        at = part["begin"]
        while at < part["end"]:
            line, place = divmod(at, a_line)
            count = min(part["end"] - at, a_line - place)
            width = max(count / a_line * INNER_WIDTH, _SEEN)
            x = min(place / a_line * INNER_WIDTH, INNER_WIDTH - width)
            pieces.append(Piece(number, line, x, width))
            at += count
    return iter(sorted(pieces, key=lambda piece: -piece.width))
