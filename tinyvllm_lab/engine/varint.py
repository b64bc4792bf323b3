"""Columns of integers as bytes: prediction, zigzag, LEB128.

A column is first turned into differences to a prediction, then each number into 1 to 10 bytes, few
for numbers near 0. All of it is numpy, no loop over numbers.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

RAW, DELTA, DELTA_BY_KEY = 0, 1, 2
"""How a column is predicted: not at all, by the number before it, by the last number with the same
key. Differences wrap around at 64 bits."""

Column = NDArray[np.int64]
_PAYLOAD, _SHIFT, _MAX_BYTES = 0x7F, 7, 10


def predict(values: Column, code: int, keys: Column) -> Column:
    """Differences of a column to its prediction, int64 `[n]`."""
    if code == RAW:
        return values
    if code == DELTA:
        return np.diff(values, prepend=0)
    order, starts = _groups(keys)
    ordered = values[order]
    differences = np.diff(ordered, prepend=0)
    differences[starts] = ordered[starts]
    return _unsort(differences, order)


def restore(differences: Column, code: int, keys: Column) -> Column:
    """The column that `predict` was given, int64 `[n]`."""
    if code == RAW:
        return differences
    if code == DELTA:
        return np.cumsum(differences)
    order, starts = _groups(keys)
    sums = np.cumsum(differences[order])
    before = sums[starts] - differences[order][starts]  # what the groups before add up to
    sizes = np.diff(np.append(starts, len(keys)))
    return _unsort(sums - np.repeat(before, sizes), order)


def _groups(keys: Column) -> tuple[Column, Column]:
    """A stable order by key, and where each key starts in it."""
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    is_start = np.ones(len(keys), bool)
    is_start[1:] = ordered[1:] != ordered[:-1]
    return order, np.flatnonzero(is_start)


def _unsort(ordered: Column, order: Column) -> Column:
    values = np.empty_like(ordered)
    values[order] = ordered
    return values


def encode(values: Column) -> bytes:
    """Zigzag (0, -1, 1, -2, … become 0, 1, 2, 3, …), then LEB128: 7 bits a byte, low bits first;
    the top bit says that another byte follows.
    """
    numbers = ((values << 1) ^ (values >> 63)).view(np.uint64)  # [n]
    largest = int(numbers.max(initial=0))
    if largest <= _PAYLOAD:  # most columns: a byte a number
        return numbers.astype(np.uint8).tobytes()
    sizes = np.ones(len(numbers), np.int64)
    for k in range(1, _MAX_BYTES):
        if largest >> (_SHIFT * k):
            sizes += numbers >= np.uint64(1 << (_SHIFT * k))
    starts = np.cumsum(sizes) - sizes
    out = np.empty(int(sizes.sum()), np.uint8)
    for k in range(int(sizes.max(initial=0))):
        rows = np.flatnonzero(sizes > k)
        part = (numbers[rows] >> np.uint64(_SHIFT * k)) & np.uint64(_PAYLOAD)
        more = np.where(sizes[rows] > k + 1, 0x80, 0)
        out[starts[rows] + k] = part.astype(np.uint8) | more.astype(np.uint8)
    return out.tobytes()


def decode(data: bytes) -> Column:
    """The numbers that `encode` was given, int64 `[n]`.

    Raises:
        ValueError: the last number is cut off, or one has more than 10 bytes.
    """
    raw = np.frombuffer(data, np.uint8)
    if len(raw) == 0:
        return np.empty(0, np.int64)
    ends = np.flatnonzero(raw < 0x80)
    if len(ends) == 0 or ends[-1] != len(raw) - 1:
        raise ValueError("the last number is cut off")
    starts = np.append(0, ends[:-1] + 1)
    sizes = ends - starts + 1
    if sizes.max() > _MAX_BYTES:
        raise ValueError("a number has more than 10 bytes")
    places = np.arange(len(raw)) - np.repeat(starts, sizes)
    parts = (raw & _PAYLOAD).astype(np.uint64) << (places * _SHIFT).astype(np.uint64)
    numbers = np.bitwise_or.reduceat(parts, starts)
    return (numbers >> np.uint64(1)).view(np.int64) ^ -(numbers & np.uint64(1)).view(np.int64)
