"""The columns of a stored log; their layout is described in `storage`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tinyvllm_lab.engine import varint
from tinyvllm_lab.engine.events import Kind
from tinyvllm_lab.engine.log import WIDTH

_RAW, _DELTA, _BY_KEY = varint.RAW, varint.DELTA, varint.DELTA_BY_KEY
_DEFAULT_CODES = (_DELTA, _RAW, _RAW)
# Chosen by measurement: zlib finds the batch's row pattern best when request numbers stay raw.
_CODES = {
    Kind.STEP: (_RAW, _DELTA, _DELTA),
    Kind.SCHEDULED: (_RAW, _RAW, _RAW),
    Kind.TOKEN: (_RAW, _RAW, _BY_KEY),
}

Rows = NDArray[np.int64]


def write_columns(rows: Rows) -> Iterator[tuple[dict[str, Any], bytes]]:
    """Description and bytes of each column."""
    kinds = rows[:, 0]
    about = {"kind": None, "column": 0, "count": len(rows), "code": _RAW}
    yield about, varint.encode(kinds)
    for kind in np.unique(kinds).tolist():
        events = rows[kinds == kind, 1:]  # [events of this kind, 3]
        for column, code in enumerate(_CODES.get(kind, _DEFAULT_CODES)):
            about = {"kind": kind, "column": column, "count": len(events), "code": code}
            values = varint.predict(events[:, column], code, events[:, 0])
            yield about, varint.encode(values)


def read_columns(columns: list[dict[str, Any]], data: bytes) -> Rows:
    """The rows, int64 `[events, 4]`.

    Raises:
        KeyError, TypeError, ValueError, IndexError: the description and the data disagree.
    """
    start = 0
    decoded = []
    for about in columns:
        stop = start + about["bytes"]
        values = varint.decode(data[start:stop])
        if about["bytes"] < 0 or stop > len(data) or len(values) != about["count"]:
            raise ValueError(f"column {about['column']} of kind {about['kind']} is incomplete")
        decoded.append(values)
        start = stop
    if start != len(data):
        raise ValueError(f"{len(data) - start} bytes belong to no column")
    return _join(columns, decoded)


def _join(columns: list[dict[str, Any]], decoded: list[varint.Column]) -> Rows:
    """Put the columns of each kind into the rows of that kind."""
    kinds, *values = decoded
    rows = np.empty((len(kinds), WIDTH), np.int64)
    rows[:, 0] = kinds
    described = [about["kind"] for about in columns[1 :: WIDTH - 1]]
    if sorted(described) != np.unique(kinds).tolist():
        raise ValueError("the kinds of the events and the columns differ")
    for at in range(0, len(values), WIDTH - 1):
        about, events = columns[at + 1 : at + WIDTH], values[at : at + WIDTH - 1]
        chosen = np.flatnonzero(kinds == about[0]["kind"])
        first = varint.restore(events[0], about[0]["code"], events[0])
        for column, part in zip(about, events, strict=True):
            rows[chosen, 1 + column["column"]] = varint.restore(part, column["code"], first)
    return rows
