from random import Random

import numpy as np
import pytest
from log_reading import ends, events, outputs, times_us

from tinyvllm_lab.engine.config import EngineConfig
from tinyvllm_lab.engine.engine import Engine
from tinyvllm_lab.engine.events import Kind, Reason
from tinyvllm_lab.engine.feed import run_to_end
from tinyvllm_lab.engine.metrics import SLO
from tinyvllm_lab.engine.sampling_params import SamplingParams
from tinyvllm_lab.errors import ConfigError
from tinyvllm_lab.simulate import presets
from tinyvllm_lab.simulate.arrivals import Bursts, ClosedLoop, Poisson
from tinyvllm_lab.simulate.cost import CostModel
from tinyvllm_lab.simulate.feed import WorkloadFeed
from tinyvllm_lab.simulate.lengths import Uniform
from tinyvllm_lab.simulate.presets import Turn, make_workload
from tinyvllm_lab.simulate.run import config_for, simulate
from tinyvllm_lab.simulate.workloads import Workload, WorkloadRequest

SMALL = EngineConfig(max_num_seqs=8, max_num_batched_tokens=256, num_blocks=400, max_model_len=4096)


def one(name="a", prompt=100, output=10, **fields) -> WorkloadRequest:
    arrival_s = fields.pop("arrival_s", 0.0)
    ids = tuple(Random(name).choices(range(2000), k=prompt))
    return WorkloadRequest(name, arrival_s, ids, output, **fields)


def test_a_lone_request_takes_the_time_that_the_cost_model_says():
    run = simulate(Workload("w", (one(prompt=100, output=4, arrival_s=2.5),)), SMALL)
    cost = run.cost_model
    prefill = cost.prefill_step(100).total_us
    decodes = [cost.decode_step(1, context).total_us for context in (101, 102, 103)]
    expected = np.cumsum([2_500_000, prefill, *decodes]).tolist()
    assert times_us(run.log) == {"a": expected}
    assert run.busy_s == pytest.approx((prefill + sum(decodes)) / 1e6)
    assert run.simulated_s == expected[-1] / 1e6
    assert "A10G" in str(run)


@pytest.mark.parametrize("name", presets.PRESETS)
def test_every_preset_runs_to_its_end(name):
    workload = presets.PRESETS[name](4)
    # Blocks for two of the largest: a check of all blocks after every step takes its time.
    blocks = 2 * workload.longest_context // 16 + 2
    config = config_for(CostModel(), workload, num_blocks=blocks, check_invariants=True)
    run = simulate(workload, config)
    assert not run.refused
    assert not run.dropped
    assert set(ends(run.log)) == {r.request_id for r in workload}
    got = outputs(run.log)
    for asked in workload:
        if asked.abort_after_tokens is None:
            assert len(got[asked.request_id]) == asked.max_tokens
            assert ends(run.log)[asked.request_id] == Reason.LENGTH
        index = next(i for i, r in run.log.requests.items() if r["id"] == asked.request_id)
        assert run.log.requests[index]["kind"] == asked.kind


def test_two_runs_differ_in_nothing_but_wall_time():
    def columns(run):
        rows = run.log.as_array().copy()
        rows[rows[:, 0] == Kind.STEP_END, 2:] = 0
        return rows

    first, second = (simulate(presets.chat(40), SMALL) for _ in range(2))
    assert np.array_equal(columns(first), columns(second))
    assert first.simulated_s == second.simulated_s


def test_the_schedule_changes_times_but_no_tokens():
    workload = presets.independent(30, Bursts(30, 1.0))
    wide = simulate(workload, SMALL)
    narrow = simulate(workload, EngineConfig(max_num_seqs=2, num_blocks=400))
    # With all requests there at once, their running numbers are the same in both runs.
    assert outputs(wide.log) == outputs(narrow.log)
    assert narrow.simulated_s > 2 * wide.simulated_s


@pytest.mark.parametrize("preemption", ["recompute", "swap"])
def test_a_tiny_pool_preempts_and_still_finishes_everybody(preemption):
    workload = presets.independent(20, Bursts(20, 1.0), Uniform(40, 60), Uniform(40, 60))
    config = EngineConfig(
        max_num_seqs=8, num_blocks=24, preemption=preemption, check_invariants=True
    )
    run = simulate(workload, config)
    roomy = simulate(workload, SMALL)
    assert events(run.log, Kind.PREEMPT)
    assert bool(events(run.log, Kind.SWAP_OUT)) == (preemption == "swap")
    assert outputs(run.log) == outputs(roomy.log)
    assert run.simulated_s > roomy.simulated_s


