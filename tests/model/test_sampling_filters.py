"""Each filter, row by row; the oracles are transformers' logits processors and a plain loop."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers.generation import logits_process as hf

from tinyvllm_lab.engine.request import Request
from tinyvllm_lab.engine.sampling_params import SamplingParams
from tinyvllm_lab.model import sampling

torch.set_num_threads(1)
NO_IDS = torch.zeros(1, 0, dtype=torch.long)
VOCAB_SIZES = [7, 50, 5000]  # the last one is larger than top-p's candidates


def logits_of(vocab_size: int, num_rows: int, seed: int = 0, scale: float = 3.0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(num_rows, vocab_size, generator=generator) * scale


def column(values: list[float]) -> torch.Tensor:
    return torch.tensor(values)[:, None]


def row_by_row(logits, processors):
    """What transformers makes of each row with its own processor."""
    rows = zip(logits, processors, strict=True)
    return torch.stack([p(NO_IDS, row[None].clone())[0] if p else row for row, p in rows])


@pytest.mark.parametrize("vocab_size", VOCAB_SIZES)
def test_temperature(vocab_size):
    logits, values = logits_of(vocab_size, 4), [0.1, 0.7, 1.0, 5.0]
    expected = row_by_row(logits, [hf.TemperatureLogitsWarper(t) for t in values])
    torch.testing.assert_close(sampling.apply_temperature(logits, column(values)), expected)


@pytest.mark.parametrize("vocab_size", VOCAB_SIZES)
def test_top_k(vocab_size):
    logits, values = logits_of(vocab_size, 5), [1, 3, 0, 6, 10**30]
    expected = row_by_row(logits, [hf.TopKLogitsWarper(k) if k else None for k in values])
    assert torch.equal(sampling.keep_top_k(logits, values), expected)


def test_top_k_keeps_what_equals_the_kth():
    logits = torch.tensor([[1.0, 2.0, 2.0, 2.0, 3.0]])
    expected = row_by_row(logits, [hf.TopKLogitsWarper(2)])
    assert torch.equal(sampling.keep_top_k(logits, [2]), expected)


@pytest.mark.parametrize("scale", [0.1, 3.0], ids=["flat", "peaked"])
@pytest.mark.parametrize("vocab_size", VOCAB_SIZES)
def test_top_p(vocab_size, scale):
    logits, values = logits_of(vocab_size, 5, scale=scale), [0.05, 0.5, 0.9, 0.999, 1.0]
    expected = row_by_row(logits, [hf.TopPLogitsWarper(p) if p < 1 else None for p in values])
    kept = sampling.keep_top_p(logits, column(values))
    # float32 sums cannot tell on which side of p a token lies that begins within 2e-6 of it.
    probs, order = logits.double().softmax(dim=-1).sort(dim=-1, descending=True)
    begins = torch.empty_like(probs).scatter(-1, order, probs.cumsum(dim=-1) - probs)
    at_the_border = (begins - column(values)).abs() < 2e-6
    assert ((kept == expected) | at_the_border).all()
    assert at_the_border[:-1].sum(dim=-1).max() < 10
    assert kept[-1].isfinite().all()


@pytest.mark.parametrize("vocab_size", VOCAB_SIZES)
def test_min_p(vocab_size):
    logits, values = logits_of(vocab_size, 4), [0.0, 0.02, 0.4, 1.0]
    expected = row_by_row(logits, [hf.MinPLogitsWarper(p) for p in values])
    assert torch.equal(sampling.keep_min_p(logits, column(values)), expected)


@pytest.mark.parametrize("vocab_size", VOCAB_SIZES)
def test_all_filters_in_vllms_order_33(vocab_size):
    settings = [
        SamplingParams(temperature=t, min_p=min_p, top_k=k, top_p=p)
        for t, min_p, k, p in [(0.8, 0.01, 5, 0.8), (1.5, 0.0, 6, 0.6), (1.0, 0.0, 0, 1.0)]
    ]
    logits = logits_of(vocab_size, len(settings), seed=vocab_size)
    chains = [
        hf.LogitsProcessorList(
            [
                hf.TemperatureLogitsWarper(params.temperature),
                *([hf.MinPLogitsWarper(params.min_p)] if params.min_p else []),
                *([hf.TopKLogitsWarper(params.top_k)] if params.top_k else []),
                *([hf.TopPLogitsWarper(params.top_p)] if params.top_p < 1 else []),
            ]
        )
        for params in settings
    ]
    torch.testing.assert_close(sampling.filter_logits(logits, settings), row_by_row(logits, chains))


def test_top_p_sees_what_top_k_left_33():
    # Of [.4, .3, .2, .1] top-k leaves [.57, .43]; the first alone reaches 0.5 only of those.
    logits = torch.tensor([[0.4, 0.3, 0.2, 0.1]]).log()
    params = SamplingParams(top_k=2, top_p=0.5)
    kept = sampling.filter_logits(logits, [params]).isfinite()
    assert kept.tolist() == [[True, False, False, False]]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("vocab_size", VOCAB_SIZES)
def test_the_smallest_p_leaves_the_best_token_and_1_leaves_all_33(vocab_size, dtype):
    logits = logits_of(vocab_size, 4, scale=0.01).to(dtype).float()
    kept = sampling.keep_top_p(logits, column([0.0, 1e-8, 1e-3, 1.0])).isfinite()
    best = logits.argmax(dim=-1)
    assert all(kept[i, best[i]] for i in range(4))
    assert kept[:2].sum(dim=-1).tolist() == [1, 1]
    assert kept[3].all()


@pytest.mark.parametrize(
    ("probs", "p", "num_kept"),
    [([0.5, 0.3, 0.1, 0.1], 0.8, 2), ([0.4, 0.3, 0.2, 0.1], 0.8, 3), ([0.25] * 4, 0.5, 2)],
)
def test_a_sum_that_equals_p_is_enough_34(probs, p, num_kept):
    for order in (probs, probs[::-1]):
        kept = sampling.keep_top_p(torch.tensor([order]).log(), column([p])).isfinite()
        assert kept.sum() == num_kept


def request(prompt, output, **settings) -> Request:
    row = Request("r", prompt, SamplingParams(**settings), eos_token_ids=(0, 1))
    row.token_ids.extend(output)
    return row


def penalise_by_loop(logits, row):
    """The three penalties of one row, one token at a time, in Python's float64."""
    params, penalised = row.sampling_params, logits.double().tolist()
    for token_id in set(row.token_ids):
        factor = params.repetition_penalty
        penalised[token_id] *= 1 / factor if penalised[token_id] > 0 else factor
    for token_id in row.output_token_ids:
        penalised[token_id] -= params.frequency_penalty
    for token_id in set(row.output_token_ids):
        penalised[token_id] -= params.presence_penalty
    return penalised


