import math
from collections import Counter
from random import Random
from statistics import NormalDist, fmean, stdev

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinyvllm_lab.errors import ConfigError
from tinyvllm_lab.simulate.arrivals import Bursts, ClosedLoop, Poisson, exponential
from tinyvllm_lab.simulate.lengths import Fixed, LogNormal, Uniform, Zipf, zipf_rank

# The seeds are fixed: these tests either always pass or always fail.
DRAWS = 20_000


def draws(lengths, seed=1):
    rng = Random(seed)
    return [lengths.sample(rng) for _ in range(DRAWS)]


def test_fixed():
    assert set(draws(Fixed(7))) == {7}


def test_uniform_reaches_both_ends_equally_often():
    counts = Counter(draws(Uniform(3, 6)))
    assert sorted(counts) == [3, 4, 5, 6]
    # Chi-squared with 3 degrees of freedom: 16.3 is exceeded once in a thousand.
    assert sum((n - DRAWS / 4) ** 2 / (DRAWS / 4) for n in counts.values()) < 16.3


def test_lognormal_has_its_median_spread_and_tail():
    sample = sorted(draws(LogNormal(100, 0.8)))
    logs = [math.log(tokens) for tokens in sample]
    assert sample[DRAWS // 2] == pytest.approx(100, rel=0.03)
    assert stdev(logs) == pytest.approx(0.8, rel=0.02)
    p95 = 100 * math.exp(0.8 * NormalDist().inv_cdf(0.95))
    assert sample[int(DRAWS * 0.95)] == pytest.approx(p95, rel=0.04)


def test_lognormal_is_cut_to_its_limits():
    sample = draws(LogNormal(100, 1.5, 20, 300))
    assert min(sample) == 20
    assert max(sample) == 300


@pytest.mark.parametrize("theta", [0.0, 0.6, 1.0, 2.0])
def test_zipf_follows_its_power_law(theta):
    counts = Counter(draws(Zipf(10, 29, theta)))
    weights = [rank**-theta for rank in range(1, 21)]
    chi_squared = 0.0
    for rank, weight in enumerate(weights):
        expected = DRAWS * weight / sum(weights)
        chi_squared += (counts[10 + rank] - expected) ** 2 / expected
    assert chi_squared < 43.8  # 19 degrees of freedom, one in a thousand


@given(st.integers(1, 50), st.floats(0, 3), st.integers())
def test_a_zipf_rank_is_in_range(count, theta, seed):
    assert 0 <= zipf_rank(Random(seed), count, theta) < count


@pytest.mark.parametrize(
    "make",
    [
        lambda: Fixed(0),
        lambda: Fixed(2.5),
        lambda: Uniform(5, 4),
        lambda: LogNormal(0, 1),
        lambda: LogNormal(10, -1),
        lambda: LogNormal(10, float("nan")),
        lambda: Zipf(1, 10, -0.1),
        lambda: Zipf(1, 1 << 30),
        lambda: Poisson(0.0),
        lambda: Poisson(float("inf")),
        lambda: Bursts(0, 1.0),
        lambda: Bursts(1, 1.0, -1.0),
        lambda: ClosedLoop(0),
        lambda: ClosedLoop(1, float("nan")),
    ],
)
def test_what_cannot_be_drawn_from_is_refused(make):
    with pytest.raises(ConfigError):
        make()


def test_poisson_gaps_are_exponential():
    starts = Poisson(4.0).starts(DRAWS, Random(2))
    times = [start.delay_s for start in starts]
    gaps = [b - a for a, b in zip([0.0, *times], times, strict=False)]
    assert all(start.after is None for start in starts)
    assert min(gaps) > 0
    assert fmean(gaps) == pytest.approx(0.25, rel=0.02)
    assert stdev(gaps) == pytest.approx(0.25, rel=0.03)  # equal to the mean, as it must be
    longer = sum(gap > 0.5 for gap in gaps) / DRAWS
    assert longer == pytest.approx(math.exp(-2.0), rel=0.05)


def test_poisson_counts_in_a_second_have_equal_mean_and_variance():
    times = [start.delay_s for start in Poisson(4.0).starts(DRAWS, Random(3))]
    counts = Counter(int(time) for time in times)
    seconds = int(times[-1])
    sample = [counts[second] for second in range(seconds)]
    assert fmean(sample) == pytest.approx(4.0, rel=0.02)
    assert stdev(sample) ** 2 == pytest.approx(4.0, rel=0.05)


def test_bursts_come_in_groups():
    times = [start.delay_s for start in Bursts(10, 60.0, 2.0).starts(25, Random(4))]
    assert times == sorted(times)
    assert Counter(int(time // 60) for time in times) == {0: 10, 1: 10, 2: 5}
    assert all(time % 60 < 2.0 for time in times)


def test_in_a_closed_loop_everybody_waits_for_themselves():
    starts = ClosedLoop(3, think_s=5.0).starts(8, Random(5))
    assert [start.after for start in starts] == [None, None, None, 0, 1, 2, 3, 4]
    at_once = ClosedLoop(3).starts(8, Random(5))
    assert {start.delay_s for start in at_once} == {0.0}


def test_exponential_times_have_their_mean():
    rng = Random(6)
    assert fmean(exponential(rng, 3.0) for _ in range(DRAWS)) == pytest.approx(3.0, rel=0.02)
    assert exponential(rng, 0.0) == 0.0
