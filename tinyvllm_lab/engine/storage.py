"""Stored event logs: JSON lines for people and other languages, columns for size.

Both hold the *full* form: every event, the side tables and, if old steps were dropped, the state
before the first event. `load` tells them apart by their first bytes.

**JSON lines** (`.jsonl`, version 1). Line 1 is the header, an object. Each further line is one
event: `[kind, a, b, c]`, four whole numbers, in order. The header has:

    format        "tinyvllm-lab event log"
    version       1
    num_events    events in the file
    first_event   number of the first event (0 unless old steps were dropped)
    first_step    number of the first step
    config        the fields of `EngineConfig`, or null
    info          object: model, hardware, …
    knob_values   list that KNOB events point into
    requests      request number (as string) -> what is known of it, see `EventLog.add_request`
    texts         token id (as string) -> its text
    state         state before the first event, or null at the start of a run
    vocabulary    kind (as string) -> [name, name of a, name of b, name of c]

**Columns** (`.tvt`, version 1). All fixed-width numbers are little-endian.

    offset  bytes  content
    0       8      magic: 89 54 56 54 0D 0A 1A 0A  ("\\x89TVT\\r\\n\\x1a\\n", as PNG has it)
    8       4      version, unsigned: 1
    12      …      one zlib stream (RFC 1950; in a browser: DecompressionStream("deflate"))

The decompressed stream is:

    0       4      length H of the header, unsigned
    4       H      header: JSON in ASCII, the object of above with one more field, "columns"
    4 + H   …      the columns, one after the other, nothing between them and nothing behind

`columns` is a list of objects in the order of the data. Each is one column: `kind`, `column` (0 for
a, 1 for b, 2 for c), `count` (numbers in it), `bytes` (its length in the stream), and `code` (its
prediction). The first one has `kind` null: the kinds of all events, in order, code 0. Then come a,
b and c of each kind, over the events of that kind in order. To read a column:

1. LEB128: bytes of 7 bits, low bits first; a byte >= 0x80 is followed by another one of the same
   number. A number has 10 bytes at most.
2. Zigzag: u becomes u / 2 if it is even, else -(u + 1) / 2. Call the results d[0], d[1], …
3. Prediction by `code`: 0: v[i] = d[i]. 1: v[i] = v[i - 1] + d[i], with v[-1] = 0. 2: v[i] = d[i] +
   the last v before i of an event of this kind with the same a, or 0 if there is none.

Sums wrap around at 64 bits, but every number that the engine writes fits a double exactly (below
2^53), so plain JavaScript numbers will do; add and multiply, as bit operations stop at 32 bits.
Kinds that a reader does not know are columns like the others: keep or skip them.

Measured on a run of 1,000 chat requests with 174,401 output tokens (469,338 events) and Zipf token
ids: 1.0 bytes an event, 0.4 of them token ids; as JSON lines 14 bytes.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import asdict, fields
from pathlib import Path
from struct import Struct
from typing import Any

import numpy as np

from tinyvllm_lab.engine.config import EngineConfig
from tinyvllm_lab.engine.events import VOCABULARY
from tinyvllm_lab.engine.log import WIDTH, EventLog, Kept
from tinyvllm_lab.engine.state import EngineState
from tinyvllm_lab.engine.storage_columns import Rows, read_columns, write_columns
from tinyvllm_lab.errors import LogError, TinyVllmError

FORMAT = "tinyvllm-lab event log"
VERSION = 1
MAGIC = b"\x89TVT\r\n\x1a\n"

_UINT32 = Struct("<I")
_PREFIX = len(MAGIC) + _UINT32.size
_INT64 = range(-(2**63), 2**63)


def save(log: EventLog, path: str | os.PathLike[str]) -> Path:
    """Store a log's flushed events and side tables; the suffix chooses the format.

    An existing file is replaced only when the new one is complete.

    Args:
        log: the log; it may still grow meanwhile.
        path: ends in `.tvt` or `.jsonl`.

    Raises:
        LogError: the suffix is neither, or a side table holds what JSON cannot.
    """
    path = Path(path)
    if path.suffix not in (".tvt", ".jsonl"):
        raise LogError(f"{path} has an unknown suffix.", "a file name that ends in .tvt or .jsonl")
    data = to_bytes(log) if path.suffix == ".tvt" else "".join(to_lines(log)).encode()
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    try:
        partial.write_bytes(data)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    return path


def load(path: str | os.PathLike[str]) -> EventLog:
    """Read a stored log, in either format.

    Raises:
        LogError: the file is damaged, cut off, of a newer version, or no log at all.
        OSError: the file cannot be read.
    """
    data = Path(path).read_bytes()
    if data[: len(MAGIC)] == MAGIC[: len(data)] and data:
        return from_bytes(data, str(path))
    try:
        return from_lines(data.decode().removesuffix("\n").split("\n"), str(path))
    except UnicodeDecodeError as error:
        raise LogError(f"{path} is no event log: {error}.", "a .tvt or .jsonl file") from error


# JSON lines


def to_lines(log: EventLog) -> Iterator[str]:
    """The log as JSON lines, each with its line break.

    Raises:
        LogError: a side table holds what JSON cannot.
    """
    kept = log.kept()
    yield _dumps(_header(log, kept)) + "\n"
    for kind, a, b, c in kept.rows.tolist():
        yield f"[{kind},{a},{b},{c}]\n"


def from_lines(lines: Iterable[str], name: str = "the log") -> EventLog:
    """The log that `to_lines` was given.

    Raises:
        LogError: naming the line.
    """
    first, *rest = [*lines] or [""]
    header = _read_header(first, name)
    rows = _read_all(rest)
    if rows is None:  # slowly, to find the line
        flat = [_read_row(line, f"{name}, line {n}") for n, line in enumerate(rest, 2)]
        rows = np.array(flat, np.int64).reshape(-1, WIDTH)
    return _rebuild(header, rows, name)


def _read_all(lines: list[str]) -> Rows | None:
    """All rows at once, which is 3 times as fast as line by line; None if one is damaged."""
    try:
        rows = np.array(json.loads(f"[{','.join(lines)}]"))
    except (ValueError, RecursionError):
        return None
    good = rows.dtype == np.int64 and rows.shape == (len(lines), WIDTH)
    return rows if good else None


def _read_row(line: str, where: str) -> list[int]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise LogError(f"{where} is cut off or damaged: {error}.") from error
    if type(row) is not list or len(row) != WIDTH or any(type(v) is not int for v in row):
        raise LogError(f"{where} is {line[:60]!r}.", "an event: [kind, a, b, c]")
    if any(v not in _INT64 for v in row):
        raise LogError(f"{where} holds a number of more than 64 bits: {line[:80]!r}.")
    return row


# Columns


def to_bytes(log: EventLog, level: int = 6) -> bytes:
    """The log as columns, compressed by zlib: level 1 takes less than half the time of 6.

    Raises:
        LogError: a side table holds what JSON cannot.
    """
    kept = log.kept()
    columns = list(write_columns(kept.rows))
    described = [{**about, "bytes": len(data)} for about, data in columns]
    header = _dumps({**_header(log, kept), "columns": described}).encode()
    stream = zlib.compressobj(level)
    parts = [_UINT32.pack(len(header)), header, *(data for _, data in columns)]
    body = [stream.compress(part) for part in parts]
    return b"".join([MAGIC, _UINT32.pack(VERSION), *body, stream.flush()])


def from_bytes(data: bytes, name: str = "the log") -> EventLog:
    """The log that `to_bytes` was given.

    Raises:
        LogError: saying what is damaged.
    """
    if len(data) < _PREFIX or data[: len(MAGIC)] != MAGIC:
        raise LogError(f"{name} does not begin as a stored log does.", "the magic bytes of .tvt")
    _check_version(_UINT32.unpack_from(data, len(MAGIC))[0], name)
    body = _decompress(data[_PREFIX:], name)
    size = _UINT32.unpack_from(body)[0] if len(body) >= _UINT32.size else len(body)
    text = body[_UINT32.size : _UINT32.size + size]
    if len(text) < size:
        raise LogError(f"{name} is damaged: its header of {size} bytes is not all there.")
    header = _read_header(text.decode("ascii", "replace"), name)
    try:
        rows = read_columns(header["columns"], body[_UINT32.size + size :])
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise LogError(f"{name} has damaged columns: {error}.") from error
    return _rebuild(header, rows, name)


def _decompress(data: bytes, name: str) -> bytes:
    stream = zlib.decompressobj()
    try:
        body = stream.decompress(data)
    except zlib.error as error:
        raise LogError(f"{name} is damaged: {error}.") from error
    if not stream.eof:
        raise LogError(f"{name} is cut off: its data ends in the middle.", "the whole file")
    if stream.unused_data:
        raise LogError(f"{name} has {len(stream.unused_data)} bytes too many at its end.")
    return body


# Header and side tables


def _header(log: EventLog, kept: Kept) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "version": VERSION,
        "num_events": len(kept.rows),
        "first_event": kept.first_event,
        "first_step": kept.first_step,
        "config": asdict(log.config) if log.config is not None else None,
        "info": dict(log.info),
        "knob_values": list(log.knob_values),
        "requests": dict(log.requests),
        "texts": dict(log.texts),
        "state": kept.oldest.as_dict() if kept.first_event else None,
        "vocabulary": {int(kind): [kind.name, *spec.fields] for kind, spec in VOCABULARY.items()},
    }


def _dumps(header: dict[str, Any]) -> str:
    try:
        return json.dumps(header, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise LogError(f"A side table of the log holds what JSON cannot: {error}.") from error


def _read_header(text: str, name: str) -> dict[str, Any]:
    try:
        header = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise LogError(f"{name} has no readable header: {error}.") from error
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise LogError(f"{name} is no event log.", f'a header with "format": "{FORMAT}"')
    _check_version(header.get("version"), name)
    return header


def _check_version(version: Any, name: str) -> None:
    if version != VERSION:
        raise LogError(
            f"{name} has version {version}.",
            f"version {VERSION}",
            "Read it with the version of tinyvllm-lab that wrote it.",
        )


def _rebuild(header: dict[str, Any], rows: Rows, name: str) -> EventLog:
    if header.get("num_events") != len(rows):
        raise LogError(
            f"{name} holds {len(rows)} events.", f"{header.get('num_events')}, as its header says"
        )
    try:
        state = header["state"]
        oldest = EngineState() if state is None else EngineState.from_dict(state)
        kept = Kept(header["first_event"], header["first_step"], rows, oldest)
        log = EventLog.of(kept, _read_config(header["config"]))
        log.info.update(header["info"])
        log.requests.update({int(i): dict(about) for i, about in header["requests"].items()})
        log.texts.update({int(i): str(text) for i, text in header["texts"].items()})
        for value in header["knob_values"]:
            log.intern_knob(value)
    except (
        KeyError, TypeError, ValueError, OverflowError, AttributeError, TinyVllmError,
    ) as error:  # fmt: skip
        raise LogError(f"{name} has a damaged header: {type(error).__name__}: {error}.") from error
    return log


def _read_config(stored: dict[str, Any] | None) -> EngineConfig | None:
    """The config; fields that this version does not know are left out."""
    if stored is None:
        return None
    known = {f.name for f in fields(EngineConfig)}
    return EngineConfig(**{name: value for name, value in stored.items() if name in known})
