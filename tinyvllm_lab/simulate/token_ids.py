"""Made-up token ids, for prompts and answers that nobody reads."""

from random import Random

TOKEN_IDS = 2000
"""They run from 0 to this: ordinary tokens in the vocabulary of every model of the course."""


def synthetic_tokens(rng: Random, count: int) -> tuple[int, ...]:
    """Draw `count` made-up token ids."""
    return tuple(rng.choices(range(TOKEN_IDS), k=count))
