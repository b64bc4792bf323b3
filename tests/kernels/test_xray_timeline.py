"""A block in steps: nothing that a thread did is lost or moved, and barriers hold."""

from collections import defaultdict

import numpy as np
import pytest

from tinyvllm_lab.kernels import load, load_source, xray
from tinyvllm_lab.kernels.xray_timeline import linear, timeline

pytestmark = pytest.mark.needs("cxx")

SUBJECTS = r"""
extern "C" __global__ void columns(float* out, const float* x, int width) {
    __shared__ float tile[1024];
    tile[threadIdx.x * width % 1024] = x[threadIdx.x * width % 1024];
    __syncthreads();
    if (threadIdx.x % 3 == 0)
        for (int i = 0; i < threadIdx.x % 5; ++i) out[threadIdx.x] += tile[threadIdx.x + i];
    else
        out[threadIdx.x] = tile[threadIdx.x * width % 1024];
    for (int i = threadIdx.x % 2; i < 3; ++i) {
        if ((i + threadIdx.x) % 2) continue;
        out[threadIdx.x] += x[threadIdx.x];
    }
}
extern "C" __global__ void quads(float4* out, const float4* x) {
    __shared__ float4 tile[64];
    tile[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    out[threadIdx.x] = tile[threadIdx.x * 4 % 64];
}
extern "C" __global__ void stuck(float* out) {
    if (threadIdx.x < 40) __syncthreads();
    else out[threadIdx.x] = __shfl_sync(0xffffffffu, out[threadIdx.x], 0);
}
extern "C" __global__ void pairs(float* out) {
    const int i = threadIdx.x + blockDim.x * threadIdx.y;
    if (i >= 40) return;
    out[i] = 1.0f;
}
"""


@pytest.fixture(scope="module")
def subjects():
    return load_source(SUBJECTS, "timeline_subjects", backend="cpu")


def tree():
    x = np.ones((2, 1000), np.float32)
    function = load("rmsnorm", backend="cpu").get_function("rmsnorm_tree_f32")
    args = np.zeros_like(x), x, x[0].copy(), 1000, 1e-5
    return xray(function, *args, grid=2, block=96, shared=4 * 96)


def columns(subjects, width):
    args = np.zeros(128, np.float32), np.ones(1024, np.float32), width
    return xray(subjects.get_function("columns"), *args, grid=1, block=100)


def quads(subjects):
    args = np.zeros((64, 4), np.float32), np.ones((64, 4), np.float32)
    return xray(subjects.get_function("quads"), *args, grid=1, block=64)


@pytest.fixture(params=["tree", "columns of 1", "columns of 8", "quads"])
def result(request, subjects):
    name, _, width = request.param.partition(" of ")
    makers = {"tree": lambda: tree(), "columns": lambda: columns(subjects, int(width))}
    return makers.get(name, lambda: quads(subjects))()


def test_each_thread_does_what_it_did_in_its_order(result):
    done = defaultdict(list)
    for step in timeline(result).steps:
        for lane, offset in zip(step.lanes, step.offsets, strict=True):
            what = step.kind, step.line, step.array, step.size, offset
            done[32 * step.warp + lane].append((step.tick, *what))
    assert len(done) == len(result.steps)
    for thread in result.steps:
        mine = done[linear(thread.thread, result.block)]
        columns = thread.kinds, thread.lines, thread.arrays, thread.sizes, thread.offsets
        assert [what[1:] for what in mine] == list(zip(*columns, strict=True))
        ticks = [what[0] for what in mine]
        assert ticks == sorted(set(ticks))


def test_a_step_of_a_warp_is_a_request_of_the_table(result):
    line = timeline(result)
    for access in result.accesses:
        mine = [
            s
            for s in line.steps
            if (s.line, s.kind, s.size) == (access.line, access.operation, access.access_bytes)
            and result.arrays[s.array].name == access.array
        ]
        assert len(mine) == access.requests
        assert np.mean([len(s.lanes) for s in mine]) == pytest.approx(access.lanes)
        if access.space == "shared":
            passes = [s.passes() for s in mine]
            assert np.mean(passes) == pytest.approx(access.bank_conflicts)
            assert max(passes) == access.worst_bank_conflict
        else:
            sectors = [s.sectors() for s in mine]
            assert np.mean([len(s) for s in sectors]) == pytest.approx(access.sectors)
            used = sum(sum(s.values()) for s in sectors) / sum(32 * len(s) for s in sectors)
            assert used == pytest.approx(access.bytes_used)


def test_nobody_passes_a_barrier_before_all_have_come(result):
    line = timeline(result)
    assert len(line.opens) == result.totals.barriers
    assert not line.stuck
    begin = 0
    for open_ in line.opens:
        steps = [s for s in line.steps if begin <= s.tick < open_]
        came = {32 * s.warp + lane for s in steps if s.kind == "barrier" for lane in s.lanes}
        assert len(came) == len(result.steps)
        begin = open_
    ends = {32 * s.warp + lane: s.tick for s in line.steps for lane in s.lanes}
    assert line.ends == [ends[n] for n in range(len(result.steps))]


def test_threads_that_do_nothing_have_no_end_and_y_follows_x(subjects):
    result = xray(subjects.get_function("pairs"), np.zeros(64, np.float32), grid=1, block=(8, 8))
    line = timeline(result)
    assert line.ends == [0] * 40 + [-1] * 24
    assert [(s.warp, len(s.lanes), s.offsets[1]) for s in line.steps] == [(0, 32, 4), (1, 8, 132)]


def test_threads_of_a_deadlock_stay_where_they_wait(subjects):
    result = xray(subjects.get_function("stuck"), np.zeros(64, np.float32), grid=1, block=64)
    line = timeline(result)
    assert result.findings
    assert line.stuck
    assert line.opens == []


def test_a_finding_is_where_its_thread_did_it():
    text = """
    extern "C" __global__ void race(float* out, int shift) {
        __shared__ float s[64];
        s[threadIdx.x] = threadIdx.x;
        out[threadIdx.x] = s[(threadIdx.x + shift) % 64];
    }"""
    function = load_source(text, "race", backend="cpu").get_function("race")
    result = xray(function, np.zeros(64, np.float32), 40, grid=1, block=64)
    line, finding = timeline(result), result.findings[0]
    step = next(s for s in line.steps if s.tick == line.tick_of(result, finding))
    thread = linear(finding.place.thread, result.block)
    (mine,) = [s for s in line.steps if s.tick == step.tick and s.warp == thread // 32]
    assert result.arrays[mine.array].name == "s"
    assert mine.offsets[thread % 32] == finding.offset
    assert result.lines[mine.line].number == finding.line


def test_a_long_block_is_cut_and_says_so():
    result = tree()
    whole, cut = timeline(result), timeline(result, most=500)
    assert whole.left_out == 0
    assert cut.steps == whole.steps[: len(cut.steps)]
    done = sum(len(s.lanes) for s in cut.steps)
    assert 500 <= done < 500 + 96
    assert cut.left_out == sum(len(t.kinds) for t in result.steps) - done