IDS = st.lists(st.integers(0, 19), max_size=8)
PENALTIES = st.fixed_dictionaries(
    {
        "repetition_penalty": st.sampled_from([0.5, 1.0, 1.3]),
        "presence_penalty": st.sampled_from([-1.0, 0.0, 0.7]),
        "frequency_penalty": st.sampled_from([-0.5, 0.0, 2.0]),
    }
)


@given(st.lists(st.tuples(IDS, IDS, PENALTIES), min_size=1, max_size=4), IDS)
def test_penalties_as_a_plain_loop_and_as_the_output_grows(settings, more):
    rows = [request(prompt, output, **penalties) for prompt, output, penalties in settings]
    logits = logits_of(20, len(rows))
    for new_ids in ([], more, more[:2]):
        for row in rows:
            row.token_ids.extend(new_ids)
        expected = [penalise_by_loop(logits[i], row) for i, row in enumerate(rows)]
        edited = sampling.edit_logits(logits, rows)
        torch.testing.assert_close(edited, torch.tensor(expected, dtype=torch.float32))


def test_repetition_penalty_as_transformers():
    logits, ids = logits_of(50, 1), [3, 7, 7, 11, 49]
    expected = hf.RepetitionPenaltyLogitsProcessor(1.2)(torch.tensor([ids]), logits.clone())
    row = request(ids[:2], ids[2:], repetition_penalty=1.2)
    torch.testing.assert_close(sampling.edit_logits(logits, [row]), expected)


def test_logit_bias_as_transformers():
    logits, bias = logits_of(50, 2), {3: 2.5, 49: -100.0}
    theirs = hf.SequenceBiasLogitsProcessor({(i,): b for i, b in bias.items()})
    expected = torch.stack([theirs(torch.zeros(1, 1).long(), logits[:1])[0], logits[1]])
    rows = [request([1], [], logit_bias=bias), request([1], [])]
    torch.testing.assert_close(sampling.edit_logits(logits, rows), expected)


@pytest.mark.parametrize("num_output", [0, 2, 3, 4])
def test_min_tokens_masks_every_eos_and_stop_id_as_transformers_30(num_output):
    logits, output = logits_of(20, 1), [9] * num_output
    row = request([5, 6], output, min_tokens=3, stop_token_ids=(7,))
    theirs = hf.MinNewTokensLengthLogitsProcessor(2, 3, [0, 1, 7])
    expected = theirs(torch.tensor([[5, 6, *output]]), logits.clone())
    assert torch.equal(sampling.edit_logits(logits, [row]), expected)


def test_ignore_eos_leaves_only_the_stop_ids_to_min_tokens_30():
    row = request([5], [], min_tokens=3, stop_token_ids=(7,), ignore_eos=True)
    edited = sampling.edit_logits(logits_of(20, 1), [row])
    assert edited.isinf().nonzero().tolist() == [[0, 7]]


def test_a_stop_id_outside_the_vocabulary_does_no_harm_31():
    row = request([5], [], min_tokens=3, stop_token_ids=(7, 20, 10**12))
    edited = sampling.edit_logits(logits_of(20, 1), [row])
    assert edited.isinf().nonzero()[:, 1].tolist() == [0, 1, 7]


def test_bias_cannot_bring_back_what_min_tokens_forbids():
    row = request([5], [], min_tokens=3, logit_bias={0: 100.0})
    assert sampling.edit_logits(logits_of(20, 1), [row])[0, 0] == -torch.inf
