"""The `cuda` back end through the real PyCUDA: on a GPU, or on the fake driver where there is none.

Run by test_cuda_backend.py in a process of its own, because a driver cannot be unloaded again.
"""

import os
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

if os.environ.get("TINYVLLM_FAKE_DRIVER"):
    from fake_driver import load_fake_driver

    load_fake_driver()

import pycuda.driver as driver

from tinyvllm_lab.errors import KernelError
from tinyvllm_lab.kernels import choose_backend, load
from tinyvllm_lab.kernels.cuda.device import (
    EngineStream,
    cuda_device,
    default_stream,
    engine_stream,
)

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "engine"))
DEVICE = "cpu" if os.environ.get("TINYVLLM_FAKE_DRIVER") else "cuda"


def tensor(*shape, dtype=torch.float32):
    count = int(np.prod(shape))
    return torch.arange(count, dtype=torch.float32).reshape(shape).to(dtype).to(DEVICE)


def wait():
    if DEVICE == "cuda":
        torch.cuda.synchronize()


def function(name, file="correct.cu"):
    return load(HERE / file).get_function(name)


def test_the_gpu_is_chosen(monkeypatch):
    monkeypatch.delenv("TINYVLLM_BACKEND", raising=False)
    choice = choose_backend()
    assert (choice.name, choice.reason) == ("cuda", "a CUDA device is here")
    assert load(HERE / "correct.cu").backend == "cuda"


def test_a_launch_writes_its_result():
    out, x = tensor(3), tensor(3, 100)
    function("two_block_sums")(out, x, 100, grid=3, block=96)
    torch.testing.assert_close(out, x.var(dim=1, correction=0))


def test_bfloat16_and_dynamic_shared_memory():
    x = tensor(64, dtype=torch.bfloat16)
    expected = x * 2
    function("bf16_neighbours")(x, grid=1, block=64)
    assert torch.equal(x, expected)
    out, y = tensor(1), tensor(64)
    function("tree_sum")(out, y, grid=1, block=64, shared=100_000)
    wait()
    assert out.item() == y.sum().item()


def test_arguments_are_checked_before_anything_is_launched():
    kernel = function("two_block_sums")
    with pytest.raises(KernelError, match="got 2 arguments"):
        kernel(tensor(3), tensor(3, 100), grid=3, block=96)
    with pytest.raises(KernelError, match="dtype is float64"):
        kernel(tensor(3), tensor(3, 100).double(), 100, grid=3, block=96)
    with pytest.raises(KernelError, match="not contiguous"):
        kernel(tensor(3), tensor(100, 3).T, 100, grid=3, block=96)
    with pytest.raises(KernelError, match="at most 1024"):
        kernel(tensor(3), tensor(3, 100), 100, grid=3, block=(64, 32))


def test_host_memory_is_refused_where_kernels_cannot_reach_it():
    arguments = torch.zeros(3), torch.zeros(3, 100), 100
    kernel = function("two_block_sums")
    if cuda_device().reads_host_memory:  # the fake driver does, and Grace Hopper
        kernel(*arguments, grid=3, block=96)
        wait()
    else:
        with pytest.raises(KernelError, match="CPU's memory"):
            kernel(*arguments, grid=3, block=96)


def test_any_thread_may_launch_and_leaves_no_context_behind():
    out, x, errors = tensor(3), tensor(3, 100), []

    def work():
        try:
            function("two_block_sums")(out, x, 100, grid=3, block=96)
            cuda_device().context.synchronize()
        except KernelError as error:
            errors.append(error)
        except driver.LogicError:  # no context is current any more: as it should be
            pass

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert not errors
    wait()
    torch.testing.assert_close(out, x.var(dim=1, correction=0))


def test_the_engine_stream_is_the_default_inside():
    out, x = tensor(3), tensor(3, 100)
    assert default_stream() is None
    with engine_stream() as stream:
        assert default_stream() is stream
        if DEVICE == "cuda":
            assert torch.cuda.current_stream().cuda_stream == stream.handle
        doubled = x * 2
        function("two_block_sums")(out, doubled, 100, grid=3, block=96)
        result = out / 4
    assert default_stream() is None
    torch.testing.assert_close(result, x.var(dim=1, correction=0))


def test_a_stream_serves_one_engine_after_the_other():
    first, second = EngineStream(), EngineStream()
    with first.entered() as outer:
        with second.entered() as inner:
            assert default_stream() is inner
            assert inner.handle != outer.handle
        assert default_stream() is outer
    first.close()
    first.close()
    with EngineStream().entered() as next_one:
        assert next_one is outer
    second.close()


