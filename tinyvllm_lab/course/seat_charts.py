"""Who sat where, and when: a run's seats over its steps (chapters 08 and 09).

    seat_chart({"static": log, "continuous": other}, "Two schedulers", "simulated")

All is read from the event log. A bar is a request in its seat, in the colour that it has in every
chart; what shows the grey strip behind it is an empty seat.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import plotly.graph_objects as go

from tinyvllm_lab.course.charts import GREY, chart
from tinyvllm_lab.course.memory_charts import request_colour
from tinyvllm_lab.engine.events import Kind, Reason
from tinyvllm_lab.engine.log import EventLog

FAINT = "rgba(127, 127, 127, 0.22)"
_TOP_OF_STEP = (Reason.ABORT, Reason.TIMEOUT)


class Stay(NamedTuple):
    """A request in a seat, in the steps `first .. last - 1`."""

    request: int
    seat: int
    first: int
    last: int


def stays(log: EventLog) -> list[Stay]:
    """Every stay in a seat, by the step in which it began.

    A request that is aborted or preempted has left before its step computes anything.
    """
    begun: dict[int, tuple[int, int]] = {}
    found = []
    for step in range(log.first_step, log.num_steps):
        for event in log.events(step):
            if event.kind in (Kind.ADMIT, Kind.RESUME):
                begun[event.a] = event.b, step
            elif event.kind in (Kind.FINISH, Kind.PREEMPT) and event.a in begun:
                gone = event.kind is Kind.PREEMPT or event.b in _TOP_OF_STEP
                seat, first = begun.pop(event.a)
                found.append(Stay(event.a, seat, first, step if gone else step + 1))
    found += [Stay(r, seat, first, log.num_steps) for r, (seat, first) in begun.items()]
    return sorted(found, key=lambda stay: (stay.first, stay.seat))


def seat_chart(logs: Mapping[str, EventLog], title: str, source: str) -> go.Figure:
    """Seats from top to bottom, steps from left to right, one strip of seats for each log.

    Args:
        logs: runs by name, all on one axis of steps.
        title, source: as `chart` takes them.
    """
    source += (" · " if ":" in source else ": ") + "a bar is a request, grey is an empty seat"
    fig = chart(title, source, height=350 if len(logs) == 1 else 370)
    fig.set_subplots(rows=len(logs), cols=1, shared_xaxes=True, vertical_spacing=0.08)
    steps = max(log.num_steps for log in logs.values())
    for row, (name, log) in enumerate(logs.items(), 1):
        found = stays(log)
        seats = max((stay.seat for stay in found), default=0) + 1
        _draw(fig, row, found, range(seats), log.num_steps)
        label = f"{name}: seat" if len(logs) > 1 else "seat"
        fig.update_yaxes(title_text=label, row=row, col=1, dtick=1 if seats < 10 else 4)
    fig.update_xaxes(range=[0, steps], showgrid=False, tickcolor=GREY)
    fig.update_yaxes(autorange="reversed", showgrid=False, ticks="")
    fig.update_xaxes(title_text="step", row=len(logs), col=1)
    return fig.update_layout(barmode="overlay", showlegend=False, bargap=0.12)


def _draw(fig: go.Figure, row: int, found: list[Stay], seats: range, steps: int) -> None:
    fig.add_bar(
        orientation="h", y=list(seats), x=[steps] * len(seats), marker_color=FAINT,
        marker_line_width=0, hoverinfo="skip", row=row, col=1,
    )  # fmt: skip
    fig.add_bar(
        orientation="h",
        y=[stay.seat for stay in found], base=[stay.first for stay in found],
        x=[stay.last - stay.first for stay in found],
        marker={
            "color": [request_colour(stay.request) for stay in found],
            "line": {"color": GREY, "width": 0.5},
        },
        text=[str(stay.request) for stay in found], textposition="inside", textangle=0,
        insidetextanchor="middle", textfont={"color": "black", "size": 11},
        hovertext=[f"request {s.request}: steps {s.first} to {s.last - 1}" for s in found],
        hoverinfo="text", row=row, col=1,
    )  # fmt: skip
