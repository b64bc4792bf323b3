"""Pictures of KV memory say what the scheduler's own books say."""

import numpy as np
import pytest

from tinyvllm_lab import Engine, EngineConfig, SamplingParams
from tinyvllm_lab.course.memory_charts import (
    NOTHING,
    Region,
    holes,
    memory_history,
    memory_strip,
    regions_of,
    request_colour,
)
from tinyvllm_lab.engine.state import state_at
from tinyvllm_lab.simulate import SimulatedExecutor, VirtualClock
from tinyvllm_lab.widgets.palette import COLOURS

PREFIX = list(range(8))


def engine(**knobs: object) -> Engine:
    config = EngineConfig(block_size=4, num_blocks=17, max_model_len=60, **knobs)  # type: ignore[arg-type]
    return Engine(config, SimulatedExecutor(), clock=VirtualClock())


def busy_engine(steps: int, **knobs: object) -> Engine:
    """Six requests with a common beginning, one more in each step."""
    running = engine(**knobs)
    for number in range(steps):
        if number < 6:
            prompt = [*PREFIX, *range(100 * number, 100 * number + 2 + number)]
            running.add_request(prompt, SamplingParams(max_tokens=3 + 2 * (number % 3)))
        running.step()
    return running


@pytest.mark.parametrize("allocator", ["contiguous-max", "contiguous-first-fit"])
def test_holes_are_those_of_the_allocator(allocator: str) -> None:
    for steps in range(1, 15):
        running = busy_engine(steps, allocator=allocator, enable_prefix_caching=False)
        regions = regions_of(state_at(running.log, steps - 1))
        assert holes(regions, 64) == running.scheduler.memory.holes()


def test_a_strip_adds_up_to_its_capacity() -> None:
    regions = [Region(0, 4, 8, 5), Region(1, 20, 12, 12)]
    fig = memory_strip({"row": regions}, 40, "t", "drawn")
    assert sum(trace.x[0] for trace in fig.data) == 40
    assert {trace.text[0] for trace in fig.data} == {"0", "", "1", "4", "8"}


def test_history_has_a_row_a_block_and_a_colour_a_request() -> None:
    running = busy_engine(12)
    fig = memory_history(running.log, "t", "simulated")
    heat = fig.data[0]
    colours = np.array([colour for _, colour in heat.colorscale[::2]])
    shown = colours[np.asarray(heat.z)]  # [blocks, steps]
    assert shown.shape == (16, 12)
    for step in range(12):
        state = state_at(running.log, step)
        free = [state.block_state(block) == "free" for block in range(1, 17)]
        assert (shown[:, step] == NOTHING).tolist() == free
    legend = {trace.name: trace.marker.color for trace in fig.data[1:]}
    assert legend == {name: request_colour(i) for i, name in enumerate(f"#{i}" for i in range(6))}


def test_history_of_regions_counts_in_token_slots() -> None:
    running = busy_engine(12, allocator="contiguous-first-fit", enable_prefix_caching=False)
    fig = memory_history(running.log, "t", "simulated", steps=range(2, 8))
    assert list(fig.data[0].x) == list(range(2, 8))
    assert list(fig.data[0].y)[:2] == [2, 6]
    assert fig.layout.yaxis.title.text == "token slot"


def test_colours_are_the_panels() -> None:
    assert [request_colour(i) for i in range(7)] == [*COLOURS, COLOURS[0]]
