"""The x-ray's numbers against a brute-force count of sectors and banks, lane by lane."""

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tinyvllm_lab.errors import KernelError
from tinyvllm_lab.kernels import load, xray
from tinyvllm_lab.kernels.xray_data import XRay

pytestmark = pytest.mark.needs("cxx")

SUBJECTS = Path(__file__).parent / "xray_subjects.cu"
FLOATS = np.arange(1024, dtype=np.float32)


def function(name):
    return load(SUBJECTS, backend="cpu").get_function(name)


def access(result, array, operation):
    (found,) = [a for a in result.accesses if (a.array, a.operation) == (array, operation)]
    return found


indices = st.lists(st.integers(0, 1023), min_size=64, max_size=64)


@settings(max_examples=15, deadline=None)
@given(indices)
def test_sectors_and_bytes_used_match_a_count(index):
    args = np.zeros(64, np.float32), FLOATS, np.array(index, np.int32)
    result = xray(function("gather"), *args, grid=1, block=64)
    seen = access(result, "x", "read")
    warps = [index[:32], index[32:]]
    sectors = sum(len({4 * i // 32 for i in warp}) for warp in warps)
    used = sum(4 * len(set(warp)) for warp in warps)
    assert seen.requests == 2
    assert seen.lanes == 32
    assert seen.sectors == sectors / 2
    assert seen.bytes_used == pytest.approx(used / (32 * sectors))
    assert args[0].tolist() == [FLOATS[i] for i in index]


def passes(words_by_lane):
    """Most distinct words that any bank must deliver to these lanes."""
    words = {word for words in words_by_lane for word in words}
    return max(Counter(word % 32 for word in words).values())


@settings(max_examples=15, deadline=None)
@given(indices)
def test_bank_conflicts_match_a_count(index):
    args = np.zeros(64, np.float32), FLOATS, np.array(index, np.int32)
    result = xray(function("gather_shared"), *args, grid=1, block=64, shared=4096)
    seen = access(result, "s", "read")
    expected = [passes([[i] for i in warp]) for warp in (index[:32], index[32:])]
    assert seen.worst_bank_conflict == max(expected)
    assert seen.bank_conflicts == sum(expected) / 2
    assert access(result, "s", "write").bank_conflicts == 1
    assert result.totals.bank_conflict_passes == sum(expected) - 2
    assert result.totals.barriers == 1


@settings(max_examples=10, deadline=None)
@given(st.lists(st.integers(0, 255), min_size=32, max_size=32))
def test_vector_reads_go_by_quarter_warps(index):
    args = np.zeros((32, 4), np.float32), FLOATS, np.array(index, np.int32)
    result = xray(function("gather_shared_vectors"), *args, grid=1, block=32, shared=4096)
    seen = access(result, "vectors", "read")
    quarters = [index[q : q + 8] for q in range(0, 32, 8)]
    words = [[[4 * i + w for w in range(4)] for i in quarter] for quarter in quarters]
    assert seen.access_bytes == 16
    assert seen.worst_bank_conflict == sum(passes(quarter) for quarter in words) - 3


def test_activity_shows_divergence_and_steps_follow_the_thread():
    out = np.zeros(32, np.int32)
    result = xray(function("even_and_odd"), out, 3, grid=1, block=32)
    text = {line.text: i for i, line in enumerate(result.lines)}
    by_line = {activity.line: activity for activity in result.activity}
    even = by_line[text["v += out[threadIdx.x];"]]
    assert even.active_lanes == 16
    assert even.warp_executions == 3
    assert even.runs_by_thread == (3, 0) * 16
    shuffle = by_line[text["v += __shfl_xor_sync(0xffffffffu, v, 1);"]]
    assert (shuffle.warp_executions, shuffle.active_lanes) == (3, 32)
    assert result.totals.warp_operations == 3
    assert result.steps[0].kinds == ["read", "warp_op"] * 3 + ["barrier", "write"]
    assert result.steps[1].kinds == ["warp_op"] * 3 + ["barrier", "write"]
    assert result.steps[5].offsets[-1] == 20


def test_only_the_wanted_blocks_are_logged():
    args = np.zeros(256, np.float32), FLOATS, np.arange(256, dtype=np.int32)
    result = xray(function("gather"), *args, grid=4, block=64, blocks=range(2, 4))
    assert result.logged_blocks == [2, 3]
    assert access(result, "x", "read").requests == 4
    assert args[0].tolist() == list(range(256))
    with pytest.raises(KernelError, match="names no block"):
        xray(function("gather"), *args, grid=4, block=64, blocks=range(4, 5))


def test_bugs_are_seen_on_the_way():
    args = np.zeros(60, np.float32), FLOATS, np.arange(64, dtype=np.int32)
    result = xray(function("gather"), *args, grid=1, block=64)
    assert [(finding.kind, finding.array) for finding in result.findings] == [
        ("out_of_bounds", "out")
    ]
    assert XRay.from_json(json.loads(json.dumps(result.to_json()))) == result
    assert "out-of-bounds write" in str(result)


def test_a_full_log_says_so():
    args = np.zeros(64, np.float32), FLOATS, np.arange(64, dtype=np.int32)
    result = xray(function("gather"), *args, grid=1, block=64, max_events=10)
    assert result.events <= 10
    assert result.events_dropped > 0
    assert f"the log was full: {result.events_dropped:,} events" in str(result)


def test_nothing_is_an_xray_too():
    result = xray(function("does_nothing"), grid=1, block=32)
    assert result.accesses == []
    assert result.totals.global_requests == 0


def test_xrays_are_json():
    args = np.zeros(64, np.float32), FLOATS, np.arange(64, dtype=np.int32)
    result = xray(function("gather"), *args, grid=1, block=64)
    data = json.loads(json.dumps(result.to_json()))
    assert XRay.from_json(data) == result
    assert data["kernel"] == "gather"
    assert data["sources"]["xray_subjects.cu"] == SUBJECTS.read_text().splitlines()
    assert "gather" in str(result)
    assert "4.00 sectors, 100%" in str(result)
