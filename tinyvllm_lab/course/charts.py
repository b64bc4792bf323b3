"""One look for every chart of the chapters: plotly figures that read well on light and dark pages.

    fig = chart("Weights by part", "measured: the shipped file", y="bytes")
    fig.add_bar(x=names, y=sizes)
    fig

The page shows through a chart, and its grey text stands out from black and from white alike: plotly
does not follow JupyterLab's theme. Colours are Okabe and Ito's, which people with colour-blindness
can tell apart. The second line of a title says where the numbers come from.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import plotly.graph_objects as go
import plotly.io as pio

from tinyvllm_lab.errors import ConfigError

BLUE, ORANGE, GREEN = "#0072B2", "#E69F00", "#009E73"
VERMILLION, PURPLE, SKY = "#D55E00", "#CC79A7", "#56B4E9"
OKABE_ITO = (BLUE, ORANGE, GREEN, VERMILLION, PURPLE, SKY)
"""Colours in the order in which series take them (Okabe, Ito 2008); no black, no yellow."""

GREY, GRID = "#7f7f7f", "rgba(127, 127, 127, 0.25)"
HEAT = ((0.0, "rgba(213, 94, 0, 0.04)"), (1.0, VERMILLION))
"""Colour scale of heatmaps: it fades into the page, so that much stands out from light and dark."""

KINDS = ("measured", "simulated", "drawn")
WIDTH, HEIGHT = 700, 320  # px

_AXIS = {"gridcolor": GRID, "linecolor": GREY, "zeroline": False}
_AXIS |= {"ticks": "outside", "ticklen": 4, "title": {"font": {"size": 13}}}
_TEMPLATE = go.layout.Template(
    layout={
        "paper_bgcolor": "rgba(0, 0, 0, 0)",
        "plot_bgcolor": "rgba(0, 0, 0, 0)",
        "colorway": OKABE_ITO,
        "font": {"color": GREY, "size": 13},
        "xaxis": {**_AXIS, "automargin": True},
        "yaxis": {**_AXIS, "automargin": True},
        "margin": {"l": 60, "r": 20, "t": 64, "b": 52},
        "title": {"x": 0.0, "xref": "container", "xanchor": "left", "pad": {"l": 8}},
        "legend": {"orientation": "h", "yanchor": "bottom", "y": 1.0, "xanchor": "right", "x": 1.0},
        "bargap": 0.25,
    }
)

# Plotly's own choice in JupyterLab adds 5 MB of script to the notebook, for older front ends.
if "plotly_mimetype" in pio.renderers.default:
    pio.renderers.default = "plotly_mimetype"


def chart(
    title: str, source: str, *, x: str = "", y: str = "", width: int = WIDTH, height: int = HEIGHT
) -> go.Figure:
    """An empty figure in the course's look.

    Args:
        title: what it shows.
        source: where the numbers come from, shown below the title: "measured", "simulated" or
            "drawn", and after a colon more about it, as in "drawn: from the formula".
        x, y: titles of the axes, with units.
        width, height: of the figure, in px.

    Raises:
        ConfigError: `source` says none of the three.
    """
    if source.split(":")[0] not in KINDS:
        raise ConfigError(f"The source of a chart is {source!r}.", "one of " + ", ".join(KINDS))
    text = f"<b>{title}</b><br><span style='font-size:12px'>{source}</span>"
    fig = go.Figure(layout={"template": _TEMPLATE, "width": width, "height": height})
    fig.update_layout(title_text=text, title_font_size=15, xaxis_title=x, yaxis_title=y)
    return fig


def token_strip(
    pieces: Sequence[str], labels: Sequence[object], title: str, source: str
) -> go.Figure:
    """A row of boxes, one a token: its piece of text, and a label below it.

    Args:
        pieces: the text of each token.
        labels: what stands below each, such as its id.
        title, source: as `chart` takes them.
    """
    fig = chart(title, source, height=150)
    texts = [piece.replace(" ", "␣").replace("\n", "⏎") for piece in pieces]
    below = [str(label) for label in labels]
    widths = [max(len(t), len(b), 2) + 1.0 for t, b in zip(texts, below, strict=True)]
    fig.add_bar(
        orientation="h", y=[0] * len(texts), x=widths, base=[0, *accumulate(widths)][:-1],
        text=[f"<b>{t}</b><br>{b}" for t, b in zip(texts, below, strict=True)],
        marker_color=[(SKY, ORANGE)[i % 2] for i in range(len(texts))], marker_line_width=0,
        textfont={"color": "black", "size": 12}, constraintext="none", insidetextanchor="middle",
        textangle=0, textposition="inside", hoverinfo="text",
    )  # fmt: skip
    fig.update_xaxes(visible=False).update_yaxes(visible=False)
    return fig.update_layout(bargap=0, showlegend=False, margin={"l": 8, "r": 8, "t": 58, "b": 8})
