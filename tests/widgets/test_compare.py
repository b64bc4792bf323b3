"""`compare`: two runs side by side, at the same moment of the engine's clock."""

import io
import json
import shutil
import subprocess

import pytest
from PIL import Image

from tinyvllm_lab.engine.config import EngineConfig
from tinyvllm_lab.engine.log import EventLog
from tinyvllm_lab.engine.storage import save
from tinyvllm_lab.errors import ConfigError, LogError
from tinyvllm_lab.simulate.arrivals import Poisson
from tinyvllm_lab.simulate.presets import chat
from tinyvllm_lab.simulate.run import simulate
from tinyvllm_lab.widgets import BlockMap, compare, save_html
from tinyvllm_lab.widgets.comparison import clock_at, step_at
from tinyvllm_lab.widgets.esm import STATIC


def run_with(seats: int) -> EventLog:
    config = EngineConfig(max_num_seqs=seats, num_blocks=120, max_num_batched_tokens=2048)
    return simulate(chat(10, Poisson(30.0), think_s=0.1, seed=3), config=config).log


@pytest.fixture(scope="module")
def logs():
    return run_with(1), run_with(8)


def test_one_set_of_controls_and_it_is_the_longer_runs(logs):
    slow, fast = compare(*logs).panels
    assert (slow.title, fast.title) == ("max_num_seqs=1", "max_num_seqs=8")
    assert (slow.controls, fast.controls) == (True, False)
    assert (slow.linked_feed, fast.linked_feed) == (fast.feed_id, "")
    assert (slow.name, fast.name) == ("slot_timeline_a", "slot_timeline_b")
    fast, slow = compare(logs[1], logs[0]).panels
    assert slow.controls
    assert not fast.controls


def test_the_stills_show_the_same_moment(logs):
    slow, fast = compare(*logs, BlockMap, titles=("one seat", "eight seats")).panels
    assert (slow.title, fast.title) == ("one seat", "eight seats")
    moment = clock_at(logs[0], slow.still_step)
    assert clock_at(logs[1], fast.still_step) <= moment
    last = logs[1].num_steps - 1
    assert fast.still_step == last or clock_at(logs[1], fast.still_step + 1) > moment
    assert Image.open(io.BytesIO(compare(*logs).still())).width == 2 * 1520 + 16
    slow, fast = compare(*logs, still_step=0).panels
    assert (slow.still_step, fast.still_step) == (0, 0)


@pytest.mark.needs("node")
def test_the_browser_finds_the_same_steps(logs, tmp_path):
    for name, log in zip("ab", logs, strict=True):
        save(log, tmp_path / f"{name}.tvt")
    script = (
        f'import {{ clockAt, stepAt }} from "{(STATIC / "link.js").as_uri()}";'
        f'import {{ Run }} from "{(STATIC / "replayer.js").as_uri()}";'
        f'import {{ decodeRun }} from "{(STATIC / "trace.js").as_uri()}";'
        "import fs from 'node:fs';"
        "const open = async (name) => { const file = fs.readFileSync(name);"
        " const run = await decodeRun(new DataView(file.buffer, file.byteOffset, file.length));"
        " return new Run(run.header, run.rows); };"
        "const a = await open('a.tvt'); const b = await open('b.tvt'); const found = [];"
        "for (let step = 0; step <= a.lastStep; step++) found.push(stepAt(b, clockAt(a, step)));"
        "console.log(JSON.stringify(found));"
    )
    command = [shutil.which("node"), "--input-type=module", "-e", script]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    steps = range(logs[0].num_steps)
    assert json.loads(done.stdout) == [step_at(logs[1], clock_at(logs[0], s)) for s in steps]


def test_the_pair_goes_into_a_page_and_an_empty_run_is_no_error(logs, tmp_path):
    page = compare(*logs)
    text = save_html(tmp_path / "pair.html", *page.panels).read_text()
    assert f'"linked_feed": "{page.panels[1].feed_id}"' in text
    assert compare(EventLog(), logs[0]).panels[1].controls
    assert [p.title for p in compare(EventLog(), EventLog()).panels] == ["Run A", "Run B"]


def test_what_is_wrong_is_refused(logs):
    with pytest.raises(ConfigError, match="same run"):
        compare(logs[0], logs[0])
    with pytest.raises(ConfigError, match="no option"):
        compare(*logs, colour="red")
    with pytest.raises(LogError):
        compare(logs[0], {})
