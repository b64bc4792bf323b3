"""Stored logs: round trips, a decoder written from the description alone, and damage."""

import json
import random
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from real_run import real_run
from toy_engine import ToyEngine

from tinyvllm_lab.engine import varint
from tinyvllm_lab.engine.config import EngineConfig
from tinyvllm_lab.engine.events import Kind
from tinyvllm_lab.engine.log import EventLog
from tinyvllm_lab.engine.state import state_at
from tinyvllm_lab.engine.storage import from_bytes, from_lines, load, save, to_bytes, to_lines
from tinyvllm_lab.errors import LogError

INT64 = st.integers(-(2**63), 2**63 - 1) | st.integers(-5, 200)
KIND = st.sampled_from([*map(int, Kind), 99, -7, 2**40])
EVENTS = st.lists(st.tuples(KIND, INT64, INT64, INT64), max_size=60)
INFO = st.dictionaries(st.text(max_size=5), st.none() | st.booleans() | INT64 | st.text(max_size=9))


def sample_log(steps=80, seed=1) -> EventLog:
    toy = ToyEngine(seed).run(steps)
    toy.log.config = EngineConfig(max_num_seqs=4, block_size=4, num_blocks=24)
    toy.log.info |= {"model": "toy", "kv_bytes_per_token": 128}
    toy.log.texts |= {17: "é", 18: "\ud800", 19: "\n"}
    for request in toy.requests:
        toy.log.add_request(
            request.index, f"request-{request.index}", prompt_tokens=request.prompt,
            max_tokens=request.max_tokens, arrival_us=7 * request.index,
        )  # fmt: skip
    return toy.log


def assert_same(left: EventLog, right: EventLog) -> None:
    assert left.as_array().tolist() == right.as_array().tolist()
    for name in ("first_event", "first_step", "num_events", "num_steps", "config", "info"):
        assert getattr(left, name) == getattr(right, name), name
    for name in ("requests", "texts", "knob_values"):
        assert getattr(left, name) == getattr(right, name), name
    assert list(map(type, left.knob_values)) == list(map(type, right.knob_values))
    assert left.oldest_state() == right.oldest_state()


@given(EVENTS, INFO, st.lists(st.booleans() | INT64 | st.text() | st.floats(allow_nan=False)))
def test_round_trip_of_any_events(events, info, knobs):
    log = EventLog()
    for event in events:
        log.buffer += event
    log.flush()
    log.info |= info
    for value in knobs:
        if value not in (float("inf"), float("-inf")):
            log.intern_knob(value)
    assert_same(from_bytes(to_bytes(log)), log)
    assert_same(from_lines("".join(to_lines(log)).splitlines()), log)


@pytest.mark.parametrize("name", ["run.tvt", "run.jsonl"])
def test_round_trip_through_a_file(tmp_path, name):
    log = sample_log()
    path = save(log, tmp_path / name)
    loaded = load(path)
    assert_same(loaded, log)
    assert loaded.intern_knob("max_num_seqs") == log.intern_knob("max_num_seqs")
    loaded.buffer += (Kind.STEP, 0, 0, 0)
    loaded.flush()
    assert loaded.num_steps == log.num_steps + 1
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("name", ["run.tvt", "run.jsonl"])
def test_a_ring_is_stored_with_the_state_at_its_oldest_step(tmp_path, name):
    whole = sample_log()
    ring = EventLog(whole.config, capacity=200)
    for step in range(whole.num_steps):
        numbers = whole.step_range(step)
        ring.buffer += whole.rows(numbers.start, numbers.stop).ravel().tolist()
        ring.flush()
    loaded = load(save(ring, tmp_path / name))
    assert loaded.first_step > 0
    assert_same(loaded, ring)
    for step in (ring.first_step, ring.num_steps - 1):
        assert state_at(loaded, step) == state_at(ring, step)


