"""Pictures of panels, drawn in Python: for GitHub, print, and notebooks that are not trusted.

`StillCanvas` has the shapes of `static/draw.js`; `frame_still` puts title, legend and caption
around what a panel draws. Everything is in px of the screen; the picture has twice as many.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from typing import Literal, NamedTuple

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from tinyvllm_lab.widgets.palette import CARD, LINE, PAGE, SOFT, TEXT, look_of, mix

WIDTH = 760
"""Width of a still in px; the widget is as wide as its cell."""

INNER_WIDTH = WIDTH - 28
"""What a panel has of it, between the margins."""

SCALE = 2
_TILE = 8  # px, side of a pattern's tile
_SIZE = 12
_PAD = 14

# Pillow's own font lacks these.
_REPLACED = str.maketrans({"→": "->", "↵": "\\n", "−": "-", "–": "-", "×": "x", "µ": "u"})

Mark = Literal["", "dashed", "outline", "dot", "line"]


class LegendItem(NamedTuple):
    """A swatch and what it means; several colours stand side by side."""

    fills: tuple[str, ...]
    label: str
    mark: Mark = ""


@cache
def _font(size: float) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    # Pillow's own font: the picture is the same on every machine.
    return ImageFont.load_default(size * SCALE)


class StillCanvas:
    """A picture to draw on.

    Args:
        width, height: in px.
    """

    def __init__(self, width: float, height: float) -> None:
        self.width, self.height = width, height
        self.image = Image.new("RGB", (round(width * SCALE), round(height * SCALE)), PAGE)
        self._draw = ImageDraw.Draw(self.image)

    def rect(self, x: float, y: float, w: float, h: float, fill: str) -> None:
        """A rectangle; nothing if it is less than half a px wide or high."""
        if w >= 0.5 and h >= 0.5:
            self._draw.rectangle(_corners(x, y, w, h), fill=fill)

    def card(
        self,
        x: float,
        y: float,
        w: float,
        h: float,
        radius: float = 5,
        fill: str | None = None,
        outline: str | None = None,
        line_width: float = 1,
    ) -> None:
        """A rectangle with round corners."""
        if w < 1 or h < 1:
            return
        radius = min(radius, w / 2, h / 2)
        self._draw.rounded_rectangle(
            _corners(x, y, w, h), radius * SCALE, fill, outline, round(line_width * SCALE)
        )

    def line(
        self, x1: float, y1: float, x2: float, y2: float, colour: str, width: float = 1
    ) -> None:
        """A straight line."""
        points = [v * SCALE for v in (x1, y1, x2, y2)]
        self._draw.line(points, fill=colour, width=max(1, round(width * SCALE)))

    def path(self, points: Sequence[tuple[float, float]], colour: str, width: float = 1.5) -> None:
        """A line through points."""
        if len(points) > 1:
            scaled = [(x * SCALE, y * SCALE) for x, y in points]
            self._draw.line(scaled, fill=colour, width=round(width * SCALE), joint="curve")

    def text(
        self,
        text: str,
        x: float,
        y: float,
        *,
        size: float = _SIZE,
        colour: str = TEXT,
        align: Literal["left", "center", "right"] = "left",
        bold: bool = False,
        most: float | None = None,
    ) -> float:
        """One line of text, `y` its middle; cut if it is wider than `most`. Returns its width."""
        font = _font(size)
        text = text.translate(_REPLACED)
        if most is not None:
            text = _fitted(text, size, most * SCALE)
        anchor = {"left": "lm", "center": "mm", "right": "rm"}[align]
        stroke = 0.35 * SCALE if bold else 0
        self._draw.text(
            (x * SCALE, y * SCALE), text, colour, font, anchor, stroke_width=stroke,
            stroke_fill=colour if bold else None,
        )  # fmt: skip
        return _length(text, size) / SCALE

    def request(
        self, request: int, x: float, y: float, w: float, h: float, radius: float = 5
    ) -> None:
        """A rectangle with the colour and the pattern of a request."""
        if w < 1 or h < 1:
            return
        left, top, right, bottom = (round(v) for v in _corners(x, y, w, h))
        size = (max(1, right - left + 1), max(1, bottom - top + 1))
        mask = Image.new("L", size, 0)
        corner = min(radius, w / 2, h / 2) * SCALE
        ImageDraw.Draw(mask).rounded_rectangle((0, 0, size[0] - 1, size[1] - 1), corner, 255)
        self.image.paste(_patterned(request, size), (left, top), mask)

    def dashed(self, x: float, y: float, w: float, h: float, colour: str) -> None:
        """A dashed outline."""
        dash = 3.0
        for at in np.arange(0.0, w, 2 * dash):
            part = min(dash, w - at)
            self.rect(x + at, y, part, 1.5, colour)
            self.rect(x + at, y + h - 1.5, part, 1.5, colour)
        for at in np.arange(0.0, h, 2 * dash):
            part = min(dash, h - at)
            self.rect(x, y + at, 1.5, part, colour)
            self.rect(x + w - 1.5, y + at, 1.5, part, colour)

    def picture(self, image: Image.Image, x: float, y: float, w: float, h: float) -> None:
        """Another picture, scaled without smoothing."""
        size = (round(w * SCALE), round(h * SCALE))
        self.image.paste(
            image.resize(size, Image.Resampling.NEAREST), (round(x * SCALE), round(y * SCALE))
        )

    def text_width(self, text: str, size: float = _SIZE) -> float:
        """Width of a line of text, in px."""
        return _length(text.translate(_REPLACED), size) / SCALE


@lru_cache(maxsize=2048)
def _length(text: str, size: float) -> float:
    """Width of a line of text in the picture's pixels."""
    return _font(size).getlength(text)


