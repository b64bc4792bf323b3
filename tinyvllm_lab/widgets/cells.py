"""Which panels belong to which notebook cell, so that running a cell again clears up after it.

Jupyter never collects old widgets, and an engine that nobody watches goes on computing. When a cell
that showed panels runs again, its old panels close at its first new panel; when it is done, so do
the feeds that it had made and has not used again, and their engines stop.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import Any, Protocol
from weakref import WeakKeyDictionary


class Closable(Protocol):
    """A panel."""

    def close(self) -> None:
        """Take it off the page."""


class Working(Closable, Protocol):
    """What goes on working after its cell: a feed with its engine, an explorer with its sweep."""

    def refresh_stills(self) -> None:
        """Draw the stored pictures anew if they are old and nobody watches."""


@dataclass(slots=True)
class _Cell:
    """What one cell has shown in its last execution."""

    execution: str
    panels: list[Closable] = field(default_factory=list)
    feeds: list[Working] = field(default_factory=list)
    old_feeds: list[Working] = field(default_factory=list)


_cells: dict[str, _Cell] = {}
_homes: WeakKeyDictionary[Working, str] = WeakKeyDictionary()  # the cell that made each feed
_watched: set[int] = set()


def register(panel: Closable, feed: Working) -> None:
    """Note that the running cell made a panel; closes what its last execution had shown."""
    key, execution = _running_cell()
    if not key:
        return
    cell = _cells.get(key)
    if cell is None or cell.execution != execution:
        if cell is not None:
            for old in cell.panels:
                old.close()
        old_feeds = [*cell.feeds, *cell.old_feeds] if cell is not None else []
        cell = _cells[key] = _Cell(execution, old_feeds=old_feeds)
    cell.panels.append(panel)
    cell.old_feeds = [old for old in cell.old_feeds if old is not feed]
    if _homes.setdefault(feed, key) == key and feed not in cell.feeds:
        cell.feeds.append(feed)


def after_cell(*_: Any) -> None:
    """Close the feeds that the cell's last execution had made and this one did not use.

    The others get new pictures if their runs are at rest now; see `display`.
    """
    for cell in _cells.values():
        forgotten, cell.old_feeds = cell.old_feeds, []
        for feed in forgotten:
            feed.close()
    for feed in list(_homes):
        feed.refresh_stills()


def _running_cell() -> tuple[str, str]:
    """Id of the notebook cell that runs, and of this execution; empty outside a notebook."""
    try:
        from IPython.core.getipython import get_ipython
    except ImportError:
        return "", ""
    shell = get_ipython()
    kernel = getattr(shell, "kernel", None)
    if shell is None or kernel is None:
        return "", ""
    if id(shell) not in _watched:
        _watched.add(id(shell))
        shell.events.register("post_run_cell", after_cell)
    parent: dict[str, Any] = {}
    with contextlib.suppress(Exception):  # outside an execution there is no parent
        parent = kernel.get_parent("shell")
    # A front end that gives cells no id: the same code is the same cell.
    key = parent.get("metadata", {}).get("cellId") or parent.get("content", {}).get("code", "")
    return str(key), str(parent.get("header", {}).get("msg_id", ""))
