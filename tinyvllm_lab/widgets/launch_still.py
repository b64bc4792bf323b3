"""The still of a launch: blocks, one SM, elements, and the threads of one block."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tinyvllm_lab.kernels.resources import REGISTER_UNIT, REGISTERS, WARP
from tinyvllm_lab.widgets.launch_figures import MOST_THREADS, Axis, Figures, Launch
from tinyvllm_lab.widgets.palette import COLOURS, EMPTY, PAGE, SOFT, TEXT, ink_on, mix
from tinyvllm_lab.widgets.still import INNER_WIDTH, LegendItem, StillCanvas

BLOCK_COLOURS, WRONG = COLOURS[:5], COLOURS[5]
IDLE = mix(EMPTY, SOFT, 0.35)
_HEAD, _TOP, _LEFT = 20.0, 96.0, 46.0  # px: a heading, blocks and SM, the names of warps
_MOST_CELLS = {"flat": 192, "x": 48, "y": 12}
_MOST_PASSES = 5


def launch_legend(found: Figures, block: int) -> list[LegendItem]:
    """What colours mean, with the counts."""
    items = [
        LegendItem(BLOCK_COLOURS[:3], "blocks, and the elements that they compute"),
        LegendItem((IDLE,), f"idle threads: {found.idle:,} of {found.threads:,}"),
        LegendItem((TEXT,), f"block {block}, whose threads are shown", "outline"),
    ]
    wrong = {
        "elements that nobody computes": found.missing,
        "threads beyond the array (×)": found.outside,
        "threads in another row (!)": found.elsewhere,
    }
    items += [LegendItem((WRONG,), f"{words}: {n:,}") for words, n in wrong.items() if n]
    return items


def _row_height(launch: Launch) -> float:
    return 17.0 if _threads(launch) <= 512 else 11.0


def _threads(launch: Launch) -> int:
    """Threads of a block that are drawn; a launch with more fails."""
    return min(launch.x.block * launch.y.block, MOST_THREADS)


def _passes(launch: Launch) -> int:
    return min(-(-launch.x.size // launch.x.reach), _MOST_PASSES)


def _elements_height(launch: Launch) -> float:
    return 20.0 * _passes(launch) if _is_flat(launch) else 130.0


def _is_flat(launch: Launch) -> bool:
    return launch.y.size == launch.y.reach == 1


def launch_height(launch: Launch) -> float:
    """Height of the picture in px."""
    warps = -(-_threads(launch) // WARP)
    return 3 * _HEAD + _TOP + _elements_height(launch) + 16 + warps * _row_height(launch)


def draw_launch(
    canvas: StillCanvas,
    launch: Launch,
    found: Figures,
    gpu: Mapping[str, Any],
    resources: tuple[int, int],
    block: int,
) -> None:
    """Draw all of it.

    Args:
        canvas: `launch_height` high.
        launch: the grid over the elements.
        found: its figures.
        gpu: the row of a GPU.
        resources: registers of a thread, bytes of shared memory of a block.
        block: number of the one whose threads are shown.
    """
    half = INNER_WIDTH / 2
    canvas.text(_map_words(launch, found), 0, 8, bold=True)
    _draw_map(canvas, launch, block, half - 24)
    canvas.text(_sm_words(found, gpu), half, 8, bold=True, most=half)
    _draw_sm(canvas, launch, found, gpu, resources, half)
    y = _HEAD + _TOP
    canvas.text(_elements_words(launch), 0, y + 8, bold=True)
    (_draw_passes if _is_flat(launch) else _draw_matrix)(canvas, launch, block, y + _HEAD)
    y += _HEAD + _elements_height(launch) + 16
    canvas.text(f"Block {block}: a warp a row", 0, y + 2, bold=True)
    _draw_threads(canvas, launch, block, y + _HEAD - 4)


def _sm_words(found: Figures, gpu: Mapping[str, Any]) -> str:
    if not found.resident:
        return f"The launch fails: {found.limiter}"
    tail = f"{found.tail / found.slots:.1%} of a wave" if found.tail else ""
    full = f"{found.waves:,} full waves" if found.waves else ""
    waves = " + ".join(filter(None, (full, tail)))
    return f"One SM: {found.resident} blocks; {gpu['sms']} SMs: {waves}"


def _map_words(launch: Launch, found: Figures) -> str:
    wide, high = _groups(launch)
    cell = f"; a cell is {f'{wide} x {high}' if high > 1 else wide}" if wide * high > 1 else ""
    return f"{found.blocks:,} blocks{cell}"


def _elements_words(launch: Launch) -> str:
    words, lines = "Elements, in the colour of their block", -(-launch.x.size // launch.x.reach)
    if not _is_flat(launch) or lines == 1:
        return words
    shown = f", {_MOST_PASSES} of {lines:,} shown" if lines > _MOST_PASSES else ""
    return f"{words}; a line is as long as the grid{shown}"


def _group(blocks: int, most: int) -> int:
    """Blocks that one cell stands for."""
    size = 1
    while -(-blocks // size) > most:
        size *= 2
    return size


def _groups(launch: Launch) -> tuple[int, int]:
    flat = launch.y.grid == 1
    return _group(launch.x.grid, _MOST_CELLS["flat" if flat else "x"]), _group(
        launch.y.grid, _MOST_CELLS["y"]
    )


def _colour(launch: Launch, block_x: int, block_y: int) -> str:
    wide, high = _groups(launch)
    columns = -(-launch.x.grid // wide)
    cell = block_x // wide + block_y // high * (columns + (2 if columns % 5 == 0 else 0))
    return BLOCK_COLOURS[cell % len(BLOCK_COLOURS)]


def _share(axis: Axis, first: int, blocks: int) -> float:
    """Of the threads of some blocks in one direction, those with an element."""
    threads = min(blocks, axis.grid - first) * axis.block
    return min(max(axis.size - first * axis.block, 0), threads) / threads


def _draw_map(canvas: StillCanvas, launch: Launch, block: int, width: float) -> None:
    wide, high = _groups(launch)
    columns, rows = -(-launch.x.grid // wide), -(-launch.y.grid // high)
    flat = rows == 1
    side = (width * 72 / columns) ** 0.5 if flat else min(width / columns, 84 / rows)
    side = max(4.0, min(34.0, side))
    line = max(1, min(columns, int(width / side))) if flat else columns
    seen = divmod(block, launch.x.grid)
    for cell in range(columns * rows):
        at_y, at_x = divmod(cell, columns)
        x, y = cell % line * side, _HEAD + cell // line * side
        _draw_cell(canvas, launch, at_x * wide, at_y * high, x, y, side - 1.5)
        if (seen[1] // wide, seen[0] // high) == (at_x, at_y):
            canvas.card(x - 1, y - 1, side + 0.5, side + 0.5, 1, None, TEXT, 1.5)


def _draw_cell(
    canvas: StillCanvas, launch: Launch, block_x: int, block_y: int, x: float, y: float, side: float
) -> None:
    wide, high = _groups(launch)
    shares = _share(launch.x, block_x, wide), _share(launch.y, block_y, high)
    canvas.rect(x, y, side, side, IDLE if launch.is_guarded else WRONG)
    canvas.rect(x, y, side * shares[0], side * shares[1], _colour(launch, block_x, block_y))


def _draw_sm(
    canvas: StillCanvas,
    launch: Launch,
    found: Figures,
    gpu: Mapping[str, Any],
    resources: tuple[int, int],
    left: float,
) -> None:
    warps = -(-launch.x.block * launch.y.block // WARP)
    registers = -(-resources[0] * WARP // REGISTER_UNIT) * REGISTER_UNIT * warps
    unit = gpu["shared_unit"]
    shared = -(-(resources[1] + gpu["reserved"]) // unit) * unit
    bars = {
        "warps": (warps, gpu["warps"]), "blocks": (1, gpu["blocks"]),
        "registers": (registers, REGISTERS), "shared memory": (shared, gpu["shared"]),
    }  # fmt: skip
    bar = left + 92
    width = INNER_WIDTH - bar - 130
    for line, (name, (one, all_of_it)) in enumerate(bars.items()):
        y, limits = _HEAD + 22 * line, name == found.limiter
        canvas.text(name, left, y + 8, colour=TEXT if limits else SOFT, bold=limits)
        canvas.rect(bar, y, width, 15, EMPTY)
        for number in range(found.resident):
            step = one / all_of_it * width
            colour = BLOCK_COLOURS[1 if number % 2 else 4]
            canvas.rect(bar + number * step, y, max(step - 0.5, 0.5), 15, colour)
        used = f"{'limit: ' * limits}{found.resident * one:,} of {all_of_it:,}"
        canvas.text(used, INNER_WIDTH, y + 8, size=11, colour=TEXT if limits else SOFT,
                    bold=limits, align="right")  # fmt: skip


def _draw_passes(canvas: StillCanvas, launch: Launch, block: int, top: float) -> None:
    """A vector: each line has as many elements as the grid has threads."""
    x, scale = launch.x, INNER_WIDTH / launch.x.reach
    step = _groups(launch)[0] * x.block
    for line in range(_passes(launch)):
        y, left = top + 20 * line, min(x.size - line * x.reach, x.reach)
        done = launch.stride or line == 0
        beyond = IDLE if launch.is_guarded or line else WRONG
        canvas.rect(0, y, INNER_WIDTH, 16, beyond if done else PAGE)
        if not done:
            canvas.rect(0, y, left * scale, 16, WRONG)
            continue
        for at in range(0, left, step):
            width = min(step, left - at) * scale
            canvas.rect(at * scale, y, width, 16, _colour(launch, at // x.block, 0))
        canvas.card(block * x.block * scale, y, x.block * scale, 16, 1, None, TEXT, 1.5)


def _draw_matrix(canvas: StillCanvas, launch: Launch, block: int, top: float) -> None:
    x, y = launch.x, launch.y
    scale_x = (INNER_WIDTH - 1) / max(x.reach, x.size)
    scale_y = 126 / max(y.reach, y.size)

    def place(column: int, row: int, width: float, height: float, fill: str) -> None:
        canvas.rect(column * scale_x, top + row * scale_y, width * scale_x, height * scale_y, fill)

    place(0, 0, x.reach, y.reach, IDLE if launch.is_guarded else WRONG)
    place(0, 0, x.size, y.size, WRONG)
    columns, rows = x.covered(launch.stride), y.covered(launch.stride)
    place(0, 0, columns, rows, PAGE)
    step_x = x.block * _group(-(-columns // x.block), _MOST_CELLS["x"])
    step_y = y.block * _group(-(-rows // y.block), _MOST_CELLS["y"])
    for row in range(0, rows, step_y):
        for column in range(0, columns, step_x):
            colour = _colour(launch, column // x.block % x.grid, row // y.block % y.grid)
            width, height = min(step_x, columns - column), min(step_y, rows - row)
            place(column, row, width - 0.7 / scale_x, height - 0.7 / scale_y, colour)
    seen_y, seen_x = divmod(block, x.grid)
    canvas.card(
        seen_x * x.block * scale_x, top + seen_y * y.block * scale_y, x.block * scale_x,
        y.block * scale_y, 1, None, TEXT, 1.5,
    )  # fmt: skip


def _draw_threads(canvas: StillCanvas, launch: Launch, block: int, top: float) -> None:
    threads, height = _threads(launch), _row_height(launch)
    width = (INNER_WIDTH - _LEFT) / WARP
    block_y, block_x = divmod(block, launch.x.grid)
    colour = _colour(launch, block_x, block_y)
    for lane in range(threads):
        warp, place = divmod(lane, WARP)
        x, y = _LEFT + place * width, top + warp * height
        if not place:
            canvas.text(f"warp {warp}", 0, y + height / 2 - 1, size=10, colour=SOFT)
        thread = launch.thread(block, lane)
        computes = thread.state == "computes"
        fill = colour if computes else IDLE if thread.state == "idle" else WRONG
        canvas.rect(x, y, width - 1, height - 1.5, fill)
        if thread.state == "idle":
            canvas.line(x, y + height - 2, x + width - 2, y, SOFT, 0.5)
        number = thread.row * launch.x.size + thread.column
        text = str(number) if computes else {"outside": "×", "elsewhere": "!"}.get(thread.state, "")
        size = 9 if len(text) < 4 else 7.5
        if canvas.text_width(text, size) < width - 1 and height > 12:
            canvas.text(text, x + width / 2 - 0.5, y + height / 2 - 1, size=size,
                        colour=ink_on(fill), align="center")  # fmt: skip
