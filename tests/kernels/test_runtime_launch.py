"""Kernels on the CPU behave as CUDA promises: against numpy, torch and a few lines of Python."""

import os
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tinyvllm_lab.errors import KernelError
from tinyvllm_lab.kernels import load

pytestmark = pytest.mark.needs("cxx")

HERE = Path(__file__).parent


def function(name, file="runtime_subjects.cu", **options):
    return load(HERE / file, backend="cpu", **options).get_function(name)


def rng(seed=0):
    return np.random.default_rng(seed)


# ---- warps ------------------------------------------------------------
def source_lane(mode, lane, arg, width):
    """The CUDA programming guide's rules for shuffles, in Python."""
    start = lane // width * width
    source = [start + arg % width, lane ^ arg, lane + arg, lane - arg][mode]
    too_low = mode == 3 and source < start  # xor may reach earlier segments, up may not
    return lane if too_low or source >= start + width else source


@settings(max_examples=40)
@given(
    mode=st.integers(0, 3),
    width=st.sampled_from([2, 4, 8, 16, 32]),
    arg=st.integers(0, 31),
    warps=st.integers(1, 3),
)
def test_shuffles(mode, width, arg, warps):
    threads = 32 * warps
    value, out = rng().integers(0, 1000, threads, dtype=np.int32), np.zeros(threads, np.int32)
    args = np.full(threads, arg, np.int32)
    function("shuffles")(out, value, args, width, mode, grid=1, block=threads)
    sources = [t // 32 * 32 + source_lane(mode, t % 32, arg, width) for t in range(threads)]
    assert out.tolist() == value[sources].tolist()


@pytest.mark.parametrize("threads", [32, 64, 40, 7])
def test_votes(threads):
    p = (rng(threads).random(threads) < 0.5).astype(np.int32)
    out = np.zeros((6, threads), np.uint32)
    function("votes")(out, p, grid=1, block=threads)
    for start in range(0, threads, 32):
        lanes = slice(start, min(start + 32, threads))
        votes = p[lanes].tolist()
        assert set(out[0, lanes]) == {sum(bit << i for i, bit in enumerate(votes))}
        assert set(out[1, lanes]) == {int(any(votes))}
        assert set(out[2, lanes]) == {int(all(votes))}
    assert set(out[3]) == {p.sum()}
    assert set(out[4]) == {int(p.all())}
    assert set(out[5]) == {int(p.any())}


def test_warp_reductions():
    x = rng().integers(-1000, 1000, 64, dtype=np.int32)
    out = np.zeros((4, 64), np.int32)
    function("warp_reductions")(out, x, grid=1, block=64)
    for warp in (slice(0, 32), slice(32, 64)):
        w = x[warp]
        expected = [w.sum(), w.min(), w.max(), np.bitwise_xor.reduce(w)]
        assert (out[:, warp] == np.array(expected)[:, None]).all()


# ---- atomics ------------------------------------------------------------
@pytest.mark.parametrize("checked", [False, True])
def test_atomics_lose_nothing(checked):
    x = rng().integers(1, 1000, 64 * 37, dtype=np.int32)
    out = np.array([0, 0, 10**6, -5, -1, 0, 0, 0, 0], np.int32)
    kernel = function("atomics")
    if checked:  # the loop around atomicCAS reads out[8] plainly: the checker says so, rightly
        with pytest.raises(KernelError, match="race on 'out' at byte 32"):
            function("atomics", checked=True)(out.copy(), x, grid=37, block=64)
        return
    kernel(out, x, grid=37, block=64)
    expected = [x.sum(), -x.sum(), x.min(), x.max(), np.bitwise_and.reduce(x)]
    expected += [np.bitwise_or.reduce(x), np.bitwise_xor.reduce(x), len(x) % 7, x.sum()]
    assert out.tolist() == [int(e) for e in expected]


def test_float_atomics():
    x = rng().random(1024, dtype=np.float32)
    total, total64 = np.zeros(1, np.float32), np.zeros(1, np.float64)
    function("float_atomics")(total, total64, x, grid=1, block=1024)
    assert total64[0] == pytest.approx(x.astype(np.float64).sum(), rel=1e-12)
    assert total[0] == pytest.approx(x.sum(), rel=1e-5)


# ---- narrow numbers ------------------------------------------------------------
def test_bf16_rounds_like_torch():
    bits = rng().integers(0, 2**32, 64 * 1024, dtype=np.uint32)
    halfway = (np.arange(2**15, dtype=np.uint32) << 16) + 0x8000  # ties go to the even neighbour
    x = torch.from_numpy(np.concatenate([bits, halfway]).view(np.float32))
    out = torch.empty(len(x), dtype=torch.bfloat16)
    function("to_bf16")(out, x, grid=len(x) // 256, block=256)
    number = ~x.isnan()
    assert torch.equal(out[number].view(torch.int16), x.bfloat16()[number].view(torch.int16))
    assert out[~number].isnan().all()


def test_every_bf16_becomes_its_float():
    x = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(torch.bfloat16)
    out = torch.empty(len(x))
    function("from_bf16")(out, x, grid=256, block=256)
    assert torch.equal(out.view(torch.int32), x.float().view(torch.int32))


def test_bf16_arithmetic_rounds_once():
    a = torch.from_numpy(rng(1).normal(size=256)).bfloat16()
    b = torch.from_numpy(rng(2).normal(size=256)).bfloat16()
    out = torch.empty(5, 256, dtype=torch.bfloat16)
    function("bf16_arithmetic")(out, a, b, grid=1, block=256)
    assert torch.equal(out, torch.stack([a + b, a - b, a * b, a / b, a + b]))


def test_half_rounds_like_numpy():
    x = np.concatenate([rng().normal(size=500), [1e-7, 65504, 1e6, -0.0]]).astype(np.float32)
    out = np.zeros(len(x), np.float16)
    function("half_round_trip")(out, x, grid=1, block=len(x))
    with np.errstate(over="ignore"):
        assert np.array_equal(out, x.astype(np.float16))


def test_functions():
    x = np.linspace(0.1, 3, 32, dtype=np.float32)
    out, t = np.zeros((6, 32), np.float32), np.arange(32)
    function("functions")(out, x, grid=1, block=32)
    expected = [1 / np.sqrt(x), np.exp(-x), np.log(x)]
    expected += [np.maximum(x, 1) + np.minimum(t, 3) + 2, x + np.clip(x, 0, 1)]
    bits = [f"{i:032b}" for i in t]
    first_bits = [
        32 - int(i).bit_length() + b[::-1].find("1") + 1 for i, b in zip(t, bits, strict=True)
    ]
    reversed_5 = [b.count("1") + int(b[-5:][::-1], 2) for b in bits]
    expected.append(np.add(first_bits, reversed_5))
    np.testing.assert_allclose(out, np.array(expected), rtol=1e-6)


# ---- arguments and launches ------------------------------------------------------------
@pytest.mark.parametrize("checked", [False, True])
def test_numbers_of_every_type_arrive(checked):
    out = np.zeros(11)
    values = (True, -128, 255, -(2**15), 65535, -(2**31), 2**32 - 1, -(2**53), 2**63, 0.1, 0.1)
    function("all_numbers", checked=checked)(out, *values, grid=1, block=1)
    assert out.tolist() == [*map(float, values[:9]), float(np.float32(0.1)), 0.1]


@pytest.mark.parametrize("checked", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_kernels_made_by_macros_and_templates(dtype, checked):
    x = torch.arange(100).to(dtype)
    expected = (x * 2).flip(0)
    name = "scale_f32" if dtype == torch.float32 else "scale_bf16"
    function(name, checked=checked)(x, 2.0, grid=1, block=100, shared=400)
    assert torch.equal(x, expected)


@pytest.mark.parametrize("threads", ["1", "2", "5"])
def test_blocks_are_shared_between_os_threads(monkeypatch, threads):
    monkeypatch.setenv("TINYVLLM_CPU_THREADS", threads)
    out, x = np.zeros(500, np.float32), rng().random((500, 70), dtype=np.float32)
    # a file of its own, so that it is loaded with this number of threads
    load(HERE / "correct.cu", backend="cpu", defines=(f"THREADS={threads}",)).get_function(
        "two_block_sums"
    )(out, x, 70, grid=500, block=96)
    np.testing.assert_allclose(out, x.var(axis=1), rtol=1e-4)


def test_a_failed_launch_does_not_disturb_the_next():
    failing, out = function("fails_in_block"), np.zeros(200, np.int32)
    for _ in range(3):
        with pytest.raises(KernelError, match=r"block \(7, 0, 0\).*runtime_subjects\.cu:\d+"):
            failing(out, 7, grid=200, block=64)
        failing(out, -1, grid=200, block=64)
        assert out.all()


def test_a_deadlock_is_an_error_and_names_both_places():
    with pytest.raises(KernelError, match=r"16 threads at a warp operation.*16 threads at a barr"):
        function("waits_forever")(grid=1, block=32)


@pytest.mark.parametrize("checked", [False, True])
def test_sleeping_threads_let_others_run(checked):
    out = np.zeros(96, np.int32)
    function("polite_wait", checked=checked)(out, np.zeros(1, np.int32), grid=1, block=96)
    assert out.all()


def test_python_threads_may_launch_at_once():
    kernel, results = function("two_block_sums", "correct.cu"), {}
    x = rng().random((40, 64), dtype=np.float32)

    def work(number):
        out = np.zeros(40, np.float32)
        for _ in range(20):
            kernel(out, x * number, 64, grid=40, block=64)
        results[number] = out

    threads = [threading.Thread(target=work, args=(n,)) for n in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number, out in results.items():
        np.testing.assert_allclose(out, (x * number).var(axis=1), rtol=1e-4)


def test_a_forked_child_can_launch():
    kernel, out = function("fails_in_block"), np.zeros(64, np.int32)
    kernel(out, -1, grid=64, block=32)  # the parent has its pool of OS threads now
    child = os.fork()
    if child == 0:
        out[:] = 0
        kernel(out, -1, grid=64, block=32)
        os._exit(0 if out.all() else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_a_kernel_without_threads_is_refused():
    kernel = function("fails_in_block")
    for grid, block in [(0, 32), (1, 0), (1, 1025), (1, (32, 33)), ((1, 65536), 1), (1.5, 32)]:
        with pytest.raises(KernelError, match=r"(grid|block)=.* (range|size|threads)"):
            kernel(np.zeros(1, np.int32), 0, grid=grid, block=block)


@pytest.mark.parametrize("checked", [False, True])
def test_launch_bounds_are_kept(checked):
    matmul = load("matmul", backend="cpu", checked=checked).get_function("matmul_register_f32")
    out, a, weight = (torch.ones(4, 4) for _ in range(3))
    matmul(out, a, weight, 4, 4, 4, grid=1, block=256)
    assert torch.equal(out, torch.full((4, 4), 4.0))
    attention = load("paged_attention", backend="cpu", checked=checked)
    assert attention.get_function("paged_attention_reduce_f32_d64").signature.max_threads == 64
    assert attention.get_function("paged_attention_warp_f32_d64").signature.max_threads == 128
    with pytest.raises(KernelError, match=r"512 threads.\n.* at most 256, as .*launch_bounds"):
        matmul(out, a, weight, 4, 4, 4, grid=1, block=512)
