"""Small tokenizers, built here, of the two kinds that Llama-family models use."""

from collections.abc import Mapping
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from tinyvllm_lab.paths import assets_dir

TINY = assets_dir() / "models" / "tiny"
CORPUS = ["the cat sat on the mat", "naïve café 日本語 🙂🙂 👩‍👩‍👧", "\n\n  tabs\tand spaces"]


def byte_level() -> Tokenizer:
    """Bytes as tokens and a few merges; with added tokens that try the decoder's odd corners."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=320,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=["<s>", "</s>"],
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.add_tokens(["<think>", "two words", "é!", "日"])
    return tokenizer


def byte_fallback(strip: bool = True) -> Tokenizer:
    """Characters as tokens, and one token a byte for the rest, as Llama 2 has it."""
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{b:02X}>" for b in range(256)), "▁", *"abcdehlot", "é"]
    merges = [("▁", "t"), ("h", "e"), ("▁t", "he")]
    tokens += [a + b for a, b in merges]
    model = models.BPE(
        vocab={token: i for i, token in enumerate(tokens)},
        merges=merges,
        unk_token="<unk>",
        byte_fallback=True,
    )
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(" "), "isolated"), pre_tokenizers.Metaspace("▁", "first")]
    )
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    tokenizer.decoder = decoders.Sequence([*steps, decoders.Strip(" ", 1, 0)] if strip else steps)
    special = [AddedToken(text, special=True) for text in ("<unk>", "<s>", "</s>")]
    tokenizer.add_special_tokens(special)
    return tokenizer


def write_folder(folder: Path, tokenizer: Tokenizer, files: Mapping[str, str]) -> Path:
    """A model folder with this tokenizer and these other files."""
    tokenizer.save(str(folder / "tokenizer.json"))
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder
