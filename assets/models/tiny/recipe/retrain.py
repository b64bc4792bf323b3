"""Makes the shipped model again, from nothing: corpus, tokenizer, training.

    python assets/models/tiny/recipe/retrain.py my-tiny-llama

writes a Hugging Face folder that `LLM("my-tiny-llama")` loads. The tokenizer and the configs come
out equal to the shipped ones; the weights do not, because training runs by the clock. The shipped
model took 26 minutes with two processes on two cores (AMD EPYC with avx512_bf16), 2,828 steps, and
ended at a held-out loss of 0.284.
"""

import argparse
import json
import tempfile
from pathlib import Path

import torch.multiprocessing as mp
from corpus import write_corpus
from train import train
from train_tokenizer import train_tokenizer

SEED, HELD_OUT_SEED = 1, 2
SHIPPED = Path(__file__).resolve().parent.parent


def worker(rank, folder, data, minutes, world):
    """One training process."""
    train(folder, data, minutes, rank, world)


def retrain(folder, minutes, processes, characters):
    """The whole recipe."""
    folder.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as temporary:
        data = Path(temporary)
        print("corpus ...", flush=True)
        write_corpus(data / "train.jsonl", characters, SEED)
        write_corpus(data / "val.jsonl", 600_000, HELD_OUT_SEED)
        print("tokenizer ...", flush=True)
        with open(data / "train.jsonl", encoding="utf-8") as file:
            train_tokenizer(map(json.loads, file)).save(str(folder / "tokenizer.json"))
        settings = (SHIPPED / "tokenizer_config.json").read_text(encoding="utf-8")
        (folder / "tokenizer_config.json").write_text(settings, encoding="utf-8")
        print(f"training for {minutes} minutes ...", flush=True)
        arguments = (folder, data, minutes, processes)
        mp.spawn(worker, arguments, nprocs=processes, join=True)


def main():
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="new folder for the model")
    parser.add_argument("--minutes", type=float, default=26.0)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--characters", type=int, default=120_000_000)
    options = parser.parse_args()
    if options.folder.exists():
        parser.error(f"{options.folder} exists already: name a new folder")
    retrain(options.folder, options.minutes, options.processes, options.characters)


if __name__ == "__main__":
    main()
