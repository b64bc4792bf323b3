"""The still of a kernel x-ray: source with its costs, threads, memory and time, for one step."""

from __future__ import annotations

from PIL import Image

from tinyvllm_lab.kernels.findings import Finding
from tinyvllm_lab.kernels.xray_data import NUM_BANKS, SECTOR_BYTES
from tinyvllm_lab.kernels.xray_timeline import WARP, WarpStep, linear
from tinyvllm_lab.widgets.palette import EMPTY, LINE, PAGE, SOFT, TEXT, WARN, mix
from tinyvllm_lab.widgets.still import INNER_WIDTH, LegendItem, StillCanvas, frame_still
from tinyvllm_lab.widgets.xray_run import XRayRun, access_text, worth

LOOKS = {
    "read": ("#56B4E9", "reads"),
    "write": ("#E69F00", "writes"),
    "atomic": ("#CC79A7", "atomic"),
    "warp_op": ("#009E73", "shuffle, vote"),
    "barrier": ("#D55E00", "at a barrier"),
}
"""Colour and words of each kind of step, as in `static/xray_view.js`."""
_VERB = {"read": "read", "write": "write", "atomic": "update"}
_GOOD, _FAIR, _POOR = "#009E73", "#E69F00", "#D55E00"
_ROW, _MOST_LINES, _MOST_WARPS, _MOST_ROWS = 15.0, 26, 8, 16
_TEXT_LEFT = 162.0  # px, where the source begins
_LABEL, _PITCH = 58.0, 14.0


def still_of(title: str, run: XRayRun, tick: int, caption: str) -> Image.Image:
    """One launch at one step, framed."""
    return _Still(run, tick).image(title, caption)


def sentence(run: XRayRun, step: WarpStep | None) -> str:
    """What a warp does, as in `static/xray_run.js`."""
    if step is None:
        return "No memory access, barrier or shuffle."
    lanes = _times(len(step.lanes), "lane")
    start = f"Warp {step.warp}, line {run.xray.lines[step.line].number}: {lanes}"
    if step.kind not in _VERB:
        return f"{start} {'at the barrier' if step.kind == 'barrier' else 'in a warp operation'}."
    start += f" {_VERB[step.kind]}{'s' * (len(step.lanes) == 1)}"
    if step.array < 0:
        return f"{start} outside of all arrays."
    start += f" {run.xray.arrays[step.array].name}"
    if run.is_shared(step):
        return f"{start}, {_times(step.passes(), 'pass')} of the banks."
    sectors = step.sectors()
    used = 100 * sum(sectors.values()) / (SECTOR_BYTES * len(sectors))
    return f"{start}: {_times(len(sectors), 'sector')}, {used:.0f} % used."


def _times(count: int, word: str) -> str:
    return f"{count:,} {word}{'' if count == 1 else 'es' if word.endswith('s') else 's'}"


