"""Our tokenizer and built-in chat template on the real Llama 3 vocabulary.

Meta's vocabulary is not ours to ship. Its PyPI package `llama-models` carries it: pip fetches the
package (6.6 MB) into pytest's cache, once. Offline these tests are not run; in CI that is an
error.
"""

import base64
import hashlib
import subprocess
import sys
import zipfile
from functools import cache
from pathlib import Path

import pytest
import regex
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Regex, decoders, models, pre_tokenizers, processors
from tokenizers import Tokenizer as Backend

from tinyvllm_lab.model.tokenizer import Tokenizer

PACKAGE = "llama-models==0.3.0"
MEMBER = "llama_models/llama3/tokenizer.model"
SHA256 = "82e9d31979e92ab929cd544440f129d9ecd797b69e327f80f17e1c50d5551b55"
NUM_BASE_TOKENS = 128_000
SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def download_wheel(folder: Path) -> Path:
    wheels = list(folder.glob("llama_models-*.whl"))
    if not wheels:
        command = [sys.executable, "-m", "pip", "download", PACKAGE, "--no-deps", "--quiet"]
        command += ["--only-binary=:all:", "--retries=1", "--timeout=20", f"--dest={folder}"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        wheels = list(folder.glob("llama_models-*.whl"))
        if not wheels:
            reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
            pytest.skip(f"needs pip to fetch {PACKAGE} ({reason})")
    return wheels[0]


@pytest.fixture(scope="module")
def ranks(pytestconfig) -> dict[bytes, int]:
    """Meta's vocabulary: the bytes of each token, by rank (= id)."""
    wheel = download_wheel(Path(pytestconfig.cache.mkdir("llama-models")))
    data = zipfile.ZipFile(wheel).read(MEMBER)
    assert hashlib.sha256(data).hexdigest() == SHA256
    lines = (line.split() for line in data.splitlines() if line)
    return {base64.b64decode(token): int(rank) for token, rank in lines}


def special_tokens() -> list[str]:
    """Llama 3's 256 special tokens, in the order of their ids."""
    reserved = [f"<|reserved_special_token_{i}|>" for i in range(246)]
    turns = ["start_header_id", "end_header_id", "eom_id", "eot_id", "python_tag", "image"]
    named = [f"<|{name}|>" for name in ("finetune_right_pad_id", "step_id", *turns)]
    text = ["<|begin_of_text|>", "<|end_of_text|>"]
    return [*text, *reserved[:2], *named, *reserved[2:]]


def to_backend(ranks: dict[bytes, int]) -> Backend:
    """tiktoken's ranks as a `tokenizers` BPE: a merge of two tokens ranks as what it makes."""
    byte_chars = sorted(pre_tokenizers.ByteLevel.alphabet())
    printable = {char: ord(char) for char in byte_chars if ord(char) < 256}
    hidden = sorted(set(range(256)) - set(printable.values()))
    others = [char for char in byte_chars if ord(char) >= 256]
    spell = dict(zip([*printable.values(), *hidden], [*printable, *others], strict=True))
    spelled = {token: "".join(spell[b] for b in token) for token in ranks}
    merges = []
    for token, rank in ranks.items():
        for cut in range(1, len(token)):
            left, right = token[:cut], token[cut:]
            if left in ranks and right in ranks:
                merges.append((rank, ranks[left], ranks[right], spelled[left], spelled[right]))
    backend = Backend(
        models.BPE(
            vocab={spelled[token]: rank for token, rank in ranks.items()},
            merges=[pair[3:] for pair in sorted(merges)],
            ignore_merges=True,
        )
    )
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLIT), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken(name, special=True) for name in special_tokens()])
    bos = "<|begin_of_text|>"
    backend.post_processor = processors.TemplateProcessing(
        single=f"{bos} $A", special_tokens=[(bos, backend.token_to_id(bos))]
    )
    return backend


@pytest.fixture(scope="module")
def llama3(ranks, tmp_path_factory) -> Tokenizer:
    folder = tmp_path_factory.mktemp("llama3")
    to_backend(ranks).save(str(folder / "tokenizer.json"))
    config = '{"bos_token": "<|begin_of_text|>", "eos_token": "<|eot_id|>"}'
    (folder / "tokenizer_config.json").write_text(config)
    return Tokenizer.from_dir(folder)


def byte_pair_merge(piece: bytes, ranks: dict[bytes, int]) -> list[int]:
    """tiktoken's rule: a piece that is a token stays whole; else merge the lowest rank first."""
    if piece in ranks:
        return [ranks[piece]]
    parts = [bytes([b]) for b in piece]
    while len(parts) > 1:
        found = [(ranks.get(parts[i] + parts[i + 1]), i) for i in range(len(parts) - 1)]
        mergeable = [(rank, i) for rank, i in found if rank is not None]
        if not mergeable:
            break
        _, i = min(mergeable)
        parts[i : i + 2] = [parts[i] + parts[i + 1]]
    return [ranks[part] for part in parts]


@cache
def split_pattern():
    return regex.compile(SPLIT)


def reference_encode(text: str, ranks: dict[bytes, int]) -> list[int]:
    pieces = split_pattern().findall(text)
    return [i for piece in pieces for i in byte_pair_merge(piece.encode(), ranks)]


def test_special_ids_are_llama_3s(llama3):
    ids = {
        "<|begin_of_text|>": 128000,
        "<|end_of_text|>": 128001,
        "<|finetune_right_pad_id|>": 128004,
        "<|start_header_id|>": 128006,
        "<|end_header_id|>": 128007,
        "<|eom_id|>": 128008,
        "<|eot_id|>": 128009,
        "<|python_tag|>": 128010,
    }
    assert {name: llama3.token_id(name) for name in ids} == ids
    assert llama3.vocab_size == NUM_BASE_TOKENS + 256
    assert llama3.eos_token_ids == (128001, 128008, 128009)


def test_a_sentence_has_the_ids_that_metas_own_test_expects(llama3):
    assert llama3.encode("This is a test sentence.") == [128000, 2028, 374, 264, 1296, 11914, 13]


CODE_AND_WORDS = st.text(alphabet="aeiou tnrsl'SD\n\t.,;(){}0123456789éß日本🙂")


@settings(max_examples=200)
@given(text=st.one_of(st.text(), CODE_AND_WORDS))
def test_encodes_as_tiktokens_rule_and_streams_back(llama3, ranks, text):
    ids = llama3.encode(text, add_special_tokens=False)
    assert ids == reference_encode(text, ranks)
    detokenizer = llama3.detokenizer()
    pieces = [detokenizer.push([i]) for i in ids]
    assert "".join(pieces) + detokenizer.flush() == text


def test_a_chat_renders_to_llama_3_2s_tokens(llama3):
    messages = [
        {"role": "system", "content": "This is a test sentence."},
        {"role": "user", "content": "This is a test sentence. "},
    ]
    sentence = [2028, 374, 264, 1296, 11914, 13]
    dates = llama3.encode(
        "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n", False
    )
    system, user, assistant, blank = 9125, 882, 78191, 271
    assert llama3.encode_chat(messages, date_string="26 Jul 2024") == [
        *(128000, 128006, system, 128007, blank, *dates, *sentence, 128009),
        *(128006, user, 128007, blank, *sentence, 128009),
        *(128006, assistant, 128007, blank),
    ]