def to_png(image: Image.Image) -> bytes:
    """A picture as PNG. 128 colours are plenty, and more than halve it."""
    out = io.BytesIO()
    _with_few_colours(image).save(out, "png", compress_level=6)
    return out.getvalue()


def _with_few_colours(image: Image.Image, most: int = 128) -> Image.Image:
    """The most frequent colours as they are, the others (edges of letters) as the nearest of them.

    The image is RGB. Pillow's own `quantize` takes five times as long: a first picture waits.
    """
    pixels = np.frombuffer(image.tobytes("raw", "RGBX"), "<u4") & 0xFFFFFF  # [h * w]
    palette = _frequent_colours(image, most)  # [most, rgb]
    place_of = np.zeros(1 << 24, np.uint8)  # colour -> 1 + its place in the palette; 0: not yet
    place_of[palette @ (1, 1 << 8, 1 << 16)] = np.arange(1, len(palette) + 1)
    places = place_of[pixels]
    rare = np.flatnonzero(places == 0)
    codes = np.unique(pixels[rare])
    colours = np.stack([codes & 255, codes >> 8 & 255, codes >> 16], axis=1).astype(np.int64)
    distances = ((colours[:, None] - palette[None]) ** 2).sum(axis=2)  # [rare colours, most]
    place_of[codes] = distances.argmin(axis=1) + 1
    places[rare] = place_of[pixels[rare]]
    made = Image.fromarray(places.reshape(image.height, image.width) - 1)
    made.putpalette(palette.astype(np.uint8).tobytes())
    return made


