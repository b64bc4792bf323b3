"""What a check found: plain data with a sentence, ready for a page, a panel or JSON."""

from dataclasses import asdict, dataclass
from typing import Any

Index = tuple[int, int, int]


@dataclass(frozen=True)
class Place:
    """Which thread did something, and on which line.

    Attributes:
        block: index of the block in the grid (x, y, z).
        thread: index of the thread in its block (x, y, z).
        file: name of the source file.
        line: line number, from 1; 0 if it is not known.
        text: the line itself.
        called_from: "file:line" of the calls that were inlined, innermost first.
    """

    block: Index
    thread: Index
    file: str
    line: int
    text: str
    called_from: tuple[str, ...] = ()

    def __str__(self) -> str:
        calls = "".join(f", called from {site}" for site in self.called_from)
        where = f"at {self.file}:{self.line}" if self.line else "on a line that is not known"
        return f"thread {self.thread} of block {self.block} {where}{calls}"


@dataclass(frozen=True)
class Finding:
    """One bug in a kernel.

    Attributes:
        kind: a word such as "out_of_bounds", "race" (table in `cpu/reports.py`).
        kernel: the kernel's name.
        message: the whole story in one paragraph.
        place: where it happened (for a race, the later access).
        other: the second thread that takes part, if there is one.
        array: the parameter or `__shared__` array; "" if none.
        offset: bytes from its start (negative: before it), None if no array.
        count: how often this pair of lines was seen.
    """

    kind: str
    kernel: str
    message: str
    place: Place
    other: Place | None = None
    array: str = ""
    offset: int | None = None
    count: int = 1

    @property
    def line(self) -> int:
        """The line number of `place`."""
        return self.place.line

    def to_json(self) -> dict[str, Any]:
        """A dict of plain values."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "Finding":
        """The inverse of `to_json`, after JSON turned tuples into lists."""
        places = {name: _place(data[name]) for name in ("place", "other") if data[name]}
        return cls(**{**data, **places})

    def __str__(self) -> str:
        return self.message


def _place(data: dict[str, Any]) -> Place:
    tuples = {name: tuple(data[name]) for name in ("block", "thread", "called_from")}
    return Place(**{**data, **tuples})
