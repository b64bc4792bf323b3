"""Makes `rush.jsonl`, by which `make bench` times the playground: `python make_rush.py`.

Five hundred people ask something short within two seconds. However they are scheduled, that is one
request-step for each of the 10,000 and more tokens of their answers. Prompts have a length only:
their token ids are made up when the file is read.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

from tinyvllm_lab.simulate.arrivals import Poisson
from tinyvllm_lab.simulate.workloads import Workload

PATH = Path(__file__).parent / "rush.jsonl"
SEED = 500
REQUESTS, RATE_PER_S = 500, 250.0
PROMPT, ANSWER = (16, 96), (8, 34)  # tokens, from and to
ABOUT = "A rush hour: 500 short questions within two seconds, 10,000 answer tokens."


def lines() -> Iterator[dict[str, Any]]:
    """The header, then a request a line; times to the millisecond."""
    yield {"workload": "rush", "version": 1, "seed": SEED, "about": ABOUT}
    rng = Random(SEED)
    for number, start in enumerate(Poisson(RATE_PER_S).starts(REQUESTS, rng)):
        yield {
            "request_id": f"rush-{number}",
            "arrival_s": round(start.delay_s, 3),
            "prompt_len": rng.randint(*PROMPT),
            "max_tokens": rng.randint(*ANSWER),
        }


def main() -> None:
    """Write the file."""
    text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines())
    PATH.write_text(text, encoding="utf-8")
    print(Workload.load(PATH))


if __name__ == "__main__":
    main()
