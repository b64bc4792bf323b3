"""How long prompts and answers are: fixed, uniform, lognormal or Zipf, drawn with a seed."""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from random import Random
from typing import Protocol

from tinyvllm_lab.errors import ConfigError


class Lengths(Protocol):
    """A distribution over numbers of tokens, all of them at least 1."""

    def sample(self, rng: Random) -> int:
        """Draw one length."""


@dataclass(frozen=True, slots=True)
class Fixed:
    """Always the same length."""

    tokens: int

    def __post_init__(self) -> None:
        _check_range("Fixed", self.tokens, self.tokens)

    def sample(self, rng: Random) -> int:
        """The length; nothing is drawn."""
        return self.tokens


@dataclass(frozen=True, slots=True)
class Uniform:
    """Every length from `low` to `high`, both included, is equally likely."""

    low: int
    high: int

    def __post_init__(self) -> None:
        _check_range("Uniform", self.low, self.high)

    def sample(self, rng: Random) -> int:
        """Draw one length."""
        return rng.randint(self.low, self.high)


@dataclass(frozen=True, slots=True)
class LogNormal:
    """Many short ones and a long tail, as in chat logs; cut to `low` .. `high`.

    The logarithm is normal: half of the lengths lie below `median`, and a `sigma` of 0.8 puts the
    longest five per cent above 3.7 times the median.
    """

    median: float
    sigma: float
    low: int = 1
    high: int = 131072

    def __post_init__(self) -> None:
        _check_range("LogNormal", self.low, self.high)
        if not (self.median > 0 and 0 <= self.sigma <= 10):
            raise ConfigError(
                f"LogNormal has median {self.median} and sigma {self.sigma}.",
                expected="a median above 0 and a sigma from 0 to 10",
            )

    def sample(self, rng: Random) -> int:
        """Draw one length; what falls outside the limits is moved to the nearer one."""
        drawn = round(rng.lognormvariate(math.log(self.median), self.sigma))
        return min(max(drawn, self.low), self.high)


@dataclass(frozen=True, slots=True)
class Zipf:
    """Length `low + k - 1` has a probability proportional to `k ** -theta`, up to `high`.

    With theta 0 it is uniform; the larger theta, the more short ones.
    """

    low: int
    high: int
    theta: float = 1.0

    def __post_init__(self) -> None:
        _check_range("Zipf", self.low, self.high)
        if not 0 <= self.theta <= 10:
            raise ConfigError(f"Zipf.theta is {self.theta}.", "0 to 10")

    def sample(self, rng: Random) -> int:
        """Draw one length."""
        return self.low + zipf_rank(rng, self.high - self.low + 1, self.theta)


def zipf_rank(rng: Random, count: int, theta: float) -> int:
    """A rank from 0 (the most popular) to `count - 1`; also used to draw popular documents."""
    cumulative = _cumulative_weights(count, theta)
    return min(bisect_left(cumulative, rng.random() * cumulative[-1]), count - 1)


@cache
def _cumulative_weights(count: int, theta: float) -> list[float]:
    return list(accumulate(rank**-theta for rank in range(1, count + 1)))


def _check_range(name: str, low: int, high: int) -> None:
    whole = type(low) is int and type(high) is int
    if not (whole and 1 <= low <= high <= 1 << 20):
        raise ConfigError(
            f"{name} lengths run from {low!r} to {high!r}.",
            expected="whole numbers, 1 or more, in ascending order, below a million",
        )
