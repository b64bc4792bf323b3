"""`EngineRunner`: the one thread that steps an engine, for notebooks, widgets and servers.

Widget callbacks and HTTP handlers run on other threads, and may run while a cell is busy. They only
write into the engine's inbox or into the flags here; all work on tensors happens on this thread.
"""

from __future__ import annotations

import asyncio
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from typing import Any, Literal

from tinyvllm_lab.engine.clock import WallClock
from tinyvllm_lab.engine.engine import Engine, StepOutput
from tinyvllm_lab.engine.events import Reason
from tinyvllm_lab.engine.feed import Feed
from tinyvllm_lab.engine.sampling_params import SamplingParams
from tinyvllm_lab.engine.streams import OutputStream, TokenOutput, finish_word
from tinyvllm_lab.errors import EngineError, StepFailed

State = Literal["new", "running", "paused", "failed", "stopped"]
Listener = Callable[[StepOutput], None]

_POLL_S = 0.02


class EngineRunner:
    """Owns an engine's loop on a thread.

    Args:
        engine: the engine; from `start()` or `step()` on, only this thread steps it.
        feed: sends requests over time; None: only `add()` does.
        pace: most steps a second, for watching; None: as fast as it goes.
        listeners: called on the engine's thread after every step. An exception in one is kept as
            the runner's error.

    Attributes:
        state: "new", "running", "paused", "stopped", or "failed": the scheduler or a listener
            raised, and `start()` tries again. A failing executor ends its batch, not the loop.
        error: the last exception, or the last knob change that came too late; or None.
        traceback: its traceback as text.
    """

    def __init__(
        self,
        engine: Engine,
        feed: Feed | None = None,
        *,
        pace: float | None = None,
        listeners: Sequence[Listener] = (),
    ) -> None:
        self.engine = engine
        self.pace = pace
        self.listeners = list(listeners)
        self.state: State = "new"
        self.error: BaseException | None = None
        self.traceback = ""
        self._feed = feed
        self._streams: dict[int, OutputStream] = {}
        self._changed = threading.Condition()
        self._single_steps = 0
        self._idle = False
        self._thread: threading.Thread | None = None

    # ---------------------------------------------------------------- requests

    def add(
        self,
        prompt: str | Sequence[int],
        sampling_params: SamplingParams | None = None,
        **details: Any,
    ) -> OutputStream:
        """Send a request; arguments as in `Engine.add_request`. Returns its stream of tokens.

        Raises:
            RequestRefused: it could never run.
            EngineError: the runner was stopped.
        """
        with self._changed:
            self._refuse_if_stopped()
            request = self.engine.add_request(prompt, sampling_params, **details)
            stream = OutputStream(request)
            stream.others = [OutputStream(child) for child in request.children]
            self._streams.update((id(s.request), s) for s in (stream, *stream.others))
            self._wake()
        return stream

    def abort(self, request_id: str, reason: Reason = Reason.ABORT) -> None:
        """End a request at the top of the next step."""
        with self._changed:
            self.engine.abort(request_id, reason)
            self._wake()

    def set_knob(self, name: str, value: Any) -> None:
        """Change a knob at the top of the next step.

        Raises:
            KnobRefused, ConfigError: it cannot change while running, or not to this value.
        """
        with self._changed:
            self.engine.set_knob(name, value)
            self._wake()

    # ----------------------------------------------------------------- control

    def start(self) -> EngineRunner:
        """Run, or go on after a pause or an error."""
        with self._changed:
            self._refuse_if_stopped()
            self.state = "running"
            self._ensure_thread()
            self._wake()
        return self

    def pause(self) -> None:
        """Stop after the current step; `start()` goes on."""
        with self._changed:
            if self.state == "running":
                self.state = "paused"
            self._wake()

    def step(self, count: int = 1) -> None:
        """Do `count` steps, then pause."""
        with self._changed:
            self._refuse_if_stopped()
            self.state = "paused"
            self._single_steps += count
            self._ensure_thread()
            self._wake()

    def stop(self, timeout: float = 10.0) -> None:
        """End the thread, all requests and the engine; frees the KV memory. Safe to call twice.

        Raises:
            EngineError: the step that runs now did not end in time.
        """
        with self._changed:
            self.state = "stopped"
            self._changed.notify_all()
        thread = self._thread
        if thread is None:
            self._close()
        elif thread is not threading.current_thread():
            thread.join(timeout)
            if thread.is_alive():
                raise EngineError(
                    f"The engine's thread is still busy after {timeout} s.",
                    fix="Wait for the step to end, then call stop() again.",
                )

    def join(self, timeout: float | None = None) -> bool:
        """Wait until nothing is left to do, or the runner pauses, fails or stops.

        Returns:
            False if `timeout` seconds passed before.
        """
        with self._changed:
            return self._changed.wait_for(self._at_rest, timeout)

    async def done(self) -> None:
        """`join()` for notebooks and servers: the event loop goes on meanwhile."""
        while not self._at_rest():
            await asyncio.sleep(_POLL_S)

    def __enter__(self) -> EngineRunner:
        return self.start()

    def __exit__(self, *exc: object) -> None:
        self.stop()

    # -------------------------------------------------------------- the thread

    def _ensure_thread(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._loop, name="engine", daemon=True)
            self._thread.start()

    def _refuse_if_stopped(self) -> None:
        if self.state == "stopped":
            raise EngineError("This runner was stopped.", fix="Make a new engine and runner.")

    def _wake(self) -> None:
        self._idle = False
        self._changed.notify_all()

    def _at_rest(self) -> bool:
        if self.state == "running":
            return self._idle
        return not (self.state == "paused" and self._single_steps and not self._idle)

    def _loop(self) -> None:
        try:
            while self._wait_for_go():
                started = time.perf_counter()
                try:
                    self._tick()
                except Exception as error:
                    # A failed step ended its own batch: the other requests need not wait.
                    self._keep_error(error, fails=not isinstance(error, StepFailed))
                self._rest_of_beat(started)
        finally:
            self._close()

    def _wait_for_go(self) -> bool:
        """Sleep until there is a step to do; False when the runner stops."""
        with self._changed:
            while self.state != "stopped":
                wanted = self.state == "running" or self._single_steps > 0
                if wanted and not self._idle:
                    return True
                self._changed.wait()
            return False

    def _tick(self) -> None:
        """One step, or one wait for the next arrival."""
        engine, feed = self.engine, self._feed
        if feed is not None:
            feed.before_step(engine)
        if engine.has_work:
            was_asked_for = self._single_steps > 0
            output = engine.step()
            self._deliver(output)
            for refusal in output.refused:
                self.traceback, self.error = "", refusal
            if feed is not None:
                feed.after_step(engine, output)
            for listener in self.listeners:
                listener(output)
            if was_asked_for:
                self._count_single_step()
        else:
            self._wait_for_arrival(None if feed is None else feed.next_time())

    def _count_single_step(self) -> None:
        """One step less to do; whoever joins is told when it was the last."""
        with self._changed:
            self._single_steps = max(0, self._single_steps - 1)
            self._changed.notify_all()

    def _wait_for_arrival(self, following: float | None) -> None:
        """Nothing to compute: rest, or wait for (a virtual clock: jump to) the next arrival."""
        clock = self.engine.clock
        with self._changed:
            if self.engine.has_work:
                return
            if following is None:
                self._idle = True
                self._single_steps = 0
                self._changed.notify_all()
            elif isinstance(clock, WallClock):
                self._changed.wait(max(0.0, following - clock.now()))
            else:
                clock.advance_to(following)

    def _rest_of_beat(self, started: float) -> None:
        """In slow motion, wait for the next beat; pause, stop and step act at once."""
        with self._changed:
            while self.pace and self.state == "running":
                left = started + 1 / self.pace - time.perf_counter()
                if left <= 0:
                    return
                self._changed.wait(left)

    def _deliver(self, output: StepOutput) -> None:
        # Under the lock: a request that add() has just sent gets its stream before its first token.
        with self._changed:
            for request, token, text in output.tokens:
                if stream := self._streams.get(id(request)):
                    stream.put(TokenOutput(token, text, finish_word(request)))
                if request.is_finished:
                    self._streams.pop(id(request), None)
            self._end_streams()

    def _keep_error(self, error: Exception, fails: bool) -> None:
        with self._changed:
            # Readers look at the error first, without the lock: its traceback must be there then.
            self.traceback = "".join(traceback.format_exception(error))
            self.error = error
            self._single_steps = 0
            if fails and self.state != "stopped":
                self.state = "failed"
            self._end_streams()
            self._changed.notify_all()

    def _end_streams(self) -> None:
        """Nobody waits for ever: requests that ended without a token are told so."""
        for key, stream in list(self._streams.items()):
            request = stream.request
            if request.is_finished:
                del self._streams[key]
                text = request.text_stream.take() if request.text_stream is not None else ""
                stream.put(TokenOutput(-1, text, finish_word(request)))

    def _close(self) -> None:
        self.engine.close()
        self._end_streams()
        with self._changed:
            self._idle = True
            self._changed.notify_all()
