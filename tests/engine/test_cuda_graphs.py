"""Decode steps by graph: the same tokens as without, whatever the batch does; on a double."""

import gc
import weakref
from contextlib import contextmanager
from functools import partial
from types import SimpleNamespace

import pytest
import torch
from graph_recorder import Recorder

from tinyvllm_lab.engine.attention import CachedAttention
from tinyvllm_lab.engine.config import EngineConfig
from tinyvllm_lab.engine.cuda_graphs import CudaGraphs, DecodeBuffers, capture_sizes
from tinyvllm_lab.engine.engine import Engine
from tinyvllm_lab.engine.sampling_params import SamplingParams
from tinyvllm_lab.engine.torch_executor import TorchExecutor
from tinyvllm_lab.errors import ConfigError, StepFailed
from tinyvllm_lab.kernels import reference
from tinyvllm_lab.kernels.ops import op_functions
from tinyvllm_lab.llm import LLM
from tinyvllm_lab.model.llama import LlamaModel
from tinyvllm_lab.paths import assets_dir

torch.set_num_threads(1)

BLOCK = 8
SMALL_POOL = {"num_blocks": 12, "max_num_seqs": 5}
PATHS = {
    "continuous": {},
    "three seats": {"max_num_seqs": 3},
    "chunks of 7": {"long_prefill_token_threshold": 7},
    "prefill first": {"order": "prefill-first"},
    "static batches": {"batching": "static", "max_num_seqs": 3},
    "preemption by recompute": SMALL_POOL,
    "preemption by swap": {**SMALL_POOL, "preemption": "swap", "num_host_blocks": 24},
}
SAMPLERS = {
    "greedy": {"temperature": 0.0},
    "drawn": {"temperature": 1.2, "top_k": 40, "top_p": 0.95, "logprobs": 2},
    "penalised": {"temperature": 0.8, "repetition_penalty": 1.3, "min_tokens": 4},
}


@pytest.fixture(scope="module")
def tiny():
    return LlamaModel.from_dir(assets_dir() / "models" / "tiny", dtype="float32")


def prompts():
    """Lengths around the block size, and one beginning three times."""
    generator = torch.Generator().manual_seed(3)
    shared = list(range(5, 5 + 2 * BLOCK))
    fresh = [torch.randint(5, 2000, (n,), generator=generator).tolist() for n in (1, 8, 9, 33)]
    return [*fresh, shared, [*shared, 7], shared]


def run(model, recorder, knobs, **params):
    """Tokens, engine and counters of a run in which requests of unequal length come and go."""
    config = EngineConfig(**{"block_size": BLOCK, "check_invariants": True, **knobs})
    executor = TorchExecutor(model, config, kernels="cpu", cuda_graphs=recorder)
    engine = Engine(config, executor)
    sent, left = [], prompts()
    while left or engine.has_work:
        if left and engine.num_steps % 3 == 0:
            for ids in left[:2]:
                length = 4 + 3 * (len(sent) % 4)  # 4 to 13 tokens
                limits = {"max_tokens": length, "ignore_eos": True, "seed": len(sent)}
                sent.append(engine.add_request(ids, SamplingParams(**limits, **params)))
            del left[:2]
        engine.step()
    every = [sample for request in sent for sample in (request, *request.children)]
    return every, executor


def assert_same(model, knobs, **params):
    """The run with graphs wrote what the eager one did; returns both executors and the requests."""
    recorder = Recorder()
    wanted, eager = run(model, False, knobs, **params)
    seen, executor = run(model, recorder, knobs, **params)
    assert [r.output_token_ids for r in seen] == [r.output_token_ids for r in wanted]
    assert executor.counters == eager.counters
    assert eager.graphs is None
    assert executor.graphs.num_replays == sum(graph.replays for graph in recorder.graphs)
    return executor, seen, wanted


def test_sizes_are_vllms():
    assert capture_sizes(1) == [1, 2]
    assert capture_sizes(3) == [1, 2, 4]
    assert capture_sizes(16) == [1, 2, 4, 8, 16, 24, 32]
    assert capture_sizes(1024) == [1, 2, 4, *range(8, 256, 8), *range(256, 513, 16)]
    assert all(capture_sizes(n)[-1] >= n for n in range(1, 513))


@pytest.mark.needs("cxx")
@pytest.mark.parametrize("path", PATHS)
def test_graphs_give_the_tokens_of_the_eager_path(tiny, path):
    executor, seen, _ = assert_same(tiny, PATHS[path], temperature=0.0)
    assert executor.graphs.num_replays > 5
    assert len(executor.graphs.captured) > 1  # the batch grew and shrank
    assert any(r.num_preemptions for r in seen) == path.startswith("preemption")


