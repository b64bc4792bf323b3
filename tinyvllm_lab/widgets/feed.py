"""`RunFeed`: carries one run to the browser, for all panels of a page.

The engine's thread only sets a flag after a step. A thread of the feed wakes up, takes what is new
and sends one message, at most 30 times a second. Callbacks from the browser only call `start`,
`pause`, `step` and `stop` of the runner, which set flags too.
"""

from __future__ import annotations

import threading
import traceback
import uuid
from typing import TYPE_CHECKING, Any
from weakref import WeakSet, WeakValueDictionary

import anywidget
import traitlets

from tinyvllm_lab.errors import TinyVllmError
from tinyvllm_lab.widgets.display import Displayed
from tinyvllm_lab.widgets.esm import bundle
from tinyvllm_lab.widgets.moment import Moment, busiest_step
from tinyvllm_lab.widgets.picture import PictureStream, encode_run
from tinyvllm_lab.widgets.sources import Source, add_texts, open_source

if TYPE_CHECKING:
    from tinyvllm_lab.engine.runner import EngineRunner

FLUSHES_PER_S = 30
_WATCH_S = 0.25  # how often a resting engine's state is looked at

_feeds: WeakValueDictionary[int, RunFeed] = WeakValueDictionary()


class RunFeed(anywidget.AnyWidget):
    """The model behind all panels of one run.

    Args:
        source: see `sources.open_source`.
        is_growing: more events come soon; see `show`.

    Attributes:
        event_log: the events (`log` is taken: every widget has one).
        runner: the thread that steps the engine now; None: the run is over.
        is_growing: the run is being computed, and is shown as far as it came.
        displays: panels and pages of it that a notebook shows.
        messages_sent, bytes_sent, events_sent: what the page got after the first picture. Bytes
            are those of the message's JSON and of its buffer.
    """

    _esm = bundle("feed")
    feed_id = traitlets.Unicode().tag(sync=True)
    run_data = traitlets.Bytes().tag(sync=True)
    start_step = traitlets.Int(0).tag(sync=True)
    is_live = traitlets.Bool(False).tag(sync=True)
    pace = traitlets.Float(None, allow_none=True).tag(sync=True)
    status = traitlets.Dict().tag(sync=True)
    is_whole = traitlets.Bool(True).tag(sync=True)

    def __init__(self, source: Any, *, is_growing: bool = False) -> None:
        self.source = source if isinstance(source, Source) else open_source(source)
        self.event_log, self.runner = self.source.log, self.source.runner
        self.is_growing = is_growing
        self.displays: WeakSet[Displayed] = WeakSet()
        self._has_page = False
        self._still_steps = self.source.log.num_steps
        self.messages_sent = self.bytes_sent = self.events_sent = 0
        self._sending = threading.Lock()
        self._is_closed = threading.Event()
        self._news = threading.Event()
        self._status = self._read_status()
        self._run_number = 0
        self._moment: tuple[int, int, Moment] | None = None
        self._opening: int | None = None
        add_texts(self.source, self.event_log.first_event)
        data, next_event = encode_run(self.event_log)
        self._stream = PictureStream(self.event_log, next_event)
        super().__init__(
            feed_id=uuid.uuid4().hex,
            run_data=data,
            start_step=self.opening_step,
            is_live=self._can_go_on(),
            pace=getattr(self.runner, "pace", None),
            status=self._status,
            is_whole=not is_growing,
        )
        _feeds[id(self.event_log)] = self
        self.on_msg(self._on_message)
        if self.is_live:
            self._watch_runner()

    @classmethod
    def of(cls, source: Any) -> RunFeed:
        """The feed of a run: the same one for all panels that show it."""
        if isinstance(source, RunFeed):
            return source
        opened = open_source(source)
        feed = _feeds.get(id(opened.log))
        if feed is None or feed.event_log is not opened.log or feed.is_closed or feed.is_stale:
            feed = RunFeed(opened)
        return feed

    @property
    def is_closed(self) -> bool:
        """True after `close()`."""
        return self._is_closed.is_set()

    @property
    def is_stale(self) -> bool:
        """True if the log has grown and nobody sends what is new: somebody stepped the engine."""
        is_fed = self.is_growing or self._can_go_on()
        return not is_fed and self._stream.next_event != self.event_log.num_events

    @property
    def opening_step(self) -> int:
        """The step that a page shows first: the one asked for, or else the busiest."""
        return busiest_step(self.event_log) if self._opening is None else self._opening

    def open_at(self, step: int) -> None:
        """Show this step first; a run that is live shows its newest one all the same."""
        self._opening = self.start_step = step

    def show(self, source: Any, *, is_growing: bool = False) -> None:
        """Show another run in the same panels; the engine of the one before stops.

        Args:
            source: see `sources.open_source`.
            is_growing: the caller goes on with the run: `flush()` shows what is new, `settle()`
                says that it is whole.

        Raises:
            LogError: it is no run.
        """
        opened = source if isinstance(source, Source) else open_source(source)
        with self._sending:
            old, self.source = self.source, opened
            self.event_log, self.runner = opened.log, opened.runner
            self._moment = self._opening = None
            self.is_growing = is_growing
            self._status = self._read_status()
            self._run_number += 1
            add_texts(opened, opened.log.first_event)
            self._send_run()
            self.send({"k": "s", **self._status})
        _feeds[id(opened.log)] = self
        if old.runner is not opened.runner:
            self._let_go(old.runner)
            if self._can_go_on():
                self._watch_runner()

    def settle(self) -> None:
        """Show the end of a growing run: it is whole now."""
        self.flush()
        with self._sending:
            self.is_growing = False
            self._send_whole()

    def tell_error(self, error: Exception) -> None:
        """Show an error in the panels' status line, with its traceback folded."""
        text = f"{type(error).__name__}: {error}"
        folded = "".join(traceback.format_exception(error))
        self.send({"k": "s", **self._status, "error": text, "traceback": folded})

    def moment(self, step: int) -> Moment:
        """What the run shows at a step, for stills; panels that show the same one share it."""
        log = self.event_log
        if self._moment is None or self._moment[:2] != (step, log.num_events):
            self._moment = step, log.num_events, Moment.of(log, step)
        return self._moment[2]

    def refresh_stills(self) -> None:
        """Draw the stored pictures anew if the run has gone on, is at rest, and no page listens."""
        steps = self.event_log.num_steps
        is_idle = self._has_page or self.is_closed or self.is_growing or not self.displays
        if is_idle or steps == self._still_steps:
            return
        if self.runner is not None and not self.runner.join(0):
            return
        self._still_steps = steps
        for display in list(self.displays):
            display.refresh_still()

    def close(self) -> None:
        """Stop the engine, free it, and send nothing more. Safe to call twice."""
        if self.is_closed:
            return
        self._is_closed.set()
        self._news.set()
        self._let_go(self.runner)
        # IPython keeps what a cell has shown, and with it this feed: the engine need not stay.
        self.runner, self.source = None, Source(self.event_log)
        super().close()

    def _can_go_on(self) -> bool:
        return self.runner is not None and self.runner.state != "stopped"

    def _let_go(self, runner: EngineRunner | None) -> None:
        """Stop an engine, without waiting for its last step."""
        if runner is None:
            return
        if self._heard in runner.listeners:
            runner.listeners.remove(self._heard)
        threading.Thread(target=self._stop, args=(runner,), name="engine stop", daemon=True).start()

    # ------------------------------------------------------------------ sending

    def flush(self) -> None:
        """Send what is new; the feed's thread calls it."""
        with self._sending:
            first = self._stream.next_event
            try:
                add_texts(self.source, first)
                message = self._stream.take()
            except IndexError:  # the ring has dropped what the page does not have yet
                self._send_run()
                return
            if message is not None:
                self._count(*message)
                self.send(message[0], [message[1]])
            status = self._read_status()
            if status != self._status:
                self._status = status
                self.send({"k": "s", **status})

    def _count(self, content: dict[str, Any], buffer: bytes) -> None:
        self.messages_sent += 1
        self.events_sent += content["c"]
        self.bytes_sent += len(str(content)) + len(buffer)

    def _send_run(self) -> None:
        data, next_event = encode_run(self.event_log, level=1)
        number = self._stream.number + 1
        self._stream = PictureStream(self.event_log, next_event)
        self._stream.number = number
        message = {
            "k": "run",
            "n": number,
            "run": self._run_number,
            "live": self._can_go_on(),
            "start": self.opening_step,
            "pace": getattr(self.runner, "pace", None),
            "whole": not self.is_growing,
        }
        self.send(message, [data])

    def _send_whole(self) -> None:
        """The page has all of the run if it has all messages up to this one."""
        self.send({"k": "w", "n": self._stream.number, "start": self.opening_step})

    def _watch_runner(self) -> None:
        assert self.runner is not None
        self.runner.listeners.append(self._heard)
        loop = threading.Thread(
            target=self._flush_loop, args=(self.runner,), name="panel feed", daemon=True
        )
        loop.start()

    def _heard(self, _output: Any) -> None:
        self._news.set()

    def _flush_loop(self, runner: EngineRunner) -> None:
        while True:
            self._news.wait(_WATCH_S)
            self._news.clear()
            if self.is_closed or self.runner is not runner:
                return
            self.flush()
            if self._status["state"] == "stopped" and not self._news.is_set():
                self._stop(runner)  # returns when the last step has ended
                self.flush()
                return
            self._is_closed.wait(1 / FLUSHES_PER_S)

    def _read_status(self) -> dict[str, str]:
        runner = self.runner
        if runner is None:
            return {"state": "", "error": "", "traceback": ""}
        error = runner.error
        text = "" if error is None else f"{type(error).__name__}: {error}"
        return {"state": runner.state, "error": text, "traceback": runner.traceback}

    # ---------------------------------------------------------------- commands

    def _on_message(self, _widget: Any, content: dict[str, Any], _buffers: Any) -> None:
        self._has_page = True
        what = content.get("k")
        if what == "ready":
            with self._sending:
                self.send({"k": "n", "n": self._stream.number})
                if not self.is_growing:
                    self._send_whole()
                self.send({"k": "s", **self._status})
        elif what == "again":
            with self._sending:
                self._send_run()
        elif what == "do" and self.runner is not None:
            self._command(content.get("do"), content.get("v"))

    def _command(self, name: str | None, value: Any) -> None:
        runner = self.runner
        assert runner is not None
        try:
            if name == "start":
                runner.start()
            elif name == "pause":
                runner.pause()
            elif name == "step":
                runner.step()
            elif name == "pace":
                runner.pace = value
            elif name == "stop":
                threading.Thread(target=self._stop, args=(runner,), daemon=True).start()
        except TinyVllmError as error:
            self.send({"k": "s", **self._status, "error": str(error)})
        self._news.set()

    def _stop(self, runner: EngineRunner) -> None:
        try:
            runner.stop()
        except TinyVllmError as error:
            if not self.is_closed:
                self.send({"k": "s", **self._status, "error": str(error)})
