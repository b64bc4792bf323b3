"""Colours and how a request looks, for the stills; `static/theme.js` has the same numbers.

Okabe and Ito's palette without black and yellow: six colours that colour-blind people tell apart,
and four patterns, so that 24 requests differ. A label says which one it is.
"""

from __future__ import annotations

from typing import NamedTuple

COLOURS = ("#E69F00", "#56B4E9", "#009E73", "#CC79A7", "#0072B2", "#D55E00")
PATTERNS = ("plain", "diagonal", "dots", "bars")
PHASE_COLOURS = ("#0072B2", "#E69F00", "#D55E00")
"""Prefill, decode, recompute, where no request's colour is shown."""

PAGE, CARD, EMPTY, LINE = "#ffffff", "#f5f6f8", "#e6e8ec", "#c3c8d0"
TEXT, SOFT, WARN = "#1d2127", "#5a626e", "#b3261e"

_DARK_BELOW = 0.19


class Look(NamedTuple):
    """How a request looks: colour, pattern, and the colour of text on it."""

    fill: str
    pattern: str
    ink: str


def look_of(request: int) -> Look:
    """The look of a request, by its running number."""
    fill = COLOURS[request % len(COLOURS)]
    pattern = PATTERNS[request // len(COLOURS) % len(PATTERNS)]
    return Look(fill, pattern, ink_on(fill))


def rgb(colour: str) -> tuple[int, int, int]:
    """Red, green and blue of `#rrggbb`, 0 to 255."""
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)


def luminance(colour: str) -> float:
    """Relative luminance, 0 to 1 (WCAG 2)."""
    parts = [v / 255 for v in rgb(colour)]
    r, g, b = (v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in parts)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


def ink_on(colour: str) -> str:
    """Black or white, whichever reads better on a colour."""
    return "#111111" if luminance(colour) > _DARK_BELOW else "#ffffff"


def mix(colour: str, other: str, share: float) -> str:
    """A colour with a share of another one."""
    parts = (round(a + (b - a) * share) for a, b in zip(rgb(colour), rgb(other), strict=True))
    return "#" + "".join(f"{v:02x}" for v in parts)
