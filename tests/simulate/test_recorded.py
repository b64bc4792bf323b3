import json
from dataclasses import fields

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tinyvllm_lab.errors import ConfigError
from tinyvllm_lab.simulate.recorded import parse_workload
from tinyvllm_lab.simulate.workloads import Workload, WorkloadRequest

GOOD = {"request_id": "a", "arrival_s": 0.5, "prompt_len": 4, "max_tokens": 2}


def lines(*records) -> list[bytes]:
    return [r if isinstance(r, bytes) else json.dumps(r).encode() for r in records]


names = st.text(min_size=1, max_size=8)
seconds = st.floats(0, 1e6)
requests = st.lists(
    st.builds(
        dict,
        request_id=names,
        arrival_s=seconds,
        prompt_token_ids=st.lists(st.integers(0, 130_000), min_size=1, max_size=10).map(tuple),
        max_tokens=st.integers(1, 10_000),
        kind=names,
        priority=st.integers(-100, 100),
        after=st.none() | st.integers(0, 20),
        keep_history=st.booleans(),
        abort_after_s=st.none() | seconds,
        abort_after_tokens=st.none() | st.integers(1, 1000),
        prompt=st.none() | st.text(max_size=20),
    ),
    max_size=8,
    unique_by=lambda r: r["request_id"],
)


def linked(records) -> tuple[WorkloadRequest, ...]:
    """Let `after` name an earlier request, or nobody."""
    built = []
    for record in records:
        after = record.pop("after")
        name = built[after % len(built)].request_id if built and after is not None else None
        record["keep_history"] &= name is not None
        built.append(WorkloadRequest(after=name, **record))
    return tuple(built)


@given(requests.map(linked), st.none() | st.integers(-5, 1 << 40), names, st.text())
def test_what_is_written_is_read_again(tmp_path_factory, made, seed, name, about):
    path = tmp_path_factory.mktemp("w") / "w.jsonl"
    workload = Workload(name, made, seed, about)
    workload.save(path)
    assert Workload.load(path) == workload


def read_or_refuse(records: list[bytes]) -> tuple[Workload | None, str]:
    """The workload, or what the refusal says; any other error fails the test."""
    try:
        return parse_workload(records, "fuzz"), ""
    except ConfigError as error:
        return None, error.what


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=6,
)
keys = st.sampled_from([f.name for f in fields(WorkloadRequest)] + ["prompt_len", "workload", "x"])


@settings(max_examples=300)
@given(
    st.lists(
        st.binary(max_size=40)
        | st.dictionaries(keys, json_values, max_size=4).map(lambda extra: GOOD | extra),
        max_size=4,
    )
)
def test_any_lines_are_read_or_refused_with_their_number(records):
    workload, complaint = read_or_refuse(lines(*records))
    if workload is not None:
        assert all(isinstance(request, WorkloadRequest) for request in workload)
        assert len(workload) <= len(records)
    else:
        number = int(complaint.removeprefix("fuzz, line ").split(":")[0])
        assert 1 <= number <= len(records)


@given(st.integers(0, 200), st.binary(min_size=1, max_size=4))
def test_a_damaged_line_is_refused_or_still_valid(place, damage):
    line = json.dumps(GOOD | {"kind": "chat", "after": None, "keep_history": False}).encode()
    place %= len(line)
    broken = line[:place] + damage + line[place + len(damage) :]
    workload, complaint = read_or_refuse([b"", broken])
    assert (workload is not None and len(workload) <= 1) or complaint.startswith("fuzz, line 2: ")


@pytest.mark.parametrize(
    ("record", "complaint"),
    [
        (b"{", "no JSON"),
        (b"\xff\xfe", "no JSON"),
        (b"[" * 100_000, "no JSON"),
        (b"[1, 2]", "JSON list"),
        (b'{"request_id": NaN}', "NaN"),
        (b'{"request_id": "a", "request_id": "b"}', "twice"),
        (GOOD | {"color": "red"}, "color"),
        ({"request_id": "a", "arrival_s": 0, "prompt_len": 1}, "'max_tokens' is missing"),
        ({"request_id": "a", "arrival_s": 0, "max_tokens": 1}, "one prompt"),
        (GOOD | {"prompt_token_ids": [1]}, "one prompt"),
        (GOOD | {"request_id": 7}, "request_id"),
        (GOOD | {"arrival_s": "soon"}, "arrival_s"),
        (GOOD | {"arrival_s": -1}, "arrival_s"),
        (GOOD | {"arrival_s": 10**400}, "arrival_s"),
        (GOOD | {"prompt_len": 0}, "prompt_len"),
        (GOOD | {"prompt_len": 1 << 40}, "prompt_len"),
        (GOOD | {"prompt_len": True}, "prompt_len"),
        (GOOD | {"max_tokens": 1.5}, "max_tokens"),
        (GOOD | {"after": "nobody"}, "nobody"),
        (GOOD | {"request_id": "first"}, "Two requests"),
    ],
)
def test_a_bad_line_is_named(record, complaint):
    first = GOOD | {"request_id": "first"}
    with pytest.raises(ConfigError, match=r"lunch, line 4: ") as caught:
        parse_workload(lines({"workload": "w"}, b"  ", first, record), "lunch")
    assert complaint in caught.value.what


@pytest.mark.parametrize(
    "header", [{"version": 2}, {"seed": "x"}, {"seed": True}, {"about": 3}, {"author": "me"}]
)
def test_a_bad_header_is_named(header):
    with pytest.raises(ConfigError, match="line 1"):
        parse_workload(lines({"workload": "w"} | header, GOOD))


def test_a_header_stands_first():
    with pytest.raises(ConfigError, match="line 2"):
        parse_workload(lines({"workload": "w"}, {"workload": "v"}, GOOD))


def test_lengths_become_prompts_that_nobody_shares():
    records = [GOOD | {"request_id": str(i), "prompt_len": 40} for i in range(20)]
    workload = parse_workload(lines(*records))
    prompts = {request.prompt_token_ids for request in workload}
    assert len(prompts) == 20
    assert {len(prompt) for prompt in prompts} == {40}
    assert workload == parse_workload(lines(*records))


def test_a_header_is_not_needed_and_the_file_names_the_workload(tmp_path):
    path = tmp_path / "friday.jsonl"
    path.write_bytes(b"\n".join(lines(GOOD)) + b"\r\n\n")
    workload = Workload.load(path)
    assert (workload.name, len(workload), workload.seed) == ("friday", 1, None)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"none\.jsonl"):
        Workload.load(tmp_path / "none.jsonl")
