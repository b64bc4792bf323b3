import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinyvllm_lab.engine.plan import StepPlan
from tinyvllm_lab.engine.request import Request
from tinyvllm_lab.errors import ConfigError
from tinyvllm_lab.simulate.cost import BatchShape, CostModel, Overheads
from tinyvllm_lab.simulate.hardware import Efficiency, Hardware, find_hardware
from tinyvllm_lab.simulate.models import find_model

NO_OVERHEAD = Overheads(0.0, 0, 0, 0.0, 0.0)
# Round numbers, so that costs can be done in the head: 1 TFLOP/s, 1 GB/s, a link of 0.1 GB/s.
ROUND = Hardware(
    "round", "round", {"bfloat16": 1e12}, 1 << 30, 1e9, 1e8, efficiency=Efficiency(1, 1, 1, 1)
)


def plan_of(rows, **copies) -> StepPlan:
    """Rows of (start, tokens, samples)."""
    requests = [Request(str(i), [0] * (s + n), index=i) for i, (s, n, _) in enumerate(rows)]
    return StepPlan(
        0, requests, [n for _, n, _ in rows], [s for s, _, _ in rows], [x for *_, x in rows],
        sum(n for _, n, _ in rows), **copies,
    )  # fmt: skip


rows_strategy = st.lists(
    st.tuples(st.integers(0, 5000), st.integers(1, 300), st.booleans()), min_size=1, max_size=20
)


@given(rows_strategy)
def test_batch_sums_equal_counting_one_by_one(rows):
    batch = BatchShape.of_plan(plan_of(rows))
    pairs = sum(start + i + 1 for start, count, _ in rows for i in range(count))
    assert batch == BatchShape(
        len(rows),
        sum(n for _, n, _ in rows),
        sum(s + n for s, n, _ in rows),
        pairs,
        sum(samples for *_, samples in rows),
    )


def test_the_parts_of_a_step_by_hand():
    model = find_model("tiny")  # 8 layers of 256 wide, KV of 4,096 bytes a token
    cost = CostModel(ROUND, model, overheads=NO_OVERHEAD).of_plan(
        plan_of([(9, 1, True), (0, 4, False)])
    )
    layers = 8 * (256 * (2 * 256 + 2 * 128) + 3 * 256 * 768)
    head = 2048 * 256
    assert cost.weight_bytes == 2 * (layers + head + 5 * 256)
    assert cost.gemm_flops == 2 * layers * 5 + 2 * head
    assert cost.kv_read_bytes == (10 + 4) * 4096
    assert cost.kv_write_bytes == 5 * 4096
    assert cost.attention_flops == (10 + 1 + 2 + 3 + 4) * 4 * 8 * 256
    assert cost.memory_s == pytest.approx(cost.bytes / 1e9)
    assert cost.compute_s == pytest.approx(cost.flops / 1e12)
    assert cost.total_s == pytest.approx(cost.bytes / 1e9)  # both phases wait for memory
    assert cost.bound == "memory"


def test_the_head_is_read_only_if_somebody_samples():
    cost_model = CostModel(ROUND, "tiny", overheads=NO_OVERHEAD)
    chunk, last = (cost_model.of_plan(plan_of([(0, 8, s)])) for s in (False, True))
    assert last.weight_bytes - chunk.weight_bytes == 2 * 2048 * 256
    assert last.gemm_flops - chunk.gemm_flops == 2 * 2048 * 256


def test_a_single_decode_of_the_1b_on_an_a10g_is_its_weights_over_the_bandwidth():
    cost = CostModel("A10G", "llama-3.2-1b").decode_step(1, context=100)
    seconds = 2_471_628_800 / (600e9 * 0.75)
    assert cost.gemm_s == pytest.approx(seconds, rel=1e-3)
    assert cost.total_s == pytest.approx(seconds, rel=0.15)  # launches and host come on top
    assert cost.bound == "memory"


def test_a_long_prefill_is_limited_by_compute():
    cost = CostModel("A10G", "llama-3.2-1b").prefill_step(4096)
    by_hand = 2 * 0.973e9 * 4096 / (70e12 * 0.6)
    assert cost.bound == "compute"
    assert cost.gemm_s == pytest.approx(by_hand, rel=0.01)