def read_as_described(data: bytes) -> list[list[int]]:
    """The rows of a `.tvt`, number by number, as the description in `storage` says."""
    assert data[:8] == bytes.fromhex("8954 5654 0d0a 1a0a".replace(" ", ""))
    assert int.from_bytes(data[8:12], "little") == 1
    body = zlib.decompress(data[12:])
    size = int.from_bytes(body[:4], "little")
    columns, at = json.loads(body[4 : 4 + size])["columns"], 4 + size
    values = {}
    for column in columns:
        numbers, end = [], at + column["bytes"]
        while at < end:
            number, scale = 0, 1
            while body[at] >= 0x80:
                number += (body[at] - 0x80) * scale
                scale *= 128
                at += 1
            number += body[at] * scale
            at += 1
            numbers.append(number // 2 if number % 2 == 0 else -(number + 1) // 2)
        keys = values.get((column["kind"], 0), numbers)
        last = {}
        for i, difference in enumerate(numbers):
            if column["code"] == 1:
                numbers[i] = difference + (numbers[i - 1] if i else 0)
            elif column["code"] == 2:
                numbers[i] = last[keys[i]] = difference + last.get(keys[i], 0)
        values[column["kind"], column["column"]] = numbers
    parts = {key: iter(numbers) for key, numbers in values.items()}
    assert at == len(body)
    return [[k, *(next(parts[k, c]) for c in range(3))] for k in values[None, 0]]


def test_the_description_is_enough_to_read_the_columns():
    log = sample_log()
    assert read_as_described(to_bytes(log)) == log.as_array().tolist()


def test_the_size_of_a_real_run_is_small():
    settings = {"max_num_seqs": 32, "num_blocks": 400, "max_num_batched_tokens": 256}
    log = real_run(3, 80, check_invariants=False, **settings).log
    assert log.num_events > 2000
    assert len(to_bytes(log)) <= 2.5 * log.num_events


@settings(deadline=None)
@given(st.lists(INT64), st.sampled_from([0, 1, 2]), st.randoms(use_true_random=False))
def test_columns_come_back(values, code, rng):
    column = np.array(values, np.int64)
    keys = np.array([rng.randint(0, 3) for _ in values], np.int64)
    coded = varint.encode(varint.predict(column, code, keys))
    assert varint.restore(varint.decode(coded), code, keys).tolist() == values


def test_zigzag_and_leb128_are_the_usual_ones():
    values = np.array([0, -1, 1, -2, 63, 64, -(2**63), 2**63 - 1])
    coded = varint.encode(values)
    assert coded[:8] == bytes([0, 1, 2, 3, 126, 0x80, 1, 0xFF])
    assert varint.decode(coded).tolist() == values.tolist()


@pytest.mark.parametrize("data", [b"\x80", b"\x01\xff", b"\x80" * 10 + b"\x01"])
def test_broken_numbers_are_refused(data):
    with pytest.raises(ValueError, match=r"cut off|more than 10 bytes"):
        varint.decode(data)


def test_every_cut_and_every_flipped_byte_is_noticed():
    log = sample_log(steps=6)
    data = to_bytes(log)
    rng = random.Random(0)
    for size in [0, 1, 7, 8, 11, 12, 13, *rng.sample(range(len(data)), 60), len(data) - 1]:
        with pytest.raises(LogError):
            from_bytes(data[:size])
    for place in rng.sample(range(len(data)), 120):
        damaged = bytearray(data)
        damaged[place] ^= 1 << rng.randrange(8)
        try:
            read = from_bytes(bytes(damaged))
        except LogError:
            continue
        assert_same(read, log)  # a bit of padding, which means nothing
    with pytest.raises(LogError, match="3 bytes too many"):
        from_bytes(data + b"abc")


def test_damaged_lines_are_named():
    lines = list(to_lines(sample_log(steps=6)))
    for broken, message in [
        ("[1,2,3", "line 3 is cut off"),
        ("[1,2,3]", r"line 3 is '\[1,2,3\]'"),
        ("[1,2,3,4.5]", "line 3 is"),
        ('{"kind":1}', "line 3 is"),
        (f"[1,2,3,{2**63}]", "more than 64 bits"),
    ]:
        with pytest.raises(LogError, match=message):
            from_lines([*lines[:2], broken, *lines[3:]], "run.jsonl")
    with pytest.raises(LogError, match=r"holds \d+ events"):
        from_lines(lines[:-1])
    for first in ("", "{}", "[1]", "not JSON", "[" * 100_000):
        with pytest.raises(LogError):
            from_lines([first, *lines[1:]])


def test_damaged_side_tables_are_refused():
    header, *rows = to_lines(sample_log(steps=6))
    for name, value in [
        ("requests", [1, 2]), ("requests", {"x": {}}), ("config", {"max_num_seqs": -1}),
        ("config", 7), ("texts", None), ("info", [1]), ("state", {"position": 3}),
        ("knob_values", 3), ("first_event", "x"), ("first_event", 10**30), ("num_events", None),
    ]:  # fmt: skip
        damaged = json.dumps({**json.loads(header), name: value})
        with pytest.raises(LogError):
            from_lines([damaged, *rows])


def test_a_newer_version_is_refused_by_name():
    log = sample_log(steps=3)
    data = to_bytes(log)
    with pytest.raises(LogError, match="has version 2"):
        from_bytes(data[:8] + b"\x02\0\0\0" + data[12:])
    header, *rows = to_lines(log)
    with pytest.raises(LogError, match="has version 9"):
        from_lines([json.dumps({**json.loads(header), "version": 9}), *rows])


def test_a_field_of_a_later_config_is_skipped():
    header, *rows = to_lines(sample_log(steps=3))
    stored = json.loads(header)
    stored["config"]["warp_speed"] = 9
    assert from_lines([json.dumps(stored), *rows]).config.max_num_seqs == 4


def test_other_files_are_refused(tmp_path):
    for content in (b"", b"PK\x03\x04", b"\xff\xfe", b'{"a": 1}\n'):
        path = tmp_path / "other.tvt"
        path.write_bytes(content)
        with pytest.raises(LogError):
            load(path)
    with pytest.raises(LogError, match="unknown suffix"):
        save(EventLog(), tmp_path / "log.txt")
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "missing.tvt")


def test_a_log_that_json_cannot_hold_leaves_the_old_file(tmp_path):
    path = tmp_path / "run.tvt"
    path.write_bytes(b"old")
    log = EventLog()
    log.info["bad"] = object()
    with pytest.raises(LogError, match="what JSON cannot"):
        save(log, path)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]
