"""The contiguous strip: regions and holes as the metrics and the browser count them."""

import json
import shutil
import subprocess
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tinyvllm_lab.engine.config import EngineConfig
from tinyvllm_lab.engine.events import Kind
from tinyvllm_lab.engine.history import History
from tinyvllm_lab.engine.metrics_kv import kv_columns
from tinyvllm_lab.engine.metrics_steps import Table
from tinyvllm_lab.engine.state import EngineState, RequestState
from tinyvllm_lab.simulate.arrivals import Poisson
from tinyvllm_lab.simulate.presets import chat
from tinyvllm_lab.simulate.run import simulate
from tinyvllm_lab.widgets import ContiguousStrip
from tinyvllm_lab.widgets.contiguous_strip import PAGED
from tinyvllm_lab.widgets.esm import STATIC
from tinyvllm_lab.widgets.regions import strip_of


@pytest.fixture(scope="module")
def log():
    config = EngineConfig(
        allocator="contiguous-first-fit", enable_prefix_caching=False, compaction=True,
        num_blocks=200, max_num_batched_tokens=2048,
    )  # fmt: skip
    return simulate(chat(10, Poisson(30.0), think_s=0.1), config=config).log


def test_the_waste_is_that_of_the_metrics(log):
    """Metrics look in the middle of a step; where no region is freed they agree with its end."""
    columns, history, compared = kv_columns(log, Table.of(log)), History(log), 0
    for step in range(log.num_steps):
        if {Kind.REGION_FREE, Kind.FINISH, Kind.PREEMPT} & {e.kind for e in log.events(step)}:
            continue
        strip = strip_of(history.at(step), columns.capacity)
        assert strip.held == columns.reserved[step]
        assert strip.internal == columns.internal[step]
        assert strip.external == columns.external[step]
        compared += 1
    assert compared > 20


@st.composite
def states(draw):
    """Regions with gaps between them, given out in any order."""
    parts = draw(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 20), st.integers(0, 30))))
    state, end = EngineState(), 0
    order = draw(st.permutations(range(len(parts))))
    placed = []
    for gap, length, computed in parts:
        placed.append(((end + gap, length), computed))
        end += gap + length
    for request, place in enumerate(order):
        region, computed = placed[place]
        record = RequestState(prompt_tokens=40, max_tokens=1)
        record.region, record.num_computed = region, computed
        state.requests[request] = record
    return state, end + draw(st.integers(0, 9))


@pytest.mark.needs("node")
@settings(max_examples=4, deadline=None)
@given(st.lists(states(), min_size=80, max_size=80))
def test_the_browser_finds_the_same_regions_and_holes(cases):
    script = (
        f'import {{ stripOf }} from "{(STATIC / "regions.js").as_uri()}";'
        f'import {{ EngineState }} from "{(STATIC / "state.js").as_uri()}";'
        "import fs from 'node:fs'; const cases = JSON.parse(fs.readFileSync(0));"
        "console.log(JSON.stringify(cases.map(([s, n]) => stripOf(EngineState.fromDict(s), n))));"
    )
    given_ = json.dumps([(state.as_dict(), capacity) for state, capacity in cases])
    command = [shutil.which("node"), "--input-type=module", "-e", script]
    done = subprocess.run(command, input=given_, capture_output=True, text=True, check=True)
    for (state, capacity), found in zip(cases, json.loads(done.stdout), strict=True):
        strip, theirs = strip_of(state, capacity), SimpleNamespace(**found)
        assert theirs.regions == [region._asdict() for region in strip.regions]
        assert theirs.holes == [hole._asdict() for hole in strip.holes]
        assert theirs.largest == (strip.largest._asdict() if strip.largest else None)
        for name in ("held", "internal", "free", "external", "capacity"):
            assert getattr(theirs, name) == getattr(strip, name)
        assert strip.held + strip.free == capacity


def test_regions_that_moved_are_in_the_picture(log):
    rows = log.as_array()
    moves = (rows[:, 0] == int(Kind.REGION_MOVE)).nonzero()[0]
    step = log.step_of(int(moves[0]))
    assert ContiguousStrip(log, still_step=step).still() != ContiguousStrip(log).still()


def test_a_paged_run_is_sent_to_the_block_map():
    strip = ContiguousStrip(simulate(chat(2, Poisson(30.0)), config=EngineConfig()).log)
    assert strip.still_image().height < 300
    assert f'"{PAGED}"' in (STATIC / "contiguous_strip.js").read_text()