def test_decode_gets_compute_bound_at_the_saturation_batch():
    cost_model = CostModel("A10G", "llama-3.2-1b")
    batch = cost_model.saturation_batch
    assert batch == pytest.approx((70e12 * 0.6) / (600e9 * 0.75), rel=1e-6)
    below, above = (cost_model.decode_step(round(batch * f), 1) for f in (0.9, 1.1))
    assert below.gemm_s == pytest.approx(cost_model.decode_step(1, 1).gemm_s, rel=1e-3)
    assert above.gemm_s == pytest.approx(1.1 * below.gemm_s, rel=0.02)
    assert (below.bound, above.bound) == ("memory", "compute")


def test_cached_prompt_tokens_cost_no_matrices_but_are_read():
    cost_model = CostModel("A10G", "llama-3.2-1b")
    cold, warm = cost_model.prefill_step(2048), cost_model.prefill_step(2048, cached_tokens=1024)
    assert warm.gemm_flops < 0.6 * cold.gemm_flops
    assert warm.kv_read_bytes == cold.kv_read_bytes
    # Queries 1024 .. 2047 see 3/4 of all the pairs.
    assert warm.attention_flops == pytest.approx(0.75 * cold.attention_flops, rel=1e-3)


def test_chunks_of_a_prompt_score_as_many_pairs_as_the_whole():
    cost_model = CostModel("A10G", "llama-3.2-1b")
    whole = cost_model.of_plan(plan_of([(0, 600, True)]))
    chunks = [cost_model.of_plan(plan_of([(s, 200, s == 400)])) for s in (0, 200, 400)]
    assert sum(c.attention_flops for c in chunks) == whole.attention_flops
    assert sum(c.total_s for c in chunks) > whole.total_s  # weights are read three times


@given(rows_strategy, st.integers(0, 3000))
def test_more_work_never_takes_less_time(rows, start):
    cost_model = CostModel("L4", "llama-3.2-1b")
    fewer = cost_model.of_plan(plan_of(rows))
    more = cost_model.of_plan(plan_of([*rows, (start, 1, True)]))
    assert more.total_s > fewer.total_s
    assert more.total_s >= max(more.compute_s, more.memory_s)


def test_copies_cost_their_bytes():
    cost_model = CostModel(ROUND, "tiny", block_size=16, overheads=NO_OVERHEAD)
    block = 16 * 4096
    copies = {"swap_out": [(1, 0), (2, 1)], "swap_in": [(3, 4)], "copies": [(5, 6)]}
    plain = cost_model.of_plan(plan_of([(9, 1, True)]))
    cost = cost_model.of_plan(plan_of([(9, 1, True)], **copies, moves=[(0, 8, 100)]))
    assert cost.link_bytes == 3 * block
    assert cost.copy_bytes == 2 * block + 2 * 100 * 4096
    assert cost.copy_s == pytest.approx(cost.link_bytes / 1e8 + cost.copy_bytes / 1e9)
    assert cost.total_s == pytest.approx(plain.total_s + cost.copy_s)


def test_overheads_count_kernels_and_requests():
    overheads = Overheads(2.0, kernels_per_layer=9, kernels_per_step=4, host_us=300.0)
    cost = CostModel("H200", "tiny", overheads=overheads).decode_step(8, 1)
    assert cost.overhead_s == pytest.approx((2 * (9 * 8 + 4) + 300 + 8 * 5) * 1e-6)
    assert cost.bound == "overhead"


def test_an_empty_plan_costs_the_host_only():
    cost = CostModel("A10G", "llama-3.2-1b").of_plan(StepPlan())
    assert (cost.bytes, cost.flops, cost.intensity) == (0, 0, 0.0)
    assert cost.total_us == 300


def test_quantised_weights_are_read_faster_and_computed_in_bfloat16():
    model = find_model("llama-3.1-8b")
    full, small = CostModel("A10G", model), CostModel("A10G", model.with_dtypes("int8"))
    assert small.compute_dtype == "bfloat16"
    ratio = small.decode_step(1, 1).gemm_s / full.decode_step(1, 1).gemm_s
    assert ratio == pytest.approx(0.5, rel=0.01)
    assert small.saturation_batch == pytest.approx(full.saturation_batch / 2)


def test_kv_blocks_fill_what_the_weights_leave():
    cost_model = CostModel("A10G", "llama-3.2-1b", block_size=16)
    left = 0.9 * find_hardware("A10G").memory_bytes - 2_471_628_800
    assert cost_model.num_kv_blocks() == int(left / (16 * 32768))
    assert CostModel("A10G", "llama-3.2-1b", block_size=32).num_kv_blocks() == int(
        left / (32 * 32768)
    )
    with pytest.raises(ConfigError, match=r"Llama 3\.1 70B"):
        CostModel("H100", "llama-3.1-70b").num_kv_blocks()
