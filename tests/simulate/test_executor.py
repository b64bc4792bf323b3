import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinyvllm_lab.engine.plan import StepPlan
from tinyvllm_lab.engine.request import Request
from tinyvllm_lab.engine.sampling_params import SamplingParams
from tinyvllm_lab.errors import ConfigError
from tinyvllm_lab.simulate.cost import CostModel
from tinyvllm_lab.simulate.executor import SimulatedExecutor, VirtualClock


def decode_plan(requests: list[Request]) -> StepPlan:
    count = len(requests)
    starts = [request.num_tokens - 1 for request in requests]
    return StepPlan(0, requests, [1] * count, starts, [True] * count, count)


def decode(executor: SimulatedExecutor, requests: list[Request]) -> list[int]:
    token_ids = executor.execute(decode_plan(requests)).token_ids
    for request, token in zip(requests, token_ids, strict=True):
        request.token_ids.append(token)
    return token_ids


def test_tokens_do_not_depend_on_the_batch():
    alone = [Request(str(i), [1, 2, 3], index=i) for i in range(4)]
    together = [Request(str(i), [1, 2, 3], index=i) for i in range(4)]
    executor = SimulatedExecutor()
    for request in alone:
        for _ in range(5):
            decode(executor, [request])
    for _ in range(5):
        decode(executor, together)
    assert [r.output_token_ids for r in alone] == [r.output_token_ids for r in together]
    outputs = {tuple(r.output_token_ids) for r in together}
    assert len(outputs) == 4


def test_rows_that_do_not_sample_get_minus_one():
    requests = [Request(str(i), [1] * 8, index=i) for i in range(3)]
    plan = StepPlan(0, requests, [8, 4, 8], [0, 0, 0], [True, False, True], 20)
    first, second, third = SimulatedExecutor().execute(plan).token_ids
    assert first >= 0
    assert second == -1
    assert third >= 0


@given(st.frozensets(st.integers(0, 12), max_size=13), st.integers(0, 50), st.integers(1, 20))
def test_a_stop_id_is_never_made_up(stops, index, length):
    params = SamplingParams(stop_token_ids=tuple(stops))
    request = Request("r", [0] * length, params, index=index)
    executor = SimulatedExecutor(num_token_ids=10)
    for _ in range(12):
        assert decode(executor, [request])[0] not in request.stop_ids


def test_the_time_is_the_cost_models_and_copies_count_once():
    cost_model = CostModel("A10G", "llama-3.2-1b")
    executor = SimulatedExecutor(cost_model)
    plan = decode_plan([Request("r", [1] * 100)])
    plain = executor.execute(plan).elapsed_us
    assert plain == cost_model.of_plan(plan).total_us
    plan.swap_in = [(0, block) for block in range(1, 400)]
    executor.run_copies(plan)
    swapped = executor.execute(plan).elapsed_us
    assert swapped == cost_model.of_plan(plan).total_us > plain
    assert executor.last_cost.link_bytes == 399 * 16 * 32768
    assert executor.execute(plan).elapsed_us == plain
    assert executor.busy_us == 2 * plain + swapped


def test_without_a_cost_model_every_step_takes_the_same_time():
    executor = SimulatedExecutor(fixed_step_us=7)
    plan = decode_plan([Request("r", [1])])
    executor.run_copies(plan)
    assert executor.execute(plan).elapsed_us == 7
    with pytest.raises(ConfigError):
        SimulatedExecutor(num_token_ids=0)


def test_the_clock_adds_up_exactly():
    clock = VirtualClock()
    for _ in range(1_000):
        clock.advance_us(1_234_567)
    assert clock.now_us == 1_234_567_000
    assert clock.now() == 1234.567
    with pytest.raises(ConfigError, match="back"):
        clock.advance_us(-1)


@given(st.floats(0, 1e7))
def test_a_jump_reaches_its_time_within_a_microsecond(seconds):
    clock = VirtualClock()
    clock.advance_to(seconds)
    assert seconds <= clock.now() <= seconds + 1e-6 + 1e-9 * seconds


def test_a_jump_never_goes_back():
    clock = VirtualClock(5_000_000)
    clock.advance_to(2.0)
    assert clock.now() == 5.0
