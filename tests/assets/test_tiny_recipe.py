"""The recipe makes what is shipped: tokenizer and configs byte for byte, weights alike in form."""

import hashlib
import json
import sys
from itertools import islice

import pytest
import torch

from tinyvllm_lab.model.llama import LlamaModel
from tinyvllm_lab.model.safetensors import open_checkpoint
from tinyvllm_lab.paths import assets_dir

TINY = assets_dir() / "models" / "tiny"
SHA256 = "660b210c436c3f79cbe97d2b29f13b4b0a26989529d352567531c0a6e42dee99"


@pytest.fixture(scope="module")
def recipe():
    """The recipe's modules, which import each other by plain names."""
    folder = str(TINY / "recipe")
    sys.path.insert(0, folder)
    import corpus
    import retrain
    import train
    import train_tokenizer

    yield {m.__name__: m for m in (corpus, retrain, train, train_tokenizer)}
    sys.path.remove(folder)


def test_the_weights_are_the_ones_that_the_readme_names():
    assert hashlib.sha256((TINY / "model.safetensors").read_bytes()).hexdigest() == SHA256
    assert SHA256 in (TINY / "README.md").read_text()


def test_the_shipped_tokenizer_is_what_the_recipe_trains(recipe, tmp_path):
    documents = recipe["corpus"].documents(recipe["retrain"].SEED)
    recipe["train_tokenizer"].train_tokenizer(documents).save(str(tmp_path / "tokenizer.json"))
    assert (tmp_path / "tokenizer.json").read_bytes() == (TINY / "tokenizer.json").read_bytes()


def test_a_short_training_writes_a_folder_like_the_shipped_one(recipe, tmp_path):
    for name, count in (("train", 40), ("val", 40)):
        documents = islice(recipe["corpus"].documents(3), count)
        (tmp_path / f"{name}.jsonl").write_text("\n".join(map(json.dumps, documents)))
    (tmp_path / "tokenizer.json").write_bytes((TINY / "tokenizer.json").read_bytes())
    model = recipe["train"].train(tmp_path, tmp_path, minutes=5, max_steps=2)
    for name in ("config.json", "generation_config.json"):
        assert (tmp_path / name).read_bytes() == (TINY / name).read_bytes()
    shipped, made = open_checkpoint(TINY), open_checkpoint(tmp_path)
    assert {n: shipped.info(n).shape for n in shipped} == {n: made.info(n).shape for n in made}
    check_against_ours(model, LlamaModel.from_dir(tmp_path, dtype="float32"))


@torch.no_grad()
def check_against_ours(trained, ours):
    """The model that was trained is the model that the course runs."""
    from tinyvllm_lab.model.layers import CausalAttention

    ids = torch.arange(100, 140)
    logits = ours.forward(ids, torch.arange(40), CausalAttention([40]))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        expected = trained.model(ids[None])[0].float()
    torch.testing.assert_close(logits, expected, atol=0.05, rtol=0.05)


def test_a_seed_always_writes_the_same_text(recipe):
    first, again = ([*islice(recipe["corpus"].documents(1), 50)] for _ in range(2))
    assert first == again
    assert first[0].startswith("<|begin_of_text|>")
