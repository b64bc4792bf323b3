"""Drives the panels of a run as a person does, and compares what they showed with the engine.

Whatever a panel showed after an action is noted; `compare` asks the kernel for the state at those
steps, so no number of the page is believed.
"""

import re
from typing import Any

from lab_page import Cell

SHOWN = ("slots", "waiting", "blocks")
SLOWEST = 10  # presses of "-" that make any speed the slowest one
FEW = 10  # steps: a run this short is played to its end


class RunPanels:
    """All panels of runs in one cell.

    Args:
        cell: the cell, after it was run.
        model: id of the widget that it shows.
    """

    def __init__(self, cell: Cell, model: str) -> None:
        self.cell, self.page, self.model = cell, cell.page, model
        self.noted: list[dict[str, Any]] = []
        cell.wait_until("p.draws > 0 && p.lastStep >= 0")

    def drive(self) -> None:
        """Every run that has controls: live while its engine lives, then in replay."""
        roots = self.cell.panel_roots.filter(has=self.page.locator(".tvl-controls"))
        assert roots.count() > 0
        for index in range(roots.count()):
            root = roots.nth(index)
            feed = root.evaluate("e => e.tinyvllm?.feed")
            if feed is None:  # controls of something else
                continue
            self.note(feed)
            if self.cell.panels(feed)[0]["engine"] not in ("", "stopped"):
                self.drive_live(root, feed)
            self.drive_replay(root, feed)

    # --------------------------------------------------------------------- live

    def drive_live(self, root: Any, feed: str) -> None:
        """Run, pause, step, look back, go on and stop an engine."""
        self.ask("keep_busy", feed)
        root.focus()
        self.page.keyboard.press("End")
        if self.cell.panels(feed)[0]["engine"] != "running":
            _press(root, "Play the engine")
        self.cell.wait_until("p.engine === 'running' && p.live", feed)
        _press(root, "Pause the engine")
        self.cell.wait_until("p.engine === 'paused'", feed)
        step = self.ask("step_and_rest", feed)
        self.note(feed, step)
        self.compare_with_engine(feed)
        _press(root, "One step on")
        self.note(feed, step + 1)
        self.compare_with_engine(feed)
        root.focus()
        self.page.keyboard.press("Home")
        self.cell.wait_until("p.step === p.firstStep && !p.live", feed)
        self.note(feed)
        self.page.keyboard.press("End")
        self.cell.wait_until("p.live", feed)
        self.page.keyboard.press("Space")
        self.cell.wait_until(f"p.engine === 'running' && p.step > {step + 3}", feed)
        _press(root, "Stop the engine")
        self.cell.wait_until("p.engine === 'stopped' && !p.live", feed)
        self.cell.wait_until(f"p.lastStep === {self.ask('stopped_at', feed)}", feed)
        self.compare()

    def compare_with_engine(self, feed: str) -> None:
        """The newest step against the resting engine's scheduler and allocator."""
        engine = self.ask("engine_now", feed)
        for shown in self.cell.panels(feed):
            waiting, used = sorted(shown["waiting"]), shown["blocks"]["used"]
            assert {"slots": shown["slots"], "waiting": waiting, "used": used} == engine

    # ------------------------------------------------------------------- replay

    def drive_replay(self, root: Any, feed: str) -> None:
        """Keys, buttons, the scrubber, a jump and play."""
        panel = self.cell.panels(feed)[0]
        first, last = panel["firstStep"], panel["lastStep"]
        if not panel["isFollower"]:  # there, keys move the other run of `compare`
            self.keys(root, feed, first, last)
        self.buttons(root, feed, first, last)
        self.scrub(root, feed, first, last)
        self.jump(root, feed)
        if not panel["isFollower"]:
            self.play(root, feed, first, last)
        self.compare()

    def keys(self, root: Any, feed: str, first: int, last: int) -> None:
        """To both ends, and from there one step."""
        root.focus()
        for key, step in (
            *(("Home", first), ("ArrowRight", min(first + 1, last)), ("ArrowLeft", first)),
            *(("End", last), ("ArrowLeft", max(last - 1, first))),
        ):
            self.page.keyboard.press(key)
            self.note(feed, step)

    def buttons(self, root: Any, feed: str, first: int, last: int) -> None:
        """The same with the mouse."""
        for name, step in (
            *(("First step", first), ("One step on", min(first + 1, last))),
            *(("One step back", first), ("Newest step", last)),
        ):
            _press(root, name)
            self.note(feed, step)

    def scrub(self, root: Any, feed: str, first: int, last: int) -> None:
        """Click on the scrubber, a third from its left."""
        scrub = root.get_by_label("Step", exact=True)
        box = scrub.bounding_box()
        scrub.click(position={"x": box["width"] / 3, "y": box["height"] / 2})
        self.note(feed)
        step = self.cell.panels(feed)[0]["step"]
        assert abs(step - (first + (last - first) / 3)) <= 1 + 0.06 * (last - first)

    def jump(self, root: Any, feed: str) -> None:
        """To the first request that ends."""
        step = self.ask("first_finish", feed)
        if step is not None:
            _press(root, "First step")
            root.get_by_label("Jump to the next event of a kind").select_option("finish")
            self.note(feed, step)

    def play(self, root: Any, feed: str, first: int, last: int) -> None:
        """From the first step on, slowly, and stop it with the key."""
        root.focus()
        for key in ["-"] * SLOWEST + ["Home", "Space"]:
            self.page.keyboard.press(key)
        if last - first >= FEW:
            self.cell.wait_until(f"p.playing && p.step > {first}", feed)
            self.page.keyboard.press("Space")
        self.cell.wait_until("!p.playing", feed)
        self.note(feed)

    # ---------------------------------------------------------------- comparing

    def ask(self, function: str, feed: str, *arguments: Any) -> Any:
        """A function of `kernel_side` about a run."""
        return self.cell.notebook.ask(function, self.model, feed, *arguments)

    def note(self, feed: str, step: int | None = None) -> None:
        """Keep what all panels of the cell show, when those of the run show this step.

        Not of those that follow a running engine: the step that it makes is not over.
        """
        if step is not None:
            self.cell.wait_until(f"p.step === {step}", feed)
        self.noted += [
            panel for panel in self.cell.panels()
            if not (panel["live"] and panel["engine"] == "running")
        ]  # fmt: skip

    def compare(self) -> None:
        """All that was noted against the engine's log; then in words for screen readers too."""
        for feed in {shown["feed"] for shown in self.noted}:
            noted = [shown for shown in self.noted if shown["feed"] == feed]
            steps = sorted({shown["step"] for shown in noted})
            states = dict(zip(steps, self.ask("states", feed, steps), strict=True))
            for shown in noted:
                found = {name: shown[name] for name in SHOWN}
                assert found == states[shown["step"]], f"{shown['name']}, step {shown['step']}"
            self.compare_words(feed)
        self.noted.clear()

    def compare_words(self, feed: str) -> None:
        """The canvas of each panel says the step, and who waits and runs."""
        for index in range(self.cell.panel_roots.count()):
            root = self.cell.panel_roots.nth(index)
            shown = root.evaluate(
                "e => e.tinyvllm && {feed: e.tinyvllm.feed, step: e.tinyvllm.step}"
            )
            if shown is None or shown["feed"] != feed:
                continue
            root.scroll_into_view_if_needed()
            (state,) = self.ask("states", feed, [shown["step"]])
            canvas = root.locator(f'canvas[aria-label^="Step {shown["step"]}: "]')
            words = canvas.get_attribute("aria-label")
            said = re.search(r"([\d,]+) waiting, ([\d,]+) running", words)
            numbers = [int(text.replace(",", "")) for text in said.groups()]
            assert numbers == [len(state["waiting"]), len(state["slots"])], words


def _press(root: Any, name: str) -> None:
    root.get_by_role("button", name=name, exact=True).click()