class _Still:
    def __init__(self, run: XRayRun, tick: int) -> None:
        self.run, self.tick = run, tick
        now = [step for step in run.timeline.steps if step.tick == tick]
        self.now = {step.warp: step for step in now}
        self.here = [f for f in run.xray.findings if run.is_here(f)]
        self.chosen = self._chosen(now)
        self.lines = self._lines()

    def _chosen(self, now: list[WarpStep]) -> WarpStep | None:
        """The step of a finding's warp, else of the first that acts."""
        for finding in self.here:
            warp = linear(finding.place.thread, self.run.xray.block) // WARP
            if warp in self.now:
                return self.now[warp]
        return now[0] if now else None

    def _lines(self) -> list[tuple[str, int, str]]:
        """File, number and text of the source lines that have room, around the current one."""
        found = [
            (part.file, part.first + n, text)
            for part in self.run.source
            for n, text in enumerate(part.lines)
        ]
        current = self._place_of(self.chosen)
        at = next((n for n, line in enumerate(found) if line[:2] == current), 0)
        first = max(0, min(at - _MOST_LINES * 2 // 3, len(found) - _MOST_LINES))
        return found[first : first + _MOST_LINES]

    def _place_of(self, step: WarpStep | None) -> tuple[str, int]:
        if step is None:
            return "", 0
        line = self.run.xray.lines[step.line]
        return line.file, line.number

    def image(self, title: str, caption: str) -> Image.Image:
        xray, ticks = self.run.xray, self.run.timeline.ticks
        legend = [LegendItem((fill,), words) for fill, words in LOOKS.values()]
        legend.append(LegendItem((WARN,), "found by the checker", "outline"))
        now = f"step {self.tick + 1:,} of {ticks:,}" if ticks else "no steps"
        told = " ".join(finding.message for finding in xray.findings[:1])
        named = title if self.run.label == xray.kernel else f"{title} · {self.run.label}"
        text = f"{told} {caption}".strip()
        return frame_still(named, "measured", now, legend, text, self._height(), self._draw)

    # ---- places ---------------------------------------------------------------------------------
    def _height(self) -> float:
        return self._below_source() + 30 + self._memory_height() + 12 + self._warps() * 14 + 26

    def _below_source(self) -> float:
        return 22 + _ROW * len(self.lines)

    def _warps(self) -> int:
        x, y, z = self.run.xray.block
        return min(-(-x * y * z // WARP), _MOST_WARPS)

    def _memory_height(self) -> float:
        step = self.chosen
        if step is None or step.array < 0:
            return 10
        if self.run.is_shared(step):
            return 16 + 9.0 * min(step.passes(), _MOST_ROWS)
        return 17.0 * -(-len(step.sectors()) // 8)

    def _draw(self, canvas: StillCanvas) -> None:
        self._draw_facts(canvas)
        self._draw_source(canvas)
        top = self._below_source() + 8
        canvas.text(sentence(self.run, self.chosen), 0, top + 6, bold=True, most=INNER_WIDTH)
        self._draw_memory(canvas, top + 20)
        self._draw_threads(canvas, top + 32 + self._memory_height())

    def _draw_facts(self, canvas: StillCanvas) -> None:
        xray, totals = self.run.xray, self.run.xray.totals
        launch = f"grid {xray.grid} × block {xray.block}: "
        moved = f"{totals.global_bytes_moved:,} bytes moved in {totals.global_requests:,} requests"
        extra = f", {totals.bank_conflict_passes:,} extra passes" if totals.shared_requests else ""
        blocks = f" (counted in {_times(len(xray.logged_blocks), 'block')})"
        canvas.text(launch + moved + extra + blocks, 0, 7, colour=SOFT, most=INNER_WIDTH)

    # ---- source ---------------------------------------------------------------------------------
    def _draw_source(self, canvas: StillCanvas) -> None:
        current = self._place_of(self.chosen)
        for n, (file, number, text) in enumerate(self.lines):
            y = 20 + n * _ROW
            if (file, number) == current:
                canvas.rect(0, y, INNER_WIDTH, _ROW, mix("#0072B2", PAGE, 0.78))
            canvas.text(f"{number}", 24, y + 7.5, size=10.5, colour=SOFT, align="right")
            self._draw_cost(canvas, file, number, y)
            indent = len(text) - len(text.lstrip())
            x = _TEXT_LEFT + indent * 4.2
            width = canvas.text(text.strip(), x, y + 7.5, size=11, most=INNER_WIDTH - x - 4)
            if n == 0 or self.lines[n - 1][0] != file:
                canvas.text(file, INNER_WIDTH - 4, y + 7.5, size=10, colour=SOFT, align="right")
            for finding in self._findings_at(file, number):
                self._draw_mark(canvas, finding, number, x + width + 10, y)

    def _findings_at(self, file: str, number: int) -> list[Finding]:
        places = [(f, p) for f in self.run.xray.findings for p in (f.place, f.other) if p]
        found = [f for f, place in places if (place.file, place.line) == (file, number)]
        return found[:1]

    def _draw_mark(
        self, canvas: StillCanvas, finding: Finding, number: int, x: float, y: float
    ) -> None:
        kind = finding.kind.replace("_", " ")
        words = kind if finding.line == number else f"other side of a {kind}"
        x = min(x, INNER_WIDTH - canvas.text_width(words, 10) - 10)
        canvas.card(x, y + 1, canvas.text_width(words, 10) + 10, _ROW - 2, 3, WARN)
        canvas.text(words, x + 5, y + 7.5, size=10, colour="#ffffff")

    def _draw_cost(self, canvas: StillCanvas, file: str, number: int, y: float) -> None:
        lines = [
            n
            for n, line in enumerate(self.run.xray.lines)
            if (line.file, line.number) == (file, number)
        ]
        accesses = [a for a in self.run.xray.accesses if a.line in lines]
        worst = min(accesses, key=worth, default=None)
        if worst is None:
            self._draw_synchronisation(canvas, lines, y)
            return
        share = worth(worst)
        colour = _GOOD if share >= 0.75 else _FAIR if share >= 0.4 else _POOR
        canvas.card(34, y + 3, 24, 9, 2, EMPTY)
        canvas.rect(34, y + 3, max(2.0, 24 * share), 9, colour)
        canvas.text(access_text(worst), 63, y + 7.5, size=10.5)

    def _draw_synchronisation(self, canvas: StillCanvas, lines: list[int], y: float) -> None:
        activity = [self.run.xray.activity[n] for n in lines]
        for kind, word in (("barrier", "barrier"), ("warp_op", "shuffle")):
            if any(a.barriers if kind == "barrier" else a.warp_operations for a in activity):
                canvas.rect(34, y + 3, 24, 9, LOOKS[kind][0])
                canvas.text(word, 63, y + 7.5, size=10.5)
                return

    # ---- memory ---------------------------------------------------------------------------------
    def _draw_memory(self, canvas: StillCanvas, top: float) -> None:
        step = self.chosen
        if step is None or step.array < 0:
            return
        if self.run.is_shared(step):
            self._draw_banks(canvas, step, top)
        else:
            self._draw_sectors(canvas, step, top)

    def _draw_sectors(self, canvas: StillCanvas, step: WarpStep, top: float) -> None:
        fill = LOOKS[step.kind][0]
        asked = {o + b for o in step.offsets for b in range(step.size)}
        word = (INNER_WIDTH / 8 - 6) / 8
        for n, sector in enumerate(step.sectors()):
            x, y = n % 8 * INNER_WIDTH / 8, top + 17.0 * (n // 8)
            for w in range(8):
                byte = sector * SECTOR_BYTES + 4 * w
                used = bool(asked & set(range(byte, byte + 4)))
                canvas.rect(x + w * word, y, word - 1, 12, fill if used else EMPTY)
            canvas.card(x - 1, y - 1, 8 * word + 1, 14, 2, None, SOFT, 0.7)

    def _draw_banks(self, canvas: StillCanvas, step: WarpStep, top: float) -> None:
        words = {o // 4 + w for o in step.offsets for w in range(max(1, step.size // 4))}
        for bank in range(NUM_BANKS):
            depth = sum(1 for word in words if word % NUM_BANKS == bank)
            x = _LABEL + bank * _PITCH * 1.4
            if bank % 8 == 0 or bank == NUM_BANKS - 1:
                canvas.text(f"{bank}", x + 9, top + 5, size=10, colour=SOFT, align="center")
            for row in range(min(step.passes(), _MOST_ROWS)):
                colour = EMPTY if row >= depth else LOOKS["barrier" if row else step.kind][0]
                canvas.rect(x, top + 13 + 9 * row, _PITCH * 1.4 - 2, 7.5, colour)
        canvas.text("bank", 0, top + 5, size=10.5, colour=SOFT)

    # ---- threads and time -----------------------------------------------------------------------
    def _draw_threads(self, canvas: StillCanvas, top: float) -> None:
        states = thread_states(self.run, self.tick)
        culprits = {linear(f.place.thread, self.run.xray.block) for f in self.here}
        for warp in range(self._warps()):
            y = top + 14 * warp
            bold = self.chosen is not None and warp == self.chosen.warp
            canvas.text(f"warp {warp}", 0, y + 5.5, size=10.5, colour=SOFT, bold=bold)
            for lane, state in enumerate(states[warp * WARP : (warp + 1) * WARP]):
                x = _LABEL + lane * 9.6
                if state == "done":
                    canvas.line(x + 2, y + 5.5, x + 6, y + 5.5, SOFT)
                else:
                    canvas.rect(x, y, 8, 11, _fill(state))
                if warp * WARP + lane in culprits:
                    canvas.card(x - 1, y - 1, 10, 13, 2, None, WARN, 1.6)
            self._draw_time(canvas, warp, y)
        hidden = -(-len(states) // WARP) - self._warps()
        more = f"; {_times(hidden, 'warp')} more" if hidden else ""
        y = top + 14 * self._warps() + 7
        canvas.text(f"threads, 32 lanes a row{more}", _LABEL, y, size=10.5, colour=SOFT)
        canvas.text("time: steps of each warp", self._time_left, y, size=10.5, colour=SOFT)

    @property
    def _time_left(self) -> float:
        return _LABEL + 32 * 9.6 + 16

    def _draw_time(self, canvas: StillCanvas, warp: int, y: float) -> None:
        left, ticks = self._time_left, max(1, self.run.timeline.ticks)
        pitch = min((INNER_WIDTH - left) / ticks, 14.0)
        canvas.rect(left, y, pitch * ticks, 11, EMPTY)
        for step in self.run.timeline.steps:
            if step.warp == warp:
                x = left + step.tick * pitch
                canvas.rect(x, y, max(pitch - 0.4, 0.6), 11, LOOKS[step.kind][0])
        for tick in self.run.timeline.opens if pitch > 1 else []:
            canvas.line(left + tick * pitch, y - 1, left + tick * pitch, y + 12, TEXT)
        canvas.card(left + self.tick * pitch - 1, y - 1, max(pitch, 2) + 2, 13, 1, None, TEXT, 1.2)


def _fill(state: str) -> str:
    return mix(LINE, PAGE, 0.35) if state == "idle" else LOOKS[state][0]


def thread_states(run: XRayRun, tick: int) -> list[str]:
    """Of each thread: the kind of its step, "barrier" while it waits, "idle" or "done"."""
    line = run.timeline
    states = ["done" if end < tick else "idle" for end in line.ends]
    opened = [open_ for open_ in line.opens if open_ <= tick]
    for step in line.steps:
        waits = step.kind == "barrier" and not any(step.tick < o for o in opened)
        if step.tick == tick or (step.tick < tick and waits):
            for lane in step.lanes:
                states[step.warp * WARP + lane] = step.kind
    return states