@pytest.mark.needs("cxx")
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_graphs_and_sampling(tiny, sampler):
    _, seen, wanted = assert_same(tiny, {}, **SAMPLERS[sampler])
    for mine, other in zip(seen, wanted, strict=True):
        for a, b in zip(mine.logprobs, other.logprobs, strict=True):
            assert a.token_id == b.token_id
            assert a.logprob == pytest.approx(b.logprob, abs=1e-4)


@pytest.mark.needs("cxx")
def test_graphs_and_forks(tiny):
    assert_same(tiny, {}, temperature=0.0, n=2)


@pytest.mark.needs("cxx")
def test_a_context_that_grows_into_the_next_partition(tiny):
    """One graph serves 30 tokens and 36, two partitions of split-K and three."""
    on_cpu, outputs = op_functions("cpu"), []
    kernels = {
        "reshape_and_cache": on_cpu["reshape_and_cache"],
        "paged_attention": partial(on_cpu["paged_attention"], partition_size=16),
    }
    for recorder in (False, Recorder()):
        config = EngineConfig(block_size=BLOCK, max_model_len=64)
        executor = TorchExecutor(tiny, config, kernels=kernels, cuda_graphs=recorder)
        engine = Engine(config, executor)
        greedy = SamplingParams(temperature=0.0, max_tokens=8, ignore_eos=True)
        requests = [engine.add_request(list(range(5, 5 + n)), greedy) for n in (28, 3)]
        while engine.has_work:
            engine.step()
        outputs.append([r.output_token_ids for r in requests])
    assert outputs[0] == outputs[1]
    assert executor.graphs.captured == [2]
    assert executor.graphs.num_replays == 6


@pytest.mark.needs("cxx")
def test_a_batch_above_the_largest_size_runs_eagerly(tiny):
    config = EngineConfig(block_size=BLOCK, max_num_seqs=1)
    executor = TorchExecutor(tiny, config, kernels="cpu", cuda_graphs=Recorder())
    engine = Engine(config, executor)
    engine.set_knob("max_num_seqs", 3)
    greedy = SamplingParams(temperature=0.0, max_tokens=5, ignore_eos=True)
    for ids in prompts()[1:4]:
        engine.add_request(ids, greedy)
    while engine.has_work:
        engine.step()
    assert executor.graphs.sizes == [1, 2]
    assert executor.graphs.captured == []


@pytest.mark.needs("cxx")
def test_what_reads_back_to_the_host_cannot_be_captured(tiny):
    """The twins loop over lengths; the message says what to do, and the engine goes on."""
    config = EngineConfig(block_size=BLOCK)
    kernels = {"paged_attention": reference.paged_attention}
    executor = TorchExecutor(tiny, config, kernels=kernels, cuda_graphs=Recorder())
    engine = Engine(config, executor)
    engine.add_request([5, 6], SamplingParams(temperature=0.0, max_tokens=3, ignore_eos=True))
    engine.step()
    with pytest.raises(StepFailed, match=r"cannot be captured: operation not permitted"):
        engine.step()
    assert not engine.has_work


@pytest.mark.needs("cxx")
def test_after_a_capture_that_failed_all_sizes_are_captured_again(tiny):
    """They share cuBLAS's workspace with the one that failed."""

    class Failing(Recorder):
        def capture(self, run):
            if len(self.graphs) == 1 and not self.failed:
                self.failed = True
                raise RuntimeError("capture_end")
            return super().capture(run)

    recorder = Failing()
    recorder.failed = False
    config = EngineConfig(block_size=BLOCK)
    executor = TorchExecutor(tiny, config, kernels="cpu", cuda_graphs=recorder)
    engine = Engine(config, executor)
    params = SamplingParams(temperature=0.0, max_tokens=4, ignore_eos=True)

    def answer(*prompts):
        requests = [engine.add_request(ids, params) for ids in prompts]
        while engine.has_work:
            engine.step()
        return [r.output_token_ids for r in requests]

    first = answer([5, 6])
    with pytest.raises(StepFailed, match="capture_end"):
        answer([5, 6], [7, 8])
    assert executor.graphs.captured == []
    assert answer([5, 6]) == first
    assert answer([5, 6], [7, 8])[0] == first[0]
    assert executor.graphs.captured == [1, 2]


