"""Argmax and top-k/top-p sampling: each version against its definition, in float64."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from ops_harness import DTYPES, by_name, kernel_and_twin, randn, run_checked

from tinyvllm_lab.engine.sampling_params import SamplingParams
from tinyvllm_lab.errors import KernelError
from tinyvllm_lab.kernels.ops import OPS
from tinyvllm_lab.model.sampling import draw, filter_logits

pytestmark = pytest.mark.needs("cxx")
each_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=by_name)
NAN, INF = torch.nan, torch.inf


# ---- argmax -------------------------------------------------------------------------------------
each_argmax = pytest.mark.parametrize("version", ["naive", "tree", "warp", "split", None])


@each_dtype
@each_argmax
@pytest.mark.parametrize("shape", [(1, 1), (3, 33), (2, 2048), (1, 40_001)], ids=by_name)
def test_argmax_is_the_lowest_id_of_the_largest(shape, version, dtype):
    logits = randn(*shape, dtype=dtype)
    wanted = [row.index(max(row)) for row in logits.tolist()]  # bfloat16 rows have ties
    for argmax in kernel_and_twin("argmax", version):
        assert argmax(logits).tolist() == wanted


@each_argmax
def test_argmax_of_ties_infinities_and_nan(version):
    logits = torch.tensor(
        [
            [-1.0, 7.0, 2.0, 7.0],
            [0.0, -0.0, 0.0, -1.0],
            [-0.0, 0.0, -1.0, -1.0],
            [-INF, -INF, -INF, -INF],
            [NAN, -5.0, NAN, -4.0],
            [NAN, NAN, NAN, NAN],
            [-INF, INF, 3.0, INF],
            [-3.0, -2.0, -1.0, -2.0],
        ]
    )
    for argmax in kernel_and_twin("argmax", version):
        assert argmax(logits).tolist() == [1, 0, 0, 0, 3, 0, 1, 2]


@each_argmax
def test_argmax_of_nothing(version):
    for argmax in kernel_and_twin("argmax", version):
        assert argmax(torch.empty(2, 0)).tolist() == [0, 0]
        assert argmax(torch.empty(0, 5)).tolist() == []


# ---- sampling -----------------------------------------------------------------------------------
each_search = pytest.mark.parametrize("version", ["rounds", "bisect", None])


def batch(rows, temperature=1.0, top_k=0, top_p=1.0, uniform=0.5):
    """One setting for all rows, or a list with one for each."""

    def column(value, dtype):
        return torch.tensor(value if isinstance(value, list) else [value] * rows, dtype=dtype)

    f32 = torch.float32
    return (
        column(temperature, f32),
        column(top_k, torch.int32),
        column(top_p, f32),
        column(uniform, f32),
    )


def kept_probabilities(row, temperature, top_k, top_p):
    """`[vocab]` float64: what is left of the distribution, summing to 1. Ties stay together."""
    if temperature <= 0:
        kept = torch.zeros(len(row), dtype=torch.float64)
        kept[row.tolist().index(row.max())] = 1
        return kept
    p = (row.double() / temperature).softmax(dim=-1)
    if 0 < top_k < len(row):
        p = p * (row >= row.sort(descending=True).values[top_k - 1])
    p = p / p.sum()
    if top_p < 1:
        for value in row.unique().flip(0):  # from the largest logit down
            if p[row >= value].sum() >= max(top_p, 1e-12):
                p = p * (row >= value)
                break
    return p / p.sum()


def assert_drawn(token, row, temperature, top_k, top_p, uniform, slack=2e-6):
    """The token covers `uniform`, where a border may be off by float32's rounding."""
    for p in top_p, top_p - slack, top_p + slack:
        kept = kept_probabilities(row, temperature, top_k, p)
        end = kept[: token + 1].sum().item()
        if kept[token] > 0 and end - kept[token].item() - slack <= uniform <= end + slack:
            return
    raise AssertionError(f"token {token} for {(temperature, top_k, top_p, uniform)}")


SETTINGS = [
    (1.0, 0, 1.0), (0.7, 5, 1.0), (1.0, 0, 0.9), (1.3, 40, 0.5), (0.0, 0, 1.0), (1.0, 1, 1.0),
    (2.0, 0, 0.0), (0.05, 3, 0.99), (1.0, 10_000, 1.0),
]  # fmt: skip


@each_dtype
@each_search
@pytest.mark.parametrize("vocab", [1, 33, 300, 2048])
def test_sampling_draws_what_the_definition_says(vocab, version, dtype):
    if version == "rounds" and vocab > 300:
        vocab = 1025  # a pass over the row for each of its values: slow, as its header says
    logits = 2 * randn(len(SETTINGS), vocab, dtype=dtype)
    temperature, top_k, top_p = (list(column) for column in zip(*SETTINGS, strict=True))
    for uniform in 0.0, 0.37, 0.99:
        settings_ = batch(len(SETTINGS), temperature, top_k, top_p, uniform)
        for sample in kernel_and_twin("sample_top_k_top_p", version):
            tokens = sample(logits, *settings_).tolist()
            for token, row, rule in zip(tokens, logits, SETTINGS, strict=True):
                assert_drawn(token, row.float(), *rule, uniform)


