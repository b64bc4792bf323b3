"""`Orders`: what the playground was asked for, done one after the other on a thread of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import NamedTuple

from tinyvllm_lab.widgets.playground_settings import PlaygroundSettings


class Order(NamedTuple):
    """One thing that was asked for.

    Attributes:
        name: "open", "run", "pause", "step" or "reset".
        settings: where the knobs stood.
        number: orders are numbered as they come.
    """

    name: str
    settings: PlaygroundSettings
    number: int


class Orders:
    """A queue of orders and the thread that carries them out.

    Args:
        carry_out: does one order.
        tell_error: called with what it raised.
    """

    def __init__(
        self, carry_out: Callable[[Order], None], tell_error: Callable[[Exception], None]
    ) -> None:
        self._carry_out, self._tell_error = carry_out, tell_error
        self._queue: SimpleQueue[Order | None] = SimpleQueue()
        self._settled = threading.Condition()
        self._open = 0
        self._number = 0
        self._newest = 0  # number of the last order for another run
        self._withdrawn = 0  # orders up to this number are no longer wanted
        threading.Thread(target=self._work, name="playground", daemon=True).start()

    def put(self, name: str, settings: PlaygroundSettings) -> None:
        """Ask for something."""
        with self._settled:
            self._open += 1
            self._number += 1
            if name != "pause":
                self._newest = self._number
            self._queue.put(Order(name, settings, self._number))

    def withdraw(self) -> None:
        """Nothing that was asked for so far is wanted any more: another run is loaded, say."""
        with self._settled:
            self._withdrawn = self._number

    def is_withdrawn(self, order: Order) -> bool:
        """True if nothing of it must be shown."""
        return self._withdrawn >= order.number

    def is_overtaken(self, order: Order) -> bool:
        """True if another run was asked for since, or it is withdrawn: it need not be finished."""
        return self._newest > order.number or self.is_withdrawn(order)

    def wait(self, timeout: float | None = 30.0) -> bool:
        """Wait until all orders are carried out; False if that took longer."""
        with self._settled:
            return self._settled.wait_for(lambda: self._open == 0, timeout)

    def end(self) -> None:
        """No more orders: the thread ends."""
        self.withdraw()
        self._queue.put(None)

    def _work(self) -> None:
        while (order := self._queue.get()) is not None:
            try:
                is_reset = order.name == "reset"  # a slider that is dragged: the last value wins
                if not (self.is_overtaken if is_reset else self.is_withdrawn)(order):
                    self._carry_out(order)
            except Exception as error:
                self._tell_error(error)
            finally:
                with self._settled:
                    self._open -= 1
                    self._settled.notify_all()
