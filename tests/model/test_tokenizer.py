"""Encoding, decoding and special ids; the oracle is transformers' fast tokenizer on one folder."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizer_samples import TINY, byte_fallback, byte_level, write_folder
from tokenizers import AddedToken, processors

from tinyvllm_lab.errors import ModelError
from tinyvllm_lab.model.tokenizer import Tokenizer

TEXTS = [
    "",
    "Once upon a time",
    "naïve 日本語 🙂",
    "a\n\n b",
    "<|eot_id|> inside <|begin_of_text|>",
]


@pytest.fixture(scope="module")
def tiny():
    return Tokenizer.from_dir(TINY)


@pytest.fixture(scope="module")
def hf_tiny():
    from transformers import PreTrainedTokenizerFast

    return PreTrainedTokenizerFast.from_pretrained(TINY)


@pytest.mark.parametrize("add_special_tokens", [True, False])
@pytest.mark.parametrize("text", TEXTS)
def test_encodes_and_decodes_as_transformers(tiny, hf_tiny, text, add_special_tokens):
    ids = tiny.encode(text, add_special_tokens)
    assert ids == hf_tiny.encode(text, add_special_tokens=add_special_tokens)
    for skip in (True, False):
        assert tiny.decode(ids, skip) == hf_tiny.decode(ids, skip_special_tokens=skip)


def test_special_ids_as_transformers(tiny, hf_tiny):
    assert tiny.bos_token_id == hf_tiny.bos_token_id
    assert tiny.eos_token_id == hf_tiny.eos_token_id
    assert tiny.vocab_size == len(hf_tiny)
    assert {i for i in range(tiny.vocab_size) if tiny.is_special(i)} >= set(hf_tiny.all_special_ids)


def test_every_llama_3_end_is_an_eos_30(tiny):
    ends = ("<|end_of_text|>", "<|eom_id|>", "<|eot_id|>")
    assert set(tiny.eos_token_ids) == {tiny.token_id(text) for text in ends}


@given(st.text())
def test_any_text_survives_the_round_trip(text):
    assert ROUND_TRIP.decode(ROUND_TRIP.encode(text), skip_special_tokens=False) == text


ROUND_TRIP = Tokenizer(byte_level())


def test_token_text_shows_what_a_token_is(tiny):
    assert tiny.token_text(tiny.bos_token_id) == "<|begin_of_text|>"
    assert [tiny.token_text(i) for i in tiny.encode(" the", False)] == [" the"]
    robot = [tiny.token_text(i) for i in tiny.encode("🤖", False)]
    assert "".join(robot).replace("\\x", "") == "🤖".encode().hex()
    assert tiny.token_text(tiny.vocab_size + 5) == ""


def test_token_text_of_byte_tokens():
    tokenizer = Tokenizer(byte_fallback())
    assert tokenizer.token_text(tokenizer.token_id("<0xE2>")) == r"\xe2"
    assert tokenizer.token_text(tokenizer.token_id("▁the")) == " the"


def test_padding_and_truncation_left_in_the_file_are_ignored(tmp_path):
    backend = byte_level()
    backend.enable_truncation(2)
    backend.enable_padding(length=9)
    tokenizer = Tokenizer.from_dir(write_folder(tmp_path, backend, {}))
    assert tokenizer.decode(tokenizer.encode("the cat sat")) == "the cat sat"


def test_special_tokens_come_as_text_or_object_or_from_the_older_file(tmp_path):
    files = {
        "tokenizer_config.json": json.dumps({"bos_token": {"content": "<s>", "lstrip": False}}),
        "special_tokens_map.json": json.dumps({"bos_token": "no", "eos_token": "</s>"}),
    }
    tokenizer = Tokenizer.from_dir(write_folder(tmp_path, byte_level(), files))
    assert tokenizer.bos_token_id == tokenizer.token_id("<s>")
    assert tokenizer.eos_token_ids == (tokenizer.token_id("</s>"),)


def test_a_folder_with_tokenizer_json_alone(tmp_path):
    tokenizer = Tokenizer.from_dir(write_folder(tmp_path, byte_level(), {}))
    assert tokenizer.bos_token_id is None
    assert tokenizer.eos_token_ids == ()


def test_bos_is_added_once_to_a_prompt_and_never_to_a_chat(tmp_path):
    backend = byte_level()
    marks = ["<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]
    backend.add_special_tokens([AddedToken(mark, special=True) for mark in marks])
    bos = backend.token_to_id(marks[0])
    backend.post_processor = processors.TemplateProcessing(
        single=f"{marks[0]} $A", special_tokens=[(marks[0], bos)]
    )
    tokenizer = Tokenizer.from_dir(write_folder(tmp_path, backend, {}))
    assert tokenizer.encode("the").count(bos) == 1
    assert tokenizer.encode_chat([{"role": "user", "content": "the"}]).count(bos) == 1


@pytest.mark.parametrize("bad", ["a\ud800b", None, 5, ["a"]])
def test_what_is_no_text_cannot_be_encoded(tiny, bad):
    with pytest.raises(ModelError, match="cannot be encoded"):
        tiny.encode(bad)


@pytest.mark.parametrize("bad", [[-1], [1 << 40], ["a"], [0.5]])
def test_what_is_no_id_cannot_be_decoded(tiny, bad):
    with pytest.raises(ModelError, match="cannot be decoded"):
        tiny.decode(bad)


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(ModelError, match=r"tokenizer\.json does not exist"):
        Tokenizer.from_dir(tmp_path / "nowhere")


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"model": {"type": "Unheard"}}', "\x00\x01"])
def test_a_damaged_tokenizer_is_named(tmp_path, damage):
    (tmp_path / "tokenizer.json").write_text(damage)
    with pytest.raises(ModelError, match=r"tokenizer\.json is damaged"):
        Tokenizer.from_dir(tmp_path)


@pytest.mark.parametrize("damage", ["{", "[1]", "\xff", "null"])
def test_a_damaged_tokenizer_config_is_named(tmp_path, damage):
    folder = write_folder(tmp_path, byte_level(), {})
    (folder / "tokenizer_config.json").write_bytes(damage.encode("latin-1"))
    with pytest.raises(ModelError, match=r"tokenizer_config\.json"):
        Tokenizer.from_dir(folder)