@pytest.mark.parametrize(
    "knobs",
    [
        {"batching": "static"},
        {"allocator": "contiguous-max", "max_model_len": 1024},
        {"allocator": "contiguous-first-fit", "compaction": True},
        {"use_kv_cache": False, "max_num_batched_tokens": 4096},
        {"order": "prefill-first", "policy": "sjf"},
    ],
    ids=lambda knobs: next(iter(knobs.values())),
)
def test_every_kind_of_engine_can_be_simulated(knobs):
    workload = presets.independent(20, Bursts(20, 1.0))
    caching = not {"allocator", "use_kv_cache"} & set(knobs)
    config = EngineConfig(num_blocks=200, enable_prefix_caching=caching, **knobs)
    run, plain = simulate(workload, config), simulate(workload, SMALL)
    assert not run.refused
    assert outputs(run.log) == outputs(plain.log)
    if not config.use_kv_cache:  # all is computed again for every token
        assert run.simulated_s > 2 * plain.simulated_s


def test_idle_time_is_jumped_over():
    workload = Workload("w", tuple(one(str(i), arrival_s=1000.0 * i) for i in range(5)))
    run = simulate(workload, SMALL)
    assert 4000 < run.simulated_s < 4001
    assert run.engine.num_steps == 50
    assert run.busy_s < 1


def test_who_hangs_up_after_some_tokens_is_let_go_in_the_next_step():
    workload = Workload("w", (one("hasty", output=400, abort_after_tokens=7), one("calm")))
    run = simulate(workload, SMALL)
    assert ends(run.log) == {"hasty": Reason.ABORT, "calm": Reason.LENGTH}
    assert len(outputs(run.log)["hasty"]) == 7
    assert run.engine.scheduler.memory.num_used == 0


def test_who_hangs_up_after_some_time_is_let_go_even_from_the_queue():
    config = EngineConfig(max_num_seqs=1)
    workload = Workload("w", (one("first", output=1000), one("waits", abort_after_s=0.5)))
    run = simulate(workload, config)
    assert ends(run.log) == {"first": Reason.LENGTH, "waits": Reason.ABORT}
    assert "waits" not in outputs(run.log)


def test_a_late_hang_up_changes_nothing():
    workload = Workload("w", (one(abort_after_s=3600.0, abort_after_tokens=11),))
    run = simulate(workload, SMALL)
    assert ends(run.log) == {"a": Reason.LENGTH}
    assert run.simulated_s < 1


def test_the_next_turn_carries_the_answer_and_hits_the_cache():
    workload = make_workload(
        "w",
        [[Turn(one(prompt=64).prompt_token_ids, 33), Turn((7,) * 10, 5, pause_s=2.0)]],
        Poisson(1.0),
    )
    run = simulate(workload, SMALL)
    first, second = times_us(run.log).values()
    assert second[0] == first[-1] + 2_000_000
    prompts = [row["prompt_tokens"] for row in run.log.requests.values()]
    assert prompts == [64, 64 + 33 + 10]
    # The last sampled token was never computed: 96 tokens are in the cache, in whole blocks.
    assert [hit for _, _, hit in events(run.log, Kind.ADMIT)] == [0, 96]
    cold = simulate(workload, EngineConfig(enable_prefix_caching=False))
    assert [hit for _, _, hit in events(cold.log, Kind.ADMIT)] == [0, 0]


def test_prefix_caching_makes_chats_cheaper():
    workload = presets.chat(60, Poisson(5.0), think_s=1.0)
    with_cache = simulate(workload, config_for(CostModel(), workload))
    without = simulate(workload, config_for(CostModel(), workload, enable_prefix_caching=False))
    work = [
        sum(tokens for _, tokens, _ in events(run.log, Kind.SCHEDULED))
        for run in (with_cache, without)
    ]
    assert work[0] < 0.7 * work[1]


def test_a_refused_request_ends_its_conversation_and_nothing_else():
    config = EngineConfig(max_model_len=256)
    long, later, other = (
        one("long", prompt=300),
        one("later", after="long", keep_history=True),
        one(),
    )
    run = simulate(Workload("w", (long, later, other)), config)
    assert list(run.refused) == ["long"]
    assert "max_model_len" in str(run.refused["long"])
    assert run.dropped == ["later"]
    assert ends(run.log) == {"a": Reason.LENGTH}
    assert len(events(run.log, Kind.REJECT)) == 1