def test_an_engine_stream_works_in_another_thread():
    out, x, stream, errors = tensor(3), tensor(3, 100), EngineStream(), []

    def work():
        try:
            with stream.entered():
                function("two_block_sums")(out, x * 2, 100, grid=3, block=96)
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    stream.close()
    assert not errors
    torch.testing.assert_close(out, 4 * x.var(dim=1, correction=0))


def test_a_launch_cannot_overtake_torch_in_a_stream_of_its_own(monkeypatch):
    out, x, torchs = tensor(3), tensor(3, 100), SimpleNamespace(cuda_stream=0x7000)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: torchs)
    with pytest.raises(KernelError, match="a stream of its own"):
        function("two_block_sums")(out, x, 100, grid=3, block=96)


def test_pycuda_objects_are_arguments_too():
    from pycuda import gpuarray

    with cuda_device().current():
        x = gpuarray.to_gpu(np.arange(300, dtype=np.float32).reshape(3, 100))
        out = gpuarray.empty(3, np.float32)
        function("two_block_sums")(out, x, 100, grid=3, block=96)
        np.testing.assert_allclose(out.get(), x.get().var(axis=1), rtol=1e-5)
    with pytest.raises(KernelError, match="CPU's memory"):
        load(HERE / "correct.cu", backend="cpu").get_function("two_block_sums")(
            out, x, 100, grid=3, block=96
        )


def test_events_time_a_launch():
    out, x = tensor(3), tensor(3, 100)
    with engine_stream() as stream:
        begin, end = driver.Event(), driver.Event()
        begin.record(stream)
        function("two_block_sums")(out, x, 100, grid=3, block=96)
        end.record(stream).synchronize()
        assert end.time_since(begin) > 0


def test_source_module_runs_the_same_file():
    from pycuda.compiler import SourceModule

    text = (HERE / "correct.cu").read_text()
    options = ["-std=c++17"]
    with cuda_device().current():
        module = SourceModule(text, no_extern_c=True, options=options, cache_dir=False)
        kernel = module.get_function("two_block_sums")
        x, out = np.arange(300, dtype=np.float32).reshape(3, 100), np.zeros(3, np.float32)
        kernel(driver.Out(out), driver.In(x), np.int32(100), block=(96, 1, 1), grid=(3, 1))
    np.testing.assert_allclose(out, x.var(axis=1), rtol=1e-5)


def written_by_the_engine(kernels, cuda_graphs=None):
    """Greedy tokens, and the executor's graphs, of a batch of prompts with different answers."""
    from tinyvllm_lab.engine.config import EngineConfig
    from tinyvllm_lab.engine.engine import Engine
    from tinyvllm_lab.engine.sampling_params import SamplingParams
    from tinyvllm_lab.engine.torch_executor import TorchExecutor
    from tinyvllm_lab.model.llama import LlamaModel
    from tinyvllm_lab.paths import assets_dir

    torch.set_num_threads(1)
    torch.backends.cuda.matmul.allow_tf32 = False
    model = LlamaModel.from_dir(assets_dir() / "models" / "tiny", "float32", DEVICE)
    config = EngineConfig(block_size=8, num_blocks=32)
    executor = TorchExecutor(model, config, kernels=kernels, cuda_graphs=cuda_graphs)
    engine = Engine(config, executor)
    batch = [[5, 6, 7], list(range(9, 42)), list(range(9, 42))]  # the third one hits the second's
    requests = [
        engine.add_request(
            prompt, SamplingParams(temperature=0.0, max_tokens=12 - 3 * i, ignore_eos=True)
        )
        for i, prompt in enumerate(batch)
    ]
    while engine.has_work:
        engine.step()
    replays = executor.graphs.num_replays if executor.graphs else 0
    engine.close()
    return [request.output_token_ids for request in requests], replays


def test_the_engine_writes_the_same_tokens_as_on_torch():
    expected, _ = written_by_the_engine("torch")
    assert written_by_the_engine("cuda", cuda_graphs=False) == (expected, 0)


def test_the_engine_writes_the_same_tokens_with_cuda_graphs():
    from graph_recorder import Recorder

    expected, _ = written_by_the_engine("torch")
    graphs = Recorder() if DEVICE == "cpu" else True
    tokens, replays = written_by_the_engine("cuda", graphs)
    assert tokens == expected
    assert replays >= 6


def test_compile_errors_name_the_line(tmp_path):
    bad = tmp_path / "bad.cu"
    bad.write_text('extern "C" __global__ void k(float* x) {\n  x[0] = y;\n}\n')
    with pytest.raises(KernelError, match=r"bad\.cu[:(]2"):
        load(bad)