def test_the_double_bakes_in_what_the_host_computed():
    """Or it would prove nothing: a length that Python reads is the recording's for ever."""
    x, length = torch.ones(4), [2]
    graph = Recorder().capture(lambda: (x * 3)[: length[0]].sum() + length[0])
    x.fill_(2.0)
    length[0] = 4
    graph.replay()
    assert graph.output.item() == 2 * 6 + 2


def test_buffers_keep_their_addresses_and_pad_with_rows_that_do_nothing():
    buffers = DecodeBuffers(4, longest=20, block_size=8, device=torch.device("cpu"))
    parts = [buffers.token_ids, buffers.positions, buffers.slots]
    parts += [buffers.tables.seq_lens, buffers.tables.block_tables]
    before = [part.data_ptr() for part in parts]
    assert all(
        address % part.element_size() == 0 for address, part in zip(before, parts, strict=True)
    )

    class KV:
        def block_tables(self, requests, max_len):
            assert max_len == 18
            return torch.tensor([[3, 9, 4], [7, 0, 0], [2, 6, 0]]).numpy()[: len(requests)]

    def fill(starts):
        requests = [SimpleNamespace(token_ids=list(range(100, 130))) for _ in starts]
        buffers.fill(SimpleNamespace(requests=requests, starts=starts), KV())

    fill([17, 0, 8])
    assert [part.data_ptr() for part in parts] == before
    assert buffers.token_ids.tolist() == [117, 100, 108, 0]
    assert buffers.positions.tolist() == [17, 0, 8, 0]
    assert buffers.slots.tolist() == [4 * 8 + 1, 7 * 8, 6 * 8, -1]
    assert buffers.tables.seq_lens.tolist() == [18, 1, 9, 0]
    assert buffers.tables.block_tables[0].tolist() == [3, 9, 4]
    fill([17])
    assert buffers.slots.tolist() == [33, -1, -1, -1]
    assert buffers.tables.seq_lens.tolist() == [18, 0, 0, 0]


@pytest.mark.needs("cxx")
def test_close_lets_go_of_graphs_and_buffers(tiny):
    recorder = Recorder()
    config = EngineConfig(block_size=BLOCK)
    executor = TorchExecutor(tiny, config, kernels="cpu", cuda_graphs=recorder)
    engine = Engine(config, executor)
    engine.add_request([5, 6], SamplingParams(temperature=0.0, max_tokens=4, ignore_eos=True))
    while engine.has_work:
        engine.step()
    graph, kv = weakref.ref(recorder.graphs.pop()), weakref.ref(executor.kv)
    engine.close()
    del engine
    gc.collect()
    assert graph() is None
    assert kv() is None
    assert executor.graphs is None


@pytest.mark.parametrize(
    ("kernels", "options", "words"),
    [
        ("torch", {"cuda_graphs": True}, "follow block tables"),
        ("torch", {"cuda_graphs": Recorder()}, "follow block tables"),
        ({"rope": reference.rope}, {"cuda_graphs": True}, "follow block tables"),
        (
            {"copy_blocks": reference.copy_blocks},
            {"cuda_graphs": True, "attention": CachedAttention},
            "follow block tables",
        ),
        ({"copy_blocks": reference.copy_blocks}, {"cuda_graphs": True}, "a model on a GPU"),
    ],
)
def test_what_cannot_be_captured_is_refused(tiny, kernels, options, words):
    with pytest.raises(ConfigError, match=words):
        TorchExecutor(tiny, EngineConfig(), kernels=kernels, **options)


def test_llm_passes_the_switch_on():
    with pytest.raises(ConfigError, match="follow block tables"):
        LLM("tiny", device="cpu", cuda_graphs=True)
    assert LLM("tiny", device="cpu", cuda_graphs=False).engine.executor.graphs is None


def test_torch_is_asked_to_capture_the_current_stream(monkeypatch):
    """As far as that goes without a GPU: what `CudaGraphs` passes to torch."""
    asked = []

    class FakeGraph:
        def replay(self):
            asked.append("replay")

        def pool(self):
            return "pool"

    @contextmanager
    def fake_capture(graph, **options):
        asked.append(options)
        yield

    monkeypatch.setattr(torch.cuda, "CUDAGraph", FakeGraph)
    monkeypatch.setattr(torch.cuda, "graph", fake_capture)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: "the engine's stream")
    recorder, output = CudaGraphs(), torch.ones(3)
    for _ in range(2):
        graph = recorder.capture(lambda: output)
        graph.replay()
        assert graph.output is output
    options = {"stream": "the engine's stream", "capture_error_mode": "thread_local"}
    assert asked == [
        {"pool": None, **options}, "replay", {"pool": "pool", **options}, "replay",
    ]  # fmt: skip
