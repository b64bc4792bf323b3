"""Streamed text equals full decoding, however the tokens come; the oracle is `tokenizers`."""

from functools import cache
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizer_samples import TINY, byte_fallback, byte_level
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models

from tinyvllm_lab.errors import ModelError
from tinyvllm_lab.model.tokenizer import Tokenizer

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
# Characters of one to four bytes, joiners and marks that combine.
TRICKY = "aé日🙂👩‍👧\u0301\u200d\ufe0f🇫🇷ก้ \n"
TEXTS = st.one_of(st.text(), st.text(alphabet=TRICKY, max_size=30))


@cache
def tokenizer(kind: str) -> Tokenizer:
    if kind == "tiny":
        return Tokenizer.from_dir(TINY)
    backends = {
        "byte-level": byte_level,
        "byte-fallback": byte_fallback,
        "byte-fallback without strip": lambda: byte_fallback(strip=False),
    }
    return Tokenizer(backends[kind]())


KINDS = ("tiny", "byte-level", "byte-fallback", "byte-fallback without strip")


def chunked(ids: list[int], cuts: list[int]) -> list[list[int]]:
    borders = sorted({min(cut, len(ids)) for cut in cuts} | {0, len(ids)})
    return [ids[a:b] for a, b in pairwise(borders)]


def stream(kind: str, chunks: list[list[int]], skip: bool = True) -> list[str]:
    detokenizer = tokenizer(kind).detokenizer(skip_special_tokens=skip)
    return [*(detokenizer.push(chunk) for chunk in chunks), detokenizer.flush()]


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data(), cuts=st.lists(st.integers(0, 40)), skip=st.booleans())
def test_any_ids_in_any_split_equal_full_decoding(kind, data, cuts, skip):
    vocab_size = tokenizer(kind).vocab_size
    # Three ids more than there are tokens: rows that only pad an embedding.
    ids = data.draw(st.lists(st.integers(0, vocab_size + 2), max_size=40))
    expected = tokenizer(kind).decode(ids, skip_special_tokens=skip)
    assert "".join(stream(kind, chunked(ids, cuts), skip)) == expected


@pytest.mark.parametrize("kind", KINDS[2:])
@given(data=st.data(), cuts=st.lists(st.integers(0, 20)))
def test_runs_of_byte_tokens_equal_full_decoding(kind, data, cuts):
    # Valid characters, cut and damaged: ids 3..258 are the bytes.
    blob = data.draw(TEXTS).encode()[: data.draw(st.integers(0, 20))]
    blob += bytes(data.draw(st.lists(st.integers(0, 255), max_size=3)))
    ids = [3 + b for b in blob]
    space, special = 259, 1
    for extra in (space, special):
        ids.insert(data.draw(st.integers(0, len(ids))), extra)
    assert "".join(stream(kind, chunked(ids, cuts))) == tokenizer(kind).decode(ids)


@pytest.mark.parametrize("kind", ["tiny", "byte-level"])
@given(text=TEXTS)
def test_no_character_is_emitted_broken(kind, text):
    ids = tokenizer(kind).encode(text, add_special_tokens=False)
    pieces = stream(kind, [[i] for i in ids], skip=False)
    assert "".join(pieces) == text
    assert "".join(pieces).count(REPLACEMENT) == text.count(REPLACEMENT)


def test_an_emoji_of_several_tokens_comes_as_one_piece():
    ids = tokenizer("tiny").encode("🤖!", add_special_tokens=False)
    pieces = stream("tiny", [[i] for i in ids])
    assert len(ids) > 2
    assert [piece for piece in pieces if piece] == ["🤖", "!"]


def test_an_unfinished_character_comes_at_the_flush():
    ids = tokenizer("tiny").encode("ok 🤖", add_special_tokens=False)[:-1]
    *pieces, last = stream("tiny", [[i] for i in ids])
    assert "".join(pieces) == "ok "
    assert last == REPLACEMENT


def test_endless_wrong_bytes_are_neither_kept_nor_decoded_again():
    # A stream that decodes its window again would look up 1 + 2 + … ids here.
    looked_up = []
    wrong = tokenizer("byte-level")
    stray_byte = wrong.token_id("Ģ")  # 0x80, which cannot start a character
    detokenizer = wrong.detokenizer()
    bytes_of = wrong._pieces.bytes_of
    try:
        wrong._pieces.bytes_of = lambda i: looked_up.append(i) or bytes_of(i)
        pieces = [detokenizer.push([stray_byte]) for _ in range(500)]
    finally:
        del wrong._pieces.bytes_of
    assert len(looked_up) == 500
    assert "".join(pieces) == REPLACEMENT * 500


@pytest.mark.parametrize(
    "decoder",
    [
        None,
        decoders.WordPiece(),
        decoders.Sequence([decoders.Replace("▁", " "), decoders.Strip(" ", 1, 0)]),
        decoders.Sequence([decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 0, 1)]),
    ],
)
def test_decoders_that_we_cannot_stream_are_refused_by_name(decoder):
    backend = Backend(models.BPE(vocab={"a": 0}, merges=[]))
    if decoder is not None:
        backend.decoder = decoder
    with pytest.raises(ModelError, match="decoder of tokenizer"):
        Tokenizer(backend)
