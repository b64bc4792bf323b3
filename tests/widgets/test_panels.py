"""Panels without a browser: traits, stills, the message bundle, what they refuse."""

import base64
import io
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tinyvllm_lab.engine.config import EngineConfig
from tinyvllm_lab.engine.events import Kind
from tinyvllm_lab.engine.history import History
from tinyvllm_lab.engine.log import EventLog
from tinyvllm_lab.engine.metrics_kv import kv_columns
from tinyvllm_lab.engine.metrics_steps import Table
from tinyvllm_lab.engine.storage import from_bytes, save
from tinyvllm_lab.errors import ConfigError, LogError
from tinyvllm_lab.simulate.arrivals import Poisson
from tinyvllm_lab.simulate.presets import chat
from tinyvllm_lab.simulate.run import simulate
from tinyvllm_lab.widgets import (
    Airport,
    BlockMap,
    BlockTable,
    ContiguousStrip,
    MetricStrip,
    RunFeed,
    SlotTimeline,
    TokenStream,
    save_html,
    show,
)
from tinyvllm_lab.widgets.holdings import holdings_of
from tinyvllm_lab.widgets.metric_strip import _Steps
from tinyvllm_lab.widgets.moment import Moment, busiest_step
from tinyvllm_lab.widgets.palette import look_of, rgb

sys.path.append(str(Path(__file__).parents[1] / "engine"))
from toy_engine import ToyEngine

PANELS = [
    Airport, SlotTimeline, BlockMap, BlockTable, TokenStream, MetricStrip, ContiguousStrip,
]  # fmt: skip


@pytest.fixture(scope="module")
def run():
    config = EngineConfig(max_num_seqs=6, num_blocks=90, max_num_batched_tokens=2048)
    return simulate(chat(24, Poisson(30.0), think_s=0.1, seed=3), config=config)


def pixels(png: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(png)).convert("RGB"))


@pytest.mark.parametrize("panel", PANELS)
def test_a_panel_shows_a_widget_and_for_others_a_picture(run, panel):
    shown = panel(run)
    data, _ = shown._repr_mimebundle_()
    assert data["application/vnd.jupyter.widget-view+json"]["model_id"] == shown.model_id
    png = base64.b64decode(data["image/png"])
    assert png == shown.still()
    assert len(png) < 150_000
    height, width, _ = pixels(png).shape
    assert width == 1520
    assert 200 < height < 1400
    count = f"{run.log.num_steps:,} steps, {len(run.log.requests)} requests"
    assert data["text/plain"] == f"{panel.__name__}({count})"


@pytest.mark.parametrize("log", [EventLog(), EventLog(EngineConfig(max_num_seqs=4))])
def test_an_empty_run_has_pictures_too(log):
    for panel in PANELS:
        assert pixels(panel(log).still()).shape[1] == 1520


@pytest.mark.parametrize(
    "knobs",
    [
        {"allocator": "contiguous-first-fit", "enable_prefix_caching": False, "num_blocks": 300},
        {"num_blocks": 20_000},
        {"max_num_seqs": 200},
        {"preemption": "swap", "num_blocks": 90},
    ],
)
def test_other_engines_have_pictures(knobs):
    config = EngineConfig(**{"max_num_batched_tokens": 2048, **knobs})
    log = simulate(chat(8, Poisson(30.0), think_s=0.1), config=config).log
    for panel in PANELS:
        assert pixels(panel(log).still()).shape[1] == 1520


def test_the_still_shows_the_requests_that_run(run):
    step = busiest_step(run.log)
    state = Moment.of(run.log, step).state
    assert state.slots
    seen = {tuple(c) for c in pixels(Airport(run, still_step=step).still()).reshape(-1, 3)}
    for request in state.slots.values():
        colour = np.array(rgb(look_of(request).fill))
        assert min(np.abs(np.array(list(seen)) - colour).sum(axis=1)) < 12


