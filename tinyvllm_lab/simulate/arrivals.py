"""When requests arrive: Poisson, in bursts, or in a closed loop of users.

An open loop sends at its own pace, whatever the server does; that is how the internet behaves, and
the only way to see a server collapse. In a closed loop every user waits for the answer before
asking again, so a slow server slows its own load down (Schroeder, Wierman, Harchol-Balter: Open
versus closed, NSDI 2006; chapter 15).
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import NamedTuple, Protocol

from tinyvllm_lab.errors import ConfigError


class Start(NamedTuple):
    """When a conversation begins.

    Attributes:
        delay_s: seconds from the start of the workload, or from the end of conversation `after`.
        after: index of the conversation that must end before; None: an absolute time.
    """

    delay_s: float
    after: int | None = None


class Arrivals(Protocol):
    """A rule that gives each of `count` conversations its start, in order."""

    def starts(self, count: int, rng: Random) -> list[Start]:
        """Draw the starts; `after` is always a smaller index."""


@dataclass(frozen=True, slots=True)
class Poisson:
    """Independent arrivals: the gaps are exponential with mean `1 / rate_per_s`."""

    rate_per_s: float

    def __post_init__(self) -> None:
        _check("Poisson.rate_per_s", self.rate_per_s, above=0.0)

    def starts(self, count: int, rng: Random) -> list[Start]:
        """Draw the starts; the first gap comes before the first arrival."""
        now, starts = 0.0, []
        for _ in range(count):
            now += rng.expovariate(self.rate_per_s)
            starts.append(Start(now))
        return starts


@dataclass(frozen=True, slots=True)
class Bursts:
    """`size` arrivals every `every_s` seconds, each spread evenly over `spread_s` seconds."""

    size: int
    every_s: float
    spread_s: float = 0.0

    def __post_init__(self) -> None:
        _check("Bursts.size", self.size, above=0)
        _check("Bursts.every_s", self.every_s, above=0.0)
        _check("Bursts.spread_s", self.spread_s, above=None)

    def starts(self, count: int, rng: Random) -> list[Start]:
        """Draw the starts, in ascending order."""
        times = [
            number // self.size * self.every_s + rng.random() * self.spread_s
            for number in range(count)
        ]
        return [Start(time) for time in sorted(times)]


@dataclass(frozen=True, slots=True)
class ClosedLoop:
    """`users` people, each of whom begins again when the last answer is complete.

    Conversation k belongs to user k modulo `users`. Before each but the first a user thinks, for an
    exponential time with mean `think_s`; the first ones are spread over the same mean.
    """

    users: int
    think_s: float = 0.0

    def __post_init__(self) -> None:
        _check("ClosedLoop.users", self.users, above=0)
        _check("ClosedLoop.think_s", self.think_s, above=None)

    def starts(self, count: int, rng: Random) -> list[Start]:
        """Draw the thinking times; all but the first of a user follow the one before."""
        return [
            Start(exponential(rng, self.think_s), k - self.users if k >= self.users else None)
            for k in range(count)
        ]


def exponential(rng: Random, mean: float) -> float:
    """An exponential time with this mean; 0 if the mean is 0."""
    return rng.expovariate(1.0 / mean) if mean else 0.0


def _check(name: str, value: float, above: float | None) -> None:
    """`value` must be finite and above `above`; None: 0 or more."""
    good = value >= 0 if above is None else value > above
    if not (good and value < float("inf")):
        expected = "0 or more" if above is None else f"more than {above}"
        raise ConfigError(f"{name} is {value!r}.", f"{expected}, and finite")
