"""Workloads on disk: JSON lines, one request a line, readable and easy to make from a server's log.

    {"workload": "lunch", "version": 1, "seed": null, "about": "Recorded on a Friday."}
    {"request_id": "a", "arrival_s": 0.0, "prompt_len": 512, "max_tokens": 64}
    {"request_id": "b", "arrival_s": 0.5, "prompt_token_ids": [12, 7, 9], "max_tokens": 8}

The keys are the fields of `WorkloadRequest`. `prompt_len` may stand for `prompt_token_ids`: then
ids are made up that no other request has. The header may be missing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import MISSING, fields
from pathlib import Path
from random import Random
from typing import Any

from tinyvllm_lab.errors import ConfigError
from tinyvllm_lab.simulate.token_ids import synthetic_tokens
from tinyvllm_lab.simulate.workloads import MOST_TOKENS, Workload, WorkloadRequest, check_links

VERSION = 1
"""Version of the format; a reader refuses a newer one."""

_HEADER = {"workload", "version", "seed", "about"}
_FIELDS = {f.name: f for f in fields(WorkloadRequest)}
_REQUIRED = [
    name for name, f in _FIELDS.items() if f.default is MISSING and name != "prompt_token_ids"
]


def write_workload(workload: Workload, path: str | Path) -> None:
    """Write a workload as JSON lines, fields at their default left out."""
    header = {
        "workload": workload.name,
        "version": VERSION,
        "seed": workload.seed,
        "about": workload.about,
    }
    lines = [header, *map(_record, workload.requests)]
    text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
    Path(path).write_text(text, encoding="utf-8")


def _record(request: WorkloadRequest) -> dict[str, Any]:
    values = {name: getattr(request, name) for name in _FIELDS}
    return {name: value for name, value in values.items() if value != _FIELDS[name].default}


def read_workload(path: str | Path) -> Workload:
    """Read a workload.

    Raises:
        ConfigError: the file cannot be read, or a line is wrong; the message has its number.
    """
    path = Path(path)
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}.", "JSON lines") from error
    return parse_workload(lines, name=path.stem)


def parse_workload(lines: Iterable[bytes], name: str = "workload") -> Workload:
    """The same from lines in UTF-8; `name` is the workload's if the header gives none.

    Raises:
        ConfigError: a line is wrong; the message has its number.
    """
    header: dict[str, Any] = {"workload": name, "seed": None, "about": ""}
    requests: list[WorkloadRequest] = []
    earlier: dict[str, int] = {}
    for place, (number, line) in enumerate(_not_blank(lines)):
        try:
            record = _parse_line(line)
            if "workload" in record and place == 0:
                header |= _checked_header(record)
                continue
            request = _request(record)
            check_links(request, earlier)
        except ConfigError as error:
            what = f"{name}, line {number}: {error.what}"
            raise ConfigError(what, error.expected, error.fix) from None
        earlier[request.request_id] = number
        requests.append(request)
    return Workload(header["workload"], tuple(requests), header["seed"], header["about"])


def _not_blank(lines: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    return ((number, line) for number, line in enumerate(lines, 1) if line.strip())


def _parse_line(line: bytes) -> dict[str, Any]:
    try:
        record = json.loads(
            line.decode("utf-8"), object_pairs_hook=_object, parse_constant=_no_constant
        )
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"This is no JSON: {error}.", "a JSON object in UTF-8") from error
    if not isinstance(record, dict):
        raise ConfigError(f"This is a JSON {type(record).__name__}.", "a JSON object")
    return record


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ConfigError("A key occurs twice.", "each key once")
    return found


def _no_constant(name: str) -> Any:
    raise ConfigError(f"{name} is no number in JSON.", "a finite number")


def _checked_header(record: dict[str, Any]) -> dict[str, Any]:
    _check_keys(record, _HEADER)
    if record.get("version", VERSION) != VERSION:
        raise ConfigError(f"The version is {record['version']!r}.", f"version {VERSION}")
    for key, kinds in {"workload": str, "about": str, "seed": int | None}.items():
        if key in record and (not isinstance(record[key], kinds) or record[key] is True):
            raise ConfigError(f"The header's {key} is {record[key]!r:.80}.", f"{kinds}")
    return record


def _check_keys(record: dict[str, Any], known: Iterable[str]) -> None:
    unknown = sorted(set(record) - set(known))
    if unknown:
        raise ConfigError(f"Unknown key {unknown[0]!r:.80}.", "one of " + ", ".join(sorted(known)))


def _request(record: dict[str, Any]) -> WorkloadRequest:
    _check_keys(record, {*_FIELDS, "prompt_len"})
    for name in _REQUIRED:
        if name not in record:
            raise ConfigError(f"The key {name!r} is missing.", ", ".join(_REQUIRED))
    if ("prompt_len" in record) == ("prompt_token_ids" in record):
        raise ConfigError(
            "There must be one prompt.", "either prompt_len or prompt_token_ids, not both"
        )
    for name, value in record.items():
        ok, expected = _TYPES[name]
        if not ok(value):
            raise ConfigError(f"The value of {name} is {value!r:.80}.", expected)
    values = dict(record)
    if "prompt_len" in values:
        values["prompt_token_ids"] = _made_up(values["request_id"], values.pop("prompt_len"))
    return WorkloadRequest(**values)


def _made_up(request_id: str, count: int) -> tuple[int, ...]:
    if not 1 <= count <= MOST_TOKENS:
        raise ConfigError(f"The value of prompt_len is {count}.", f"1 to {MOST_TOKENS:,}")
    return synthetic_tokens(Random(request_id), count)


def _is_int(value: Any) -> bool:
    return type(value) is int and abs(value) < 1 << 62


def _is_number(value: Any) -> bool:
    return _is_int(value) or type(value) is float


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _or_null(check: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: value is None or check(value)


_TYPES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "request_id": (_is_text, "a string"),
    "arrival_s": (_is_number, "a number of seconds"),
    "prompt_token_ids": (lambda v: isinstance(v, list) and all(map(_is_int, v)), "integers"),
    "prompt_len": (_is_int, "an integer"),
    "max_tokens": (_is_int, "an integer"),
    "kind": (_is_text, "a string"),
    "priority": (_is_int, "an integer"),
    "after": (_or_null(_is_text), "a string or null"),
    "keep_history": (lambda v: isinstance(v, bool), "true or false"),
    "abort_after_s": (_or_null(_is_number), "a number of seconds or null"),
    "abort_after_tokens": (_or_null(_is_int), "an integer or null"),
    "prompt": (_or_null(_is_text), "a string or null"),
}
