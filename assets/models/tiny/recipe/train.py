"""Trains the model on the corpus, by the clock, and writes a Hugging Face checkpoint.

`retrain.py` starts it once per process; see there.
"""

import json
import os
import time

import numpy as np
import torch
import torch.distributed as dist
from architecture import CONFIG, GENERATION_CONFIG, TinyLlama
from optimizer import Optimizer
from safetensors.torch import save_file
from tokenizers import Tokenizer

TOKENS_PER_STEP = 4096
PHASES = ((0.25, 64), (0.45, 256), (1.0, 512))
"""Row length until this share of the time: short rows first, they are cheaper."""
COPY_SHARE, COPY_UNTIL = 0.5, 0.6
"""Rows of random tokens that repeat teach copying early; their share falls to zero by then."""


def encode_corpus(tokenizer, path, chunk=5000):
    """All token ids of a corpus file, int32 `[num_tokens]`."""
    arrays, texts = [], []

    def encode():
        encoded = tokenizer.encode_batch(texts, add_special_tokens=False)
        arrays.extend(np.array(e.ids, np.uint16) for e in encoded)
        texts.clear()

    with open(path, encoding="utf-8") as file:
        for line in file:
            texts.append(json.loads(line))
            if len(texts) == chunk:
                encode()
    encode()
    return torch.from_numpy(np.concatenate(arrays).astype(np.int32))


class Batches:
    """Rows of a corpus. Half of them start with a document, so that position 0 is BOS as in use."""

    def __init__(self, tokens, seed):
        self.tokens = tokens
        self.generator = torch.Generator().manual_seed(seed)
        self.starts = (tokens == CONFIG["bos_token_id"]).nonzero().flatten()

    def draw(self, rows, length, progress):
        """Inputs and targets, each `[rows, length]`."""
        last = len(self.tokens) - length - 1
        starts = self.starts[: torch.searchsorted(self.starts, last)]
        at_start = torch.rand(rows, generator=self.generator) < 0.5
        places = torch.where(
            at_start, starts[self._numbers(len(starts), rows)], self._numbers(last, rows)
        )
        block = torch.stack([self.tokens[i : i + length + 1] for i in places]).long()
        share = COPY_SHARE * max(0.0, 1 - progress / COPY_UNTIL)
        for row in range(round(rows * share)):
            block[row] = self._copy_row(length)
        return block[:, :-1], block[:, 1:]

    def _copy_row(self, length):
        period = int(self._numbers(max(length // 3, 8) - 4, 1)) + 4
        pattern = self.tokens[self._numbers(len(self.tokens), period)].long()
        return pattern.repeat(length // period + 2)[: length + 1]

    def _numbers(self, limit, count):
        return torch.randint(limit, (count,), generator=self.generator)


def share_gradients(model, world):
    """Average the gradients of all processes."""
    flat = torch.cat([p.grad.flatten() for p in model.parameters()]).bfloat16()
    dist.all_reduce(flat)
    flat, at = flat.float() / world, 0
    for p in model.parameters():
        p.grad.copy_(flat[at : at + p.numel()].view_as(p))
        at += p.numel()


def progress_of(started, minutes, world):
    """Share of the time that is over; all processes must agree on it."""
    share = torch.tensor([(time.time() - started) / (60 * minutes)], dtype=torch.float64)
    if world > 1:
        dist.broadcast(share, 0)
    return share.item()


@torch.no_grad()
def validation_loss(model, tokens, rows=16):
    """Mean loss on the first rows of held-out text."""
    block = torch.stack([tokens[1024 * i : 1024 * i + 513] for i in range(rows)]).long()
    return model.loss(block[:, :-1], block[:, 1:]).item()


def write_checkpoint(model, folder):
    """Weights in bf16, and the two configs, as Hugging Face names them."""
    state = {name: p.to(torch.bfloat16).contiguous() for name, p in model.state_dict().items()}
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    for name, content in (("config", CONFIG), ("generation_config", GENERATION_CONFIG)):
        (folder / f"{name}.json").write_text(json.dumps(content, indent=2))


def train(folder, data, minutes, rank=0, world=1, max_steps=None):
    """Train for so many minutes on `data/train.jsonl`, and write the checkpoint into `folder`."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    if world > 1:
        os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
        os.environ.setdefault("MASTER_PORT", "29511")
        dist.init_process_group("gloo", rank=rank, world_size=world)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    batches = Batches(encode_corpus(tokenizer, data / "train.jsonl"), seed=rank)
    held_out = encode_corpus(tokenizer, data / "val.jsonl")
    model = TinyLlama()
    optimizer, started, reported = Optimizer(model), time.time(), time.time()
    while (progress := progress_of(started, minutes, world)) < 1:
        length = next(size for until, size in PHASES if progress < until)
        rows = max(1, TOKENS_PER_STEP // length // world)
        loss = model.loss(*batches.draw(rows, length, progress))
        model.zero_grad(set_to_none=True)
        loss.backward()
        if world > 1:
            share_gradients(model, world)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step(progress)
        if rank == 0 and time.time() - reported > 60:
            reported = time.time()
            print(
                f"{progress:4.0%}  step {optimizer.num_steps}  loss {loss.item():.3f}  "
                f"held out {validation_loss(model, held_out):.3f}", flush=True,
            )  # fmt: skip
        if optimizer.num_steps == max_steps:
            break
    if rank == 0:
        write_checkpoint(model, folder)
    return model
