"""What `LLM` refuses, what fails in it, and that neither leaves anything behind."""

import pytest
import torch

from tinyvllm_lab.cache import BlockPool
from tinyvllm_lab.engine.sampling_params import SamplingParams
from tinyvllm_lab.errors import ConfigError, EngineError, ModelError, RequestRefused
from tinyvllm_lab.llm import LLM
from tinyvllm_lab.model import layers
from tinyvllm_lab.simulate import presets
from tinyvllm_lab.simulate.run import simulate

torch.set_num_threads(1)
PROMPTS = ["Once upon a time", "One day, a fox", "The little cat was"]
GREEDY = SamplingParams(temperature=0.0, max_tokens=24)


@pytest.fixture(scope="module")
def llm():
    with LLM("tiny", dtype="float32") as llm:
        yield llm


@pytest.fixture(autouse=True)
def nothing_is_left(llm):
    yield
    assert not llm.engine.requests
    assert not llm.engine.scheduler.has_work
    assert llm.engine.scheduler.memory.num_used == 0


@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [
        ({"model": None}, ModelError, "The model is None"),
        ({"device": "gpu"}, ConfigError, "device is 'gpu'"),
        ({"device": "cuda:99"}, ConfigError, "a device of this machine: cpu"),
        ({"engine_config": {}}, ConfigError, "config is {}, of type dict"),
        ({"kernels": "opencl"}, ConfigError, "kernels is 'opencl'"),
    ],
)
def test_a_wrong_argument_is_named(wrong, error, message):
    with pytest.raises(error, match=message):
        LLM(**wrong)


def test_what_is_no_workload_and_no_config_is_not_simulated():
    with pytest.raises(ConfigError, match="The workload is None"):
        simulate(None)
    with pytest.raises(ConfigError, match="config is 16, of type int"):
        simulate(presets.airport(1), 16)


@pytest.mark.parametrize("bad", [[], [-1], [2048], [0.5], [1] * 3000, None, {"a": 1}, ["x", ["y"]]])
def test_one_bad_prompt_refuses_the_call_and_leaves_nothing(llm, bad):
    with pytest.raises(RequestRefused):
        llm.generate([PROMPTS[0], bad], GREEDY)
    assert llm.generate(PROMPTS[0], GREEDY)


@pytest.mark.parametrize("settings", [{"stop_token_ids": (2048,)}, {"logit_bias": {2048: 1.0}}])
def test_ids_outside_the_vocabulary_are_refused_31(llm, settings):
    with pytest.raises(RequestRefused, match="2048"):
        llm.generate(PROMPTS[0], SamplingParams(**settings))


def test_wrong_numbers_of_params_and_samples_are_refused(llm):
    with pytest.raises(ConfigError, match="3 prompts, and 2 sampling params"):
        llm.generate(PROMPTS, [GREEDY, GREEDY])
    with pytest.raises(ConfigError, match="The sampling params are"):
        llm.generate(PROMPTS, {"temperature": 1.0})
    with pytest.raises(ConfigError, match="n is 2"):
        llm.stream(PROMPTS[0], SamplingParams(n=2))


def test_no_conversation_is_refused(llm):
    with pytest.raises(ModelError, match="conversation"):
        llm.chat([])


class FailsOnce:
    """RMSNorm, but for one call."""

    def __init__(self, failing_call):
        self.calls_left = failing_call

    def __call__(self, x, weight, eps):
        self.calls_left -= 1
        if self.calls_left == 0:
            raise ZeroDivisionError("my kernel")
        return layers.rms_norm(x, weight, eps)


def test_an_error_in_my_own_kernel_reaches_me_and_the_engine_goes_on():
    llm = LLM("tiny", kernels={"rmsnorm": FailsOnce(40)})
    other = llm.stream(PROMPTS[1], GREEDY)
    next(other)
    with pytest.raises(EngineError, match="my kernel") as caught:
        llm.generate(PROMPTS[0], GREEDY)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    with pytest.raises(EngineError, match="ended in a step that failed"):
        list(other)
    assert llm.engine.scheduler.memory.num_used == 0
    assert len(llm.generate(PROMPTS[0], GREEDY)[0].token_ids) == 24


def test_a_learners_own_error_is_the_one_that_is_seen():
    class Bad(BlockPool):
        def allocate(self, *args):
            raise IndexError("my bug")

    llm = LLM("tiny", dtype="float32", block_pool=Bad)
    with pytest.raises(IndexError, match="my bug"):
        llm.generate(["a b c", "d e f"], SamplingParams(max_tokens=3))
