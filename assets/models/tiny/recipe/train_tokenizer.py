"""Trains the tokenizer: byte-level BPE with Llama 3's split pattern and special tokens.

python train_tokenizer.py train.jsonl tokenizer.json
"""

import json
import re
import sys
from itertools import islice

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, processors
from tokenizers.trainers import BpeTrainer

VOCAB_SIZE = 2048
NUM_DOCUMENTS = 60_001
"""The shipped tokenizer saw the first so many documents of seed 1."""

SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""Llama 3's own: words with the space before them, numbers in threes, runs of signs and spaces."""

NAMED = {
    0: "begin_of_text", 1: "end_of_text", 4: "finetune_right_pad_id", 6: "start_header_id",
    7: "end_header_id", 8: "eom_id", 9: "eot_id", 10: "python_tag",
}  # fmt: skip
RESERVED = [place for place in range(16) if place not in NAMED]
SPECIAL_TOKENS = [
    f"<|{NAMED[place]}|>"
    if place in NAMED
    else f"<|reserved_special_token_{RESERVED.index(place)}|>"
    for place in range(16)
]
"""Llama 3's first sixteen, in its order: so one loader and one template serve both models."""


def untrained():
    """A tokenizer that splits as Llama 3's does, without merges."""
    tokenizer = Tokenizer(models.BPE(ignore_merges=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLIT), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def parts(documents):
    """The texts between special tokens, which must not be merged with anything."""
    for text in documents:
        yield from filter(None, re.split(r"<\|[a-z_]+\|>", text))


def train_tokenizer(documents):
    """Learn the merges of the first documents, and add the special tokens behind them."""
    tokenizer = untrained()
    trainer = BpeTrainer(
        vocab_size=VOCAB_SIZE - len(SPECIAL_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=[],
        show_progress=False,
    )
    tokenizer.train_from_iterator(parts(islice(documents, NUM_DOCUMENTS)), trainer)
    tokenizer.add_special_tokens(
        [AddedToken(text, special=True, normalized=False) for text in SPECIAL_TOKENS]
    )
    bos = SPECIAL_TOKENS[0]
    tokenizer.post_processor = processors.Sequence(
        [
            processors.ByteLevel(trim_offsets=True),
            processors.TemplateProcessing(
                single=f"{bos} $A",
                pair=f"{bos} $A {bos}:1 $B:1",
                special_tokens=[(bos, tokenizer.token_to_id(bos))],
            ),
        ]
    )
    return tokenizer


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as file:
        train_tokenizer(map(json.loads, file)).save(sys.argv[2])