def _frequent_colours(image: Image.Image, most: int) -> np.ndarray:
    """The most frequent colours of every fourth pixel of every fourth row, int64 `[n, rgb]`."""
    size = (max(1, image.width // 4), max(1, image.height // 4))
    sample = image.resize(size, Image.Resampling.NEAREST)
    counted = sample.getcolors(size[0] * size[1]) or []
    return np.array([colour for _, colour in sorted(counted, reverse=True)[:most]])


def _corners(x: float, y: float, w: float, h: float) -> tuple[float, float, float, float]:
    return x * SCALE, y * SCALE, (x + w) * SCALE - 1, (y + h) * SCALE - 1


def _fitted(text: str, size: float, most: float) -> str:
    if _length(text, size) <= most:
        return text
    while text and _length(text + "…", size) > most:
        text = text[:-1]
    return text + "…" if text else ""


@lru_cache(maxsize=256)  # the blocks of a request look alike
def _patterned(request: int, size: tuple[int, int]) -> Image.Image:
    """A filled rectangle; patterns start at its corner."""
    look = look_of(request)
    image = Image.new("RGB", size, look.fill)
    if look.pattern == "plain":
        return image
    tile = _tile(look.fill, look.pattern, look.ink)
    for left in range(0, size[0], tile.width):
        for top in range(0, size[1], tile.height):
            image.paste(tile, (left, top))
    return image


@cache
def _tile(fill: str, pattern: str, ink: str) -> Image.Image:
    side = _TILE * SCALE
    tile = Image.new("RGB", (side, side), fill)
    draw = ImageDraw.Draw(tile)
    colour = mix(fill, ink, 0.4 if ink == "#ffffff" else 0.28)
    if pattern == "diagonal":
        for shift in (-side, 0, side):
            draw.line((shift - 2, side + 2, shift + side + 2, -2), colour, 3)
    elif pattern == "dots":
        for x, y in ((2, 2), (6, 6)):
            box = [(v + d) * SCALE for d in (-1.2, 1.2) for v in (x, y)]
            draw.ellipse(box, colour)
    else:
        draw.rectangle((3 * SCALE, 0, round(4.6 * SCALE), side), colour)
    return tile


def frame_still(
    title: str,
    source: str,
    now: str,
    legend: Sequence[LegendItem],
    caption: str,
    height: float,
    draw: Callable[[StillCanvas], None],
) -> Image.Image:
    """A panel's picture with everything around it.

    Args:
        title, source, now: the line above: name, measured or simulated or drawn, step and time.
        legend: the line below.
        caption: the text below that.
        height: of the panel itself, in px.
        draw: draws it on a canvas `INNER_WIDTH` px wide.
    """
    inner = INNER_WIDTH
    entries = _legend_places(legend, inner)
    legend_height = (entries[-1][1] + 18) if entries else 0
    lines = _wrapped(caption, inner)
    total = 34 + height + 10 + legend_height + 4 + 15 * len(lines) + 10
    canvas = StillCanvas(WIDTH, total)
    canvas.card(0.5, 0.5, WIDTH - 1, total - 1, 8, PAGE, LINE)
    _draw_head(canvas, title, source, now)
    body = StillCanvas(inner, height)
    draw(body)
    canvas.image.paste(body.image, (_PAD * SCALE, 34 * SCALE))
    top = 34 + height + 16
    for (x, y), item in zip(entries, legend, strict=True):
        _draw_legend_item(canvas, item, _PAD + x, top + y)
    for number, line in enumerate(lines):
        y = top + legend_height + 4 + 15 * number
        canvas.text(line, _PAD, y, size=11.5, colour=SOFT)
    return canvas.image


def _draw_head(canvas: StillCanvas, title: str, source: str, now: str) -> None:
    x = _PAD + canvas.text(title, _PAD, 18, size=14.5, bold=True) + 10
    width = _length(source, 10.5) / SCALE
    canvas.card(x, 10, width + 14, 16, 8, CARD)
    canvas.text(source, x + 7, 18, size=10.5, colour=SOFT)
    canvas.text(now, WIDTH - _PAD, 18, colour=SOFT, align="right")


def _legend_places(legend: Sequence[LegendItem], width: float) -> list[tuple[float, float]]:
    places = []
    x, y = 0.0, 0.0
    for item in legend:
        needs = 22 + _length(item.label, 11.5) / SCALE
        if x and x + needs > width:
            x, y = 0.0, y + 18
        places.append((x, y))
        x += needs + 14
    return places


def _draw_legend_item(canvas: StillCanvas, item: LegendItem, x: float, y: float) -> None:
    w = 16
    if item.mark == "dashed":
        canvas.dashed(x, y - 5, w, 11, item.fills[0])
    elif item.mark == "outline":
        canvas.card(x, y - 5, w, 11, 2, None, item.fills[0], 1.5)
    elif item.mark == "line":
        canvas.rect(x, y - 1, w, 3, item.fills[0])
    elif item.mark == "dot":
        canvas.card(x + 3, y - 5, 10, 10, 5, item.fills[0])
    else:
        part = w / len(item.fills)
        for number, fill in enumerate(item.fills):
            canvas.rect(x + number * part, y - 5, part, 11, fill)
    canvas.text(item.label, x + 21, y, size=11.5, colour=SOFT)


def _wrapped(text: str, width: float) -> list[str]:
    lines: list[str] = []
    used = 0.0
    for word in text.split():
        needs = _length(f" {word}", 11.5)
        if lines and used + needs <= width * SCALE:
            lines[-1] += f" {word}"
            used += needs
        else:
            lines.append(word)
            used = _length(word, 11.5)
    return lines