def test_the_page_opens_where_the_still_stands():
    log, other = (simulate(chat(8), config=EngineConfig()).log for _ in range(2))
    feed = RunFeed(log)
    assert feed.start_step == feed.opening_step == busiest_step(log) != 7
    Airport(feed, still_step=7)
    assert feed.start_step == feed.opening_step == 7
    BlockMap(feed)
    assert feed.opening_step == 7
    feed.show(other)
    assert feed.opening_step == busiest_step(other)


def test_all_panels_of_a_run_share_one_feed(run, tmp_path):
    assert Airport(run).feed is BlockMap(run.log).feed is RunFeed.of(run.engine)
    path = save(run.log, tmp_path / "run.tvt")
    assert Airport(path).feed is not Airport(run).feed
    feed = RunFeed(run.log)
    assert Airport(feed).feed is feed


def test_the_page_gets_the_stored_run(run):
    log = from_bytes(RunFeed(run.log).run_data)
    assert np.array_equal(log.as_array(), run.log.as_array())
    assert log.requests == run.log.requests
    assert log.config == run.log.config


@pytest.mark.parametrize("allocator", ["paged", "contiguous-max", "contiguous-best-fit"])
def test_what_is_empty_in_held_memory_is_what_the_metrics_say(allocator):
    """Metrics look in the middle of a step; where none is freed they agree with the end of it."""
    config = EngineConfig(
        max_num_seqs=6, num_blocks=300, max_num_batched_tokens=2048, allocator=allocator,
        enable_prefix_caching=allocator == "paged",
    )  # fmt: skip
    log = simulate(chat(10, Poisson(30.0), think_s=0.1, seed=3), config=config).log
    columns = kv_columns(log, Table.of(log))
    leaving = {Kind.BLOCK_FREE, Kind.BLOCK_UNSHARE, Kind.REGION_FREE, Kind.FINISH, Kind.PREEMPT}
    history, compared = History(log), 0
    for step in range(log.num_steps):
        if leaving & {e.kind for e in log.events(step)}:
            continue
        holdings = holdings_of(Moment(log, step, history.at(step)))
        assert holdings.held == columns.reserved[step]
        assert holdings.wasted == columns.internal[step]
        compared += 1
    assert compared > 20


def test_the_latencies_are_those_of_the_metrics(run):
    moment = Moment.of(run.log, run.log.num_steps - 1)
    table, metrics = _Steps(moment), run.metrics()
    for pair, distribution in ((table.ttft(), metrics.ttft), (table.tpot(), metrics.tpot)):
        assert pair[0][-1] / 1e6 == pytest.approx(distribution.p50)
        assert pair[1][-1] / 1e6 == pytest.approx(distribution.p90)


def test_one_bar_of_controls_a_page(run):
    panels = [Airport(run), SlotTimeline(run), BlockMap(run)]
    page = show(*panels, columns=2)
    assert [panel.controls for panel in panels] == [False, False, True]
    data, _ = page._repr_mimebundle_()
    assert pixels(base64.b64decode(data["image/png"])).shape[1] == 2 * 1520 + 16


def test_an_exported_page_asks_for_nothing(run, tmp_path):
    path = save_html(tmp_path / "page.html", *[panel(run) for panel in PANELS], title="A <run>")
    text = Path(path).read_text()
    assert "A &lt;run&gt;" in text
    assert "http" not in text.replace("http://www.w3.org/2000/svg", "")
    assert "import " not in [line[:7] for line in text.splitlines()]
    assert len(text) < 400_000


def test_what_is_wrong_is_refused_by_name(run):
    with pytest.raises(ConfigError, match="no option 'colour'"):
        Airport(run, colour="red")
    with pytest.raises(ConfigError, match="size is 'huge'"):
        Airport(run, size="huge")
    with pytest.raises(LogError, match="A dict cannot be shown"):
        Airport({})
    with pytest.raises(ConfigError, match="nothing to show"):
        show()
    with pytest.raises(ConfigError, match="nothing to save"):
        save_html("page.html")


def test_a_log_that_has_grown_is_shown_anew():
    toy = ToyEngine(3).run(10)
    first = Airport(toy.log)
    toy.run(5)
    second = Airport(toy.log)
    assert second.feed is not first.feed
    assert from_bytes(second.feed.run_data).num_steps == 15
