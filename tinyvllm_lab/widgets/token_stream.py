"""The token stream: what each request has written so far, token by token."""

from __future__ import annotations

from typing import Any, ClassVar

from tinyvllm_lab.engine.events import Kind
from tinyvllm_lab.engine.state_rules import RequestState
from tinyvllm_lab.widgets.esm import bundle
from tinyvllm_lab.widgets.moment import Moment, plural, reason_word
from tinyvllm_lab.widgets.palette import COLOURS, EMPTY, SOFT, TEXT, look_of
from tinyvllm_lab.widgets.panel import Panel
from tinyvllm_lab.widgets.still import LegendItem, StillCanvas

_LEFT, _PITCH = 65.0, 41.0


class TokenStream(Panel):
    """Tokens as they come (chapters 00 and 04).

    Options:
        rows: most requests that are shown; the selected one always is.
    """

    _esm = bundle("token_stream")
    module = "token_stream"
    default_title = "Token stream"
    default_caption = (
        "The newest tokens of each request; the one of this step has its request's colour."
    )
    default_options: ClassVar[dict[str, Any]] = {"rows": 8}

    def _rows(self, moment: Moment) -> int:
        return max(2, min(self.options["rows"], moment.num_seats))

    def still_height(self, moment: Moment) -> float:
        """One row for each request."""
        return self._rows(moment) * _PITCH

    def draw_still(self, canvas: StillCanvas, moment: Moment) -> None:
        """The same picture as `static/token_stream.js`."""
        shown = moment.state.running[: self._rows(moment)]
        shown += [r for r in moment.last_finished if r not in shown]
        if not shown:
            canvas.text("No request is running yet.", 2, _PITCH / 2, colour=SOFT)
        for place, request in enumerate(shown[: self._rows(moment)]):
            _draw_row(canvas, moment, request, place * _PITCH)

    def still_legend(self, moment: Moment) -> list[LegendItem]:
        """New and earlier tokens."""
        known = "earlier tokens"
        text = known if moment.log.texts else f"{known}, as ids: this run has no text"
        return [LegendItem(COLOURS[:3], "token of this step"), LegendItem((EMPTY,), text)]


def _draw_row(canvas: StillCanvas, moment: Moment, request: int, y: float) -> None:
    look = look_of(request)
    record = moment.state.requests.get(request, RequestState())
    about = moment.log.requests.get(request, {})
    canvas.request(request, 0, y + 2, 55, 35)
    canvas.card(3, y + 5, 49, 29, 3, look.fill)
    canvas.text(f"#{request}", 8, y + 13, bold=True, colour=look.ink)
    finished = record.reason is not None
    status = reason_word(record.reason) if finished else record.status.value
    canvas.text(status, 8, y + 26, size=10, colour=look.ink, most=43)
    prompt = " ".join(str(about.get("prompt", "")).split())
    text = f"“{prompt}”" if prompt else f"prompt of {plural(record.prompt_tokens, 'token')}"
    canvas.text(text, _LEFT, y + 11, size=11, colour=SOFT, most=canvas.width - _LEFT - 96)
    output = f"{record.num_output:,} of {record.max_tokens:,}"
    canvas.text(output, canvas.width - 2, y + 11, size=10.5, colour=SOFT, align="right")
    _draw_tokens(canvas, moment, request, y + 20)


def _draw_tokens(canvas: StillCanvas, moment: Moment, request: int, y: float) -> None:
    """The newest tokens that fit."""
    tokens = moment.of_kind(Kind.TOKEN)
    ids = tokens[tokens[:, 1] == request, 2].tolist()
    is_new = any(e.kind is Kind.TOKEN and e.a == request for e in moment.events)
    room, pieces = canvas.width - _LEFT - 2, []
    for token in reversed(ids):
        text = moment.log.texts.get(token, str(token)).replace("\n", "↵").replace("\t", "→")
        width = max(canvas.text_width(text), 3.0) + 4
        if width > room:
            break
        room -= width
        pieces.append((text, width))
    x, look = _LEFT, look_of(request)
    for place, (text, width) in enumerate(reversed(pieces)):
        fresh = is_new and place == len(pieces) - 1
        canvas.card(x, y, width - 1.5, 18, 3, look.fill if fresh else EMPTY)
        canvas.text(text, x + 1, y + 9, colour=look.ink if fresh else TEXT)
        x += width
