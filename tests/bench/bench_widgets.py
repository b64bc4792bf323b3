"""The visualizer, measured: bytes an event, frames a second, time to the first picture.

    python tests/bench/bench_widgets.py

Frames are counted in headless Chromium, which draws in software: a real screen is no slower.
"""

import shutil
import tempfile
import time
from pathlib import Path

from verdict import met

from tinyvllm_lab.engine.config import EngineConfig
from tinyvllm_lab.engine.engine import Engine
from tinyvllm_lab.engine.runner import EngineRunner
from tinyvllm_lab.simulate import CostModel
from tinyvllm_lab.simulate.arrivals import Poisson
from tinyvllm_lab.simulate.executor import SimulatedExecutor, VirtualClock
from tinyvllm_lab.simulate.feed import WorkloadFeed
from tinyvllm_lab.simulate.lengths import Uniform
from tinyvllm_lab.simulate.presets import airport, chat, independent
from tinyvllm_lab.simulate.run import simulate
from tinyvllm_lab.widgets import BlockMap, RunFeed, SlotTimeline, save_html
from tinyvllm_lab.widgets.picture import encode_run

PLAY_S = 4

COUNT_FRAMES = """async seconds => {
  const panel = window.__tinyvllm.block_map;
  const before = panel.draws, began = performance.now();
  let frames = 0, longest = 0, last = began;
  await new Promise(done => requestAnimationFrame(function frame(now) {
    frames += 1; longest = Math.max(longest, now - last); last = now;
    if (now - began < 1000 * seconds) requestAnimationFrame(frame); else done();
  }));
  const took = (performance.now() - began) / 1000;
  return [(panel.draws - before) / took, frames / took, longest, panel.step];
}"""
SEEK = "{const p = window.__tinyvllm.block_map; p.seek(Math.floor(0.3 * p.lastStep)); }"
SCRUB = """async () => {
  const panel = window.__tinyvllm.block_map, times = [];
  for (let i = 0; i < 60; i++) {
    const step = Math.floor(Math.random() * panel.lastStep), began = performance.now();
    panel.seek(step);
    await new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)));
    times.push(performance.now() - began);
  }
  times.sort((x, y) => x - y);
  return [times[30], times[59], panel.lastStep];
}"""


def stored_bytes() -> None:
    log = simulate(chat(500)).log
    began = time.perf_counter()
    data, _ = encode_run(log, max_events=10**9)
    took = time.perf_counter() - began
    print(
        f"stored: {len(data):,} bytes, {log.num_events:,} events, {log.num_steps:,} steps: "
        f"{len(data) / log.num_events:.2f} bytes an event ({took:.2f} s to encode); at most 2.5: "
        f"{met(len(data) <= 2.5 * log.num_events)}"
    )


def live_bytes() -> None:
    config = EngineConfig(max_num_seqs=32, num_blocks=1024, max_model_len=4096)
    executor = SimulatedExecutor(CostModel("A10G", "llama-3.2-1b"))
    engine = Engine(config, executor, clock=VirtualClock())
    runner = EngineRunner(engine, WorkloadFeed(airport(4000, Poisson(20.0))), pace=30)
    feed = RunFeed(runner)
    began, cpu = time.perf_counter(), time.process_time()
    runner.start()
    time.sleep(PLAY_S)
    runner.pause()
    wall, busy = time.perf_counter() - began, time.process_time() - cpu
    limit = 64 * feed.messages_sent + 16 * feed.events_sent
    print(
        f"live: {feed.messages_sent / wall:.1f} messages/s, {feed.bytes_sent:,} bytes for "
        f"{feed.events_sent:,} events: {feed.bytes_sent / feed.events_sent:.1f} an event with all "
        f"names, {feed.bytes_sent / limit:.0%} of 64 a flush and 16 an event: "
        f"{met(feed.bytes_sent <= limit)}; kernel {busy / wall:.1%} of a core, engine included"
    )
    feed.close()
    runner.stop()


def main_thread_s(session) -> float:
    """Seconds that the page's main thread has computed, whatever else the machine does."""
    metrics = session.send("Performance.getMetrics")["metrics"]
    return next(metric["value"] for metric in metrics if metric["name"] == "TaskDuration")


def frames(num_blocks: int, seats: int, prompt: int, least: int, page) -> None:
    config = EngineConfig(
        max_num_seqs=seats, num_blocks=num_blocks, max_model_len=32768, max_num_batched_tokens=8192
    )
    lengths = Uniform(prompt // 2, prompt)
    load = independent(4 * seats, Poisson(500.0), lengths, Uniform(100, 300))
    log = simulate(load, hardware="H100 SXM", config=config).log
    panels = [SlotTimeline(log), BlockMap(log)]
    with tempfile.TemporaryDirectory() as folder:
        path = save_html(Path(folder) / "run.html", *panels)
        began = time.perf_counter()
        page.goto(path.as_uri())
        page.wait_for_function("window.__tinyvllm?.block_map?.draws > 0")
        first = time.perf_counter() - began
        page.evaluate(SEEK)
        page.get_by_label("Speed").last.select_option("60")
        page.get_by_role("button", name="Play").last.click()
        session = page.context.new_cdp_session(page)
        session.send("Performance.enable", {"timeDomain": "threadTicks"})
        busy = main_thread_s(session)
        drawn, seen, longest, _ = page.evaluate(COUNT_FRAMES, PLAY_S)
        busy = 1000 * (main_thread_s(session) - busy) / (drawn * PLAY_S)
        middle, most, last = page.evaluate(SCRUB)
    print(
        f"{num_blocks:>6} blocks, {seats} seats, {last + 1:,} steps, {log.num_events:,} events: "
        f"{drawn:.0f} pictures/s at 60 steps/s, at least {least}: {met(drawn >= least)}; page "
        f"{seen:.0f} frames/s (longest {longest:.0f} ms), {busy:.1f} ms of CPU a picture; scrub "
        f"{middle:.0f} ms (longest {most:.0f}); first picture {first:.2f} s"
    )


def main() -> None:
    from playwright.sync_api import sync_playwright

    stored_bytes()
    live_bytes()
    with sync_playwright() as playwright:
        program = shutil.which("chromium") or shutil.which("google-chrome")
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1200, "height": 1000})
        for run in ((256, 8, 400, 55), (4096, 64, 900, 55), (65536, 256, 4000, 30)):
            frames(*run, page)
        browser.close()


if __name__ == "__main__":
    main()
