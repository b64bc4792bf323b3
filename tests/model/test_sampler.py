"""The sampler on mixed batches: seeds, greedy rows, logprobs, bad input."""

import random
from collections import Counter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tinyvllm_lab.engine.request import Request
from tinyvllm_lab.engine.sampling_params import SamplingParams
from tinyvllm_lab.errors import ConfigError, ModelError
from tinyvllm_lab.model import sampling
from tinyvllm_lab.model.sampling import Sampler, draw

torch.set_num_threads(1)
VOCAB_SIZE = 40


def logits_of(num_rows: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(num_rows, VOCAB_SIZE, generator=torch.Generator().manual_seed(seed))


def request(**settings) -> Request:
    return Request("r", [3, 4], SamplingParams(**settings), eos_token_ids=(0, 1))


def run(rows: list[Request], logits: torch.Tensor, num_steps: int) -> list[list[int]]:
    """Sample several steps, appending the tokens; row i sees logits[i] in every step."""
    for _ in range(num_steps):
        for row, token_id in zip(rows, Sampler().sample(logits, rows).token_ids, strict=True):
            row.token_ids.append(token_id)
    return [row.output_token_ids for row in rows]


def test_temperature_0_is_argmax_per_row_in_a_mixed_batch_32():
    logits = logits_of(6)
    temperatures = [0.0, 1.0, 0.0, 1e-9, 2.0, 0.0]
    rows = [request(temperature=t, seed=1, top_p=0.9, logprobs=2) for t in temperatures]
    output = Sampler().sample(logits, rows)
    for i in (0, 2, 3, 5):
        assert output.token_ids[i] == logits[i].argmax()
        assert rows[i].state is None, "a greedy row needs no random numbers"
    logprobs = [found.logprob for found in output.logprobs]
    assert torch.tensor(logprobs).isfinite().all()


def test_a_greedy_row_with_penalties_draws_no_random_number_32():
    row = request(temperature=0.0, frequency_penalty=1.0, seed=5)
    run([row, request(temperature=1.0)], logits_of(2), 3)
    assert row.state.random.getstate() == random.Random(5).getstate()


def test_an_all_greedy_batch_does_nothing_but_argmax(monkeypatch):
    for name in ("edit_logits", "draw_rows"):
        monkeypatch.setattr(sampling, name, None)
    logits = logits_of(3).to(torch.bfloat16)
    output = Sampler().sample(logits, [request(temperature=0.0) for _ in range(3)])
    assert output.token_ids == logits.argmax(dim=-1).tolist()
    assert output.logprobs == [None, None, None]


def test_of_equal_logits_the_first_is_taken():
    logits = torch.zeros(2, VOCAB_SIZE)
    rows = [request(temperature=0.0), request(temperature=0.0, logit_bias={39: 0.0})]
    assert Sampler().sample(logits, rows).token_ids == [0, 0]


def test_a_seed_repeats_its_draws_whoever_else_is_in_the_batch():
    logits = logits_of(4)
    (alone,) = run([request(seed=7)], logits[2:3], 10)
    mates = [request(), request(seed=8, top_k=3), request(seed=7), request(temperature=0.0)]
    assert run(mates, logits, 10)[2] == alone
    assert run([request(seed=9)], logits[2:3], 10)[0] != alone


def test_without_a_seed_draws_differ():
    flat = torch.zeros(2, VOCAB_SIZE)
    first, second = run([request(), request()], flat, 20)
    assert first != second


def test_draws_follow_the_probabilities():
    # Evenly spread "random" numbers: every token gets its share of them, to within one.
    logits = logits_of(1)
    num_draws = 4000
    uniforms = [(i + 0.5) / num_draws for i in range(num_draws)]
    counts = Counter(draw(logits.expand(num_draws, -1), uniforms))
    expected = logits[0].double().softmax(dim=-1) * num_draws
    assert all(abs(counts[i] - expected[i]) <= 1 for i in range(VOCAB_SIZE))


@given(
    st.lists(st.booleans(), min_size=2, max_size=12).filter(any),
    st.sampled_from([0.0, 2**-53, 0.5, 1 - 2**-24, 1 - 2**-53]),
)
def test_no_random_number_reaches_a_dropped_token(kept, uniform):
    logits = torch.zeros(1, len(kept)).masked_fill(~torch.tensor([kept]), -torch.inf)
    assert kept[draw(logits, [uniform])[0]]


@pytest.mark.parametrize("settings", [{"top_k": 1}, {"top_p": 0.0}, {"min_p": 1.0}])
def test_filters_that_leave_one_token(settings):
    logits = logits_of(1)
    assert run([request(**settings)], logits, 3)[0] == [logits.argmax()] * 3


@pytest.mark.parametrize("temperature", [1e-5, 1e39, 1e300])
def test_extreme_temperatures_give_a_token_32(temperature):
    rows = [request(temperature=temperature, seed=0, min_tokens=5, top_p=0.9)]
    (ids,) = run(rows, logits_of(1) * 30, 5)
    assert not {0, 1} & set(ids)


def test_logprobs_are_the_models_own():
    logits = logits_of(4)
    settings = [{"logprobs": 3}, {"logprobs": None}, {"logprobs": 0}, {"logprobs": 50}]
    edits = {"temperature": 0.3, "top_k": 2, "repetition_penalty": 2.0, "logit_bias": {5: 50.0}}
    rows = [request(**edits, **setting) for setting in settings]
    token_ids, logprobs = Sampler().sample(logits, rows)
    expected = logits.double().log_softmax(dim=-1)
    assert logprobs[1] is None
    for i, num_top in ((0, 3), (2, 0), (3, VOCAB_SIZE)):
        order = expected[i].argsort(descending=True).tolist()
        assert logprobs[i].token_id == token_ids[i] == 5
        assert logprobs[i].logprob == pytest.approx(expected[i, 5].item(), abs=1e-5)
        assert logprobs[i].rank == order.index(5) + 1
        assert [token_id for token_id, _ in logprobs[i].top] == order[:num_top]
        values = [value for _, value in logprobs[i].top]
        assert values == pytest.approx(expected[i, order[:num_top]].tolist(), abs=1e-5)


def test_logits_are_not_changed():
    logits = logits_of(2)
    before = logits.clone()
    edits = {"min_tokens": 2, "logit_bias": {2: 5.0}, "presence_penalty": 1.0, "top_p": 0.5}
    run([request(**edits), request(temperature=0.0)], logits, 2)
    assert torch.equal(logits, before)


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_nonsense_from_the_model_names_the_row(value, temperature):
    logits = logits_of(3)
    logits[1, 5] = value
    with pytest.raises(ModelError, match="Row 1 of the logits"):
        Sampler().sample(logits, [request(temperature=temperature) for _ in range(3)])


@pytest.mark.parametrize(
    "bad", [{-1: 1.0}, {1: 101.0}, {1: float("nan")}, {"1": 1.0}, {1: -float("inf")}]
)
def test_a_bias_out_of_range_is_refused(bad):
    with pytest.raises(ConfigError, match="logit_bias"):
        SamplingParams(logit_bias=bad)
