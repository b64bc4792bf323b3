"""The chart of a workload: when requests arrive, and how long they are. The only use of plotly."""

from __future__ import annotations

from collections import Counter

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from tinyvllm_lab.simulate.workloads import Workload

OKABE_ITO = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#000000")
"""Colours that people with colour-blindness can tell apart (Okabe, Ito 2008)."""

SYMBOLS = ("circle", "square", "diamond", "cross", "x", "triangle-up", "star")
_BINS = 40


def workload_figure(workload: Workload) -> go.Figure:
    """Two charts: arrivals over time, stacked by kind, and answer length against prompt length.

    Follow-ups are drawn as if every answer came at once: when they really arrive, the server
    decides.
    """
    titles = ("arrivals (follow-ups: earliest)", "lengths: each point is a request")
    figure = make_subplots(rows=1, cols=2, subplot_titles=titles)
    arrivals = workload.nominal_arrivals()
    width = (max(arrivals, default=0.0) or 1.0) / _BINS
    for number, kind in enumerate(workload.kinds):
        colour = OKABE_ITO[number % len(OKABE_ITO)]
        of_kind = [
            (request, at)
            for request, at in zip(workload.requests, arrivals, strict=True)
            if request.kind == kind
        ]
        bins = Counter(min(int(at / width), _BINS - 1) for _, at in of_kind)
        figure.add_bar(
            x=[(b + 0.5) * width for b in sorted(bins)],
            y=[bins[b] for b in sorted(bins)],
            width=width, name=kind, legendgroup=kind, marker_color=colour, row=1, col=1,
        )  # fmt: skip
        figure.add_scatter(
            x=[workload.prompt_tokens(request) for request, _ in of_kind],
            y=[request.max_tokens for request, _ in of_kind],
            text=[request.request_id for request, _ in of_kind],
            mode="markers", name=kind, legendgroup=kind, showlegend=False,
            marker={"color": colour, "symbol": SYMBOLS[number % len(SYMBOLS)], "opacity": 0.6},
            row=1, col=2,
        )  # fmt: skip
    figure.update_xaxes(title_text="seconds", row=1, col=1)
    figure.update_yaxes(title_text="requests", row=1, col=1)
    figure.update_xaxes(title_text="prompt tokens, history included", row=1, col=2)
    figure.update_yaxes(title_text="most output tokens", row=1, col=2)
    figure.update_layout(barmode="stack", title=f"{workload.name} ({len(workload)} requests)")
    return figure
