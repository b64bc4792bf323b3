"""`History`: the state at any step of a log, quickly, in both directions.

It keeps a snapshot every few thousand events and one state that moves: forwards by the log's
events, backwards by that state's journal, and by a jump to a snapshot when that is nearer.
"""

from __future__ import annotations

from tinyvllm_lab.engine.log import EventLog
from tinyvllm_lab.engine.state import EngineState


class History:
    """Walks a log, also one that still grows.

    Args:
        log: the log; it is only read.
        every: events between two snapshots. A jump replays at most so many.

    Attributes:
        state: the state that moves. Copy it to keep it.
    """

    def __init__(self, log: EventLog, every: int = 8192) -> None:
        self.log = log
        self.every = every
        self._snapshots: list[EngineState] = []
        self.state = log.oldest_state().copy(journal=True)

    def at(self, step: int) -> EngineState:
        """The state after all events of a step; it moves with the next call.

        `log.first_step - 1` is the state before the oldest step.

        Raises:
            IndexError: the log does not hold the step.
        """
        before = step == self.log.first_step - 1
        return self.seek(self.log.first_event if before else self.log.step_range(step).stop)

    def seek(self, position: int) -> EngineState:
        """The state before the event of this number; it moves with the next call.

        Raises:
            IndexError: the log does not hold the events up to there.
        """
        self.log.rows(position, position)  # is it there at all?
        if self.state.undoable_to <= position <= self.state.position:
            while self.state.position > position:
                self.state.undo()
            return self.state
        start = self._start(position)
        if not start.position <= self.state.position <= position:
            self.state = start.copy(journal=True)
        self._forward(position)
        return self.state

    def _start(self, position: int) -> EngineState:
        """The last snapshot before a position."""
        first = self.log.first_event
        self._snapshots = [s for s in self._snapshots if s.position >= first]
        usable = [s for s in self._snapshots if s.position <= position]
        return usable[-1] if usable else self.log.oldest_state()

    def _forward(self, position: int) -> None:
        state = self.state
        while state.position < position:
            boundary = (state.position // self.every + 1) * self.every
            if boundary <= position:  # the journal of this stretch would be thrown away
                state.forget(journal=False)
            state.apply_all(self.log.rows(state.position, min(boundary, position)).tolist())
            if state.position == boundary:
                state.forget(journal=True)
                if not self._snapshots or self._snapshots[-1].position < boundary:
                    self._snapshots.append(state.copy())
