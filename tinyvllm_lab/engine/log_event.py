"""`Event`: one event of the log as a person reads it."""

from __future__ import annotations

from typing import NamedTuple

from tinyvllm_lab.engine.events import VOCABULARY, Kind, Phase, Reason

KIND_OF_VALUE: dict[int, Kind] = {int(kind): kind for kind in Kind}


class Event(NamedTuple):
    """One event, for people: the log itself holds only integers."""

    number: int
    step: int
    kind: Kind | int
    """A plain int if this version does not know the kind."""
    a: int
    b: int
    c: int

    @property
    def values(self) -> dict[str, int]:
        """The integers by the names that the vocabulary gives them."""
        spec = VOCABULARY.get(self.kind) if isinstance(self.kind, Kind) else None
        return dict(zip(spec.fields if spec else "abc", (self.a, self.b, self.c), strict=True))

    def __str__(self) -> str:
        name = self.kind.name if isinstance(self.kind, Kind) else f"kind {self.kind}"
        return " ".join([name, *(f"{key}={_word(key, v)}" for key, v in self.values.items())])


def _word(field: str, value: int) -> str:
    table = {"phase": Phase, "reason": Reason}.get(field)
    return table(value).name.lower() if table and value in list(table) else str(value)
