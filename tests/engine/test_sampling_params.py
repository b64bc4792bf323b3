"""`SamplingParams` refuses wrong types and wrong numbers by name."""

import pytest

from tinyvllm_lab.engine.sampling_params import SamplingParams
from tinyvllm_lab.errors import ConfigError

WRONG = [
    ("max_tokens", 0), ("max_tokens", 10**20), ("max_tokens", 2.5), ("max_tokens", "5"),
    ("n", True), ("n", 1.5), ("n", 65), ("min_tokens", -1), ("temperature", None),
    ("temperature", -0.1), ("temperature", float("nan")), ("temperature", float("inf")),
    ("top_k", 1.5), ("top_k", -1), ("top_p", 1.5), ("top_p", float("nan")), ("min_p", -1),
    ("repetition_penalty", 0.0), ("presence_penalty", 3), ("frequency_penalty", "x"),
    ("logit_bias", None), ("logit_bias", [1]), ("logit_bias", {"a": 1}), ("seed", "a"),
    ("logprobs", 1.5), ("logprobs", 51), ("stop", None), ("stop", 5), ("stop", ("",)),
    ("stop", (1,)), ("stop_token_ids", None), ("stop_token_ids", ["a"]), ("stop_token_ids", [-1]),
    ("ignore_eos", "yes"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "value"), WRONG)
def test_a_wrong_value_is_refused_by_name(name, value):
    with pytest.raises(ConfigError, match=f"SamplingParams.{name} is"):
        SamplingParams(**{name: value})


def test_lists_and_one_string_are_taken():
    params = SamplingParams(stop="end", stop_token_ids=[3, 4], temperature=1)
    assert params.stop == ("end",)
    assert params.stop_token_ids == (3, 4)
