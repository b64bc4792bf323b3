"""The shipped model, greedy in float32: our tokens are transformers' tokens."""

import pytest
import torch
from executor_harness import Harness
from transformers import AutoTokenizer, LlamaForCausalLM

from tinyvllm_lab.model.llama import LlamaModel
from tinyvllm_lab.paths import assets_dir

TINY = assets_dir() / "models" / "tiny"
STEPS = 40
QUESTIONS = (
    "Tell me a story about a brave fox named Ruby and a lost kite.",
    "What is PagedAttention?",
    "Count from 1 to 9.",
)

torch.set_num_threads(1)


@pytest.fixture(scope="module")
def model():
    return LlamaModel.from_dir(TINY, dtype="float32")


@pytest.fixture(scope="module")
def expected():
    """Prompt ids and what transformers generates from them, one prompt at a time."""
    tokenizer = AutoTokenizer.from_pretrained(TINY)
    hf_model = LlamaForCausalLM.from_pretrained(TINY, dtype=torch.float32).eval()
    pairs = []
    for question in QUESTIONS:
        chat = [{"role": "user", "content": question}]
        ids = tokenizer.apply_chat_template(chat, add_generation_prompt=True)["input_ids"]
        out = hf_model.generate(
            torch.tensor([ids]),
            attention_mask=torch.ones(1, len(ids), dtype=torch.long),
            do_sample=False,
            max_new_tokens=STEPS,
        )
        pairs.append((ids, out[0, len(ids) :].tolist()))
    return pairs


@pytest.mark.parametrize(
    "knobs", [{}, {"allocator": "contiguous-best-fit"}, {"use_kv_cache": False}]
)
def test_greedy_tokens_equal_transformers(model, expected, knobs):
    harness = Harness(model, num_blocks=256, **knobs)
    requests = [harness.add(ids, room=STEPS) for ids, _ in expected]
    harness.generate(requests, STEPS)
    for request, (_, tokens) in zip(requests, expected, strict=True):
        # The executor knows no stop tokens: it goes on where transformers has ended.
        assert request.output_token_ids[: len(tokens)] == tokens