def test_a_closed_loop_keeps_its_number_of_users():
    workload = make_workload("w", [[Turn((1, 2, 3), 8)]] * 40, ClosedLoop(5))
    run = simulate(workload, SMALL)
    inside, most = 0, 0
    for kind, *_ in run.log.as_array().tolist():
        inside += (kind == Kind.SUBMIT) - (kind == Kind.FINISH)
        most = max(most, inside)
    assert most == 5
    assert len(ends(run.log)) == 40


def test_the_config_fits_hardware_model_and_workload():
    workload = presets.agent(3)
    cost_model = CostModel("A10G", "llama-3.2-1b", block_size=32)
    config = config_for(cost_model, workload, max_num_seqs=7)
    assert config.num_blocks == cost_model.num_kv_blocks()
    assert config.max_model_len == workload.longest_context
    assert (config.max_num_seqs, config.block_size) == (7, 32)
    assert config_for(CostModel("H200", "tiny", block_size=1)).num_blocks == 1 << 18
    with pytest.raises(ConfigError, match="does not fit"):
        simulate(workload, model="llama-3.1-70b")


def test_the_log_can_be_switched_off():
    run = simulate(presets.airport(20), SMALL, log=False)
    assert run.log is None
    with pytest.raises(ConfigError, match="no event log"):
        run.metrics()
    assert run.simulated_s > 0


def test_metrics_are_those_of_the_log():
    workload = presets.airport(40, Poisson(3.0))
    run = simulate(workload, SMALL)
    metrics = run.metrics(SLO(ttft=0.2))
    arrivals = {name: times[0] for name, times in times_us(run.log).items()}
    firsts = {name: times[1] for name, times in times_us(run.log).items()}
    ttft = {name: (firsts[name] - arrivals[name]) / 1e6 for name in firsts}
    assert {r.request_id: r.ttft for r in metrics.requests} == pytest.approx(ttft)
    completed = {name for name, reason in ends(run.log).items() if reason == Reason.LENGTH}
    assert metrics.num_good == sum(ttft[name] <= 0.2 for name in completed)
    assert metrics.kv.bytes_per_token == 32768
    kinds = [{r.request_id for r in run.requests_of(kind)} for kind in workload.kinds]
    assert sum(map(len, kinds)) == 40
    assert kinds[0] == {r.request_id for r in workload if r.kind == workload.kinds[0]}
    assert run.log.info["time"] == "simulated"


def test_faster_hardware_is_faster():
    workload = presets.independent(40, Bursts(40, 1.0))
    seconds = [
        simulate(workload, hardware=name).simulated_s
        for name in ("L4", "A10G", "A100 80GB", "H200")
    ]
    assert seconds == sorted(seconds, reverse=True)


def test_real_decoding_takes_the_same_workload():
    torch = pytest.importorskip("torch")
    from tinyvllm_lab.engine.torch_executor import TorchExecutor
    from tinyvllm_lab.model.llama import LlamaModel
    from tinyvllm_lab.model.tokenizer import Tokenizer
    from tinyvllm_lab.paths import assets_dir
    from tinyvllm_lab.simulate.text_workloads import text_workload

    torch.set_num_threads(1)
    folder = assets_dir() / "models" / "tiny"
    tokenizer = Tokenizer.from_dir(folder)
    model = LlamaModel.from_dir(folder, dtype=torch.float32)
    workload = text_workload(
        tokenizer, 3, Bursts(3, 1.0), kinds=["short_answer"], turns=2, think_s=0.0
    )
    engine = Engine(
        SMALL, TorchExecutor(model, SMALL), tokenizer=tokenizer,
        eos_token_ids=tokenizer.eos_token_ids,
    )  # fmt: skip
    with torch.no_grad():
        run_to_end(engine, WorkloadFeed(workload, SamplingParams(temperature=0.0)))
    got = outputs(engine.log)
    assert set(ends(engine.log).values()) == {Reason.STOP}
    for asked in workload:
        country = asked.prompt.removesuffix("?").removeprefix("What is the capital of ")
        assert f"The capital of {country} is" in tokenizer.decode(got[asked.request_id])