@settings(max_examples=25)
@given(data=st.data(), dtype=st.sampled_from(DTYPES))
def test_all_versions_and_the_twin_draw_the_same_token(data, dtype):
    # Few distinct values, exact powers: no rounding can excuse a difference.
    values = st.sampled_from([0.0, -0.0, 1.0, 2.0, -1.0, -INF, NAN])
    row = data.draw(st.lists(values, min_size=1, max_size=70))
    logits = torch.tensor([row]).to(dtype)
    rule = batch(
        1,
        data.draw(st.sampled_from([0.0, 1e-3, 0.5, 1.0])),
        data.draw(st.integers(0, 80)),
        data.draw(st.sampled_from([0.0, 0.1, 0.5, 0.9, 1.0])),
        data.draw(st.sampled_from([0.0, 0.25, 0.5, 0.9, 1 - 2**-24])),
    )
    tokens = {
        sample(logits, *rule).item()
        for version in ("rounds", "bisect", None)
        for sample in kernel_and_twin("sample_top_k_top_p", version)
    }
    assert len(tokens) == 1
    assert 0 <= tokens.pop() < len(row)


@each_dtype
def test_sampling_from_llama3s_vocabulary(dtype):
    logits, rule = 3 * randn(1, 128_256, dtype=dtype), (0.8, 50, 0.9, 0.6)
    for sample in kernel_and_twin("sample_top_k_top_p"):
        assert_drawn(sample(logits, *batch(1, *rule)).item(), logits[0].float(), *rule)


@each_search
def test_masked_tokens_are_never_drawn(version):
    logits = randn(1, 100).masked_fill(torch.arange(100) % 3 > 0, -INF)
    for uniform in torch.linspace(0, 1 - 2**-24, 9).tolist():
        for sample in kernel_and_twin("sample_top_k_top_p", version):
            for rule in batch(1, uniform=uniform), batch(1, 1.0, 50, 0.99, uniform):
                assert sample(logits, *rule).item() % 3 == 0


@each_search
def test_rows_of_nan_and_infinity(version):
    logits = torch.tensor(
        [[NAN] * 5, [-INF] * 5, [1.0, INF, 2.0, NAN, 3.0], [NAN, 1, NAN, NAN, NAN]]
    )
    for sample in kernel_and_twin("sample_top_k_top_p", version):
        for rule in batch(4, uniform=0.9), batch(4, 1.0, 2, 0.5, 0.9), batch(4, 0.0, 0, 1.0, 0.9):
            tokens = sample(logits, *rule).tolist()
            assert tokens[0] == 0
            assert 0 <= tokens[1] < 5
            assert tokens[2:] == [1, 1]


def test_the_kernel_draws_what_the_engines_sampler_draws():
    rules = [(1.0, 0, 1.0), (0.7, 20, 1.0), (1.2, 0, 0.8), (0.9, 50, 0.95)] * 10
    logits = 2 * randn(len(rules), 500)
    uniform = [(37 * i % 101) / 101 for i in range(len(rules))]
    params = [SamplingParams(temperature=t, top_k=k, top_p=p) for t, k, p in rules]
    wanted = draw(filter_logits(logits, params), uniform)
    columns = [list(column) for column in zip(*rules, strict=True)]
    tokens = run_checked("sample_top_k_top_p", logits, *batch(len(rules), *columns, uniform))
    assert tokens.tolist() == wanted


def test_the_frequencies_are_the_probabilities():
    rows = 2000
    logits = torch.tensor([[0.0, 1.0, 2.0, 3.0, -1.0]]).expand(rows, 5).contiguous()
    uniform = (torch.arange(rows) / rows).tolist()
    tokens = run_checked("sample_top_k_top_p", logits, *batch(rows, 1.0, 4, 1.0, uniform))
    wanted = kept_probabilities(logits[0], 1.0, 4, 1.0)
    seen = tokens.bincount(minlength=5) / rows
    assert (seen - wanted).abs().max() < 1.5 / rows


def test_no_rows_and_no_vocabulary():
    for sample in kernel_and_twin("sample_top_k_top_p"):
        assert sample(torch.empty(0, 7), *batch(0)).tolist() == []
        assert sample(torch.empty(2, 0), *batch(2)).tolist() == [0, 0]


def test_wrong_tensors_are_refused_by_name():
    work, logits = OPS["sample_top_k_top_p"].work, torch.zeros(2, 7)
    temperature, top_k, top_p, uniform = batch(2)
    with pytest.raises(KernelError, match="uniform has shape"):
        work(logits, temperature, top_k, top_p, uniform[:1])
    with pytest.raises(KernelError, match=r"top_k is .*int64"):
        work(logits, temperature, top_k.long(), top_p, uniform)
    with pytest.raises(KernelError, match="no version 'sort'"):
        work(logits, temperature, top_k, top_p, uniform, version="sort")
