"""Makes `course.jsonl`, the workload that chapters 08, 09 and 10 play: `python make_course.py`.

Thirty-six people ask the shipped model something. Eight of them wait when the doors open, the
others come one by one. `max_tokens` of each request is the length of the model's own greedy answer
in float32, its end-of-turn token included: so the workload takes the same steps with the real model
and in simulated time, where every request uses its `max_tokens`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

from tinyvllm_lab.engine.sampling_params import SamplingParams
from tinyvllm_lab.llm import LLM
from tinyvllm_lab.model.registry import resolve_model
from tinyvllm_lab.model.tokenizer import Tokenizer
from tinyvllm_lab.simulate.arrivals import Poisson
from tinyvllm_lab.simulate.text_workloads import ChatEncoder, text_workload
from tinyvllm_lab.simulate.workloads import Workload

PATH = Path(__file__).parent / "course.jsonl"
MODEL = "tiny"
SEED = 357
DECK = {
    "short_answer": 14, "glossary": 5, "count": 8, "story": 4, "long_prompt": 3, "hangs_up": 2,
}  # fmt: skip
WAITING, RATE_PER_S = 8, 30.0
ABOUT = (
    "Questions to the shipped model, with the lengths of its greedy answers; "
    "eight people wait at the start."
)


def questions(tokenizer: ChatEncoder) -> Workload:
    """Who asks what and when, to the millisecond; `max_tokens` is only a limit yet."""
    rng = Random(SEED)
    asked = [
        request
        for kind, count in DECK.items()
        for request in text_workload(tokenizer, count, kinds=[kind], seed=SEED)
    ]
    rng.shuffle(asked)
    later = Poisson(RATE_PER_S).starts(len(asked) - WAITING, rng)
    times = [0.0] * WAITING + [round(start.delay_s, 3) for start in later]
    requests = [
        replace(request, request_id=f"course-{number}", arrival_s=time)
        for number, (request, time) in enumerate(zip(asked, times, strict=True))
    ]
    return Workload("course", tuple(requests), SEED, ABOUT)


def answer_lengths(workload: Workload) -> list[int]:
    """Tokens of the model's greedy answers, each with its end-of-turn token."""
    greedy = SamplingParams(temperature=0.0, max_tokens=400)
    with LLM(MODEL, dtype="float32") as llm:
        prompts = [list(request.prompt_token_ids) for request in workload]
        outputs = llm.generate(prompts, greedy, progress=False)
    return [len(output.outputs[0].token_ids) for output in outputs]


def with_lengths(workload: Workload, lengths: Sequence[int]) -> Workload:
    """The same requests, each with room for exactly so many tokens."""
    pairs = zip(workload.requests, lengths, strict=True)
    return replace(workload, requests=tuple(replace(r, max_tokens=n) for r, n in pairs))


def main() -> None:
    """Write the file."""
    asked = questions(Tokenizer.from_dir(resolve_model(MODEL)))
    made = with_lengths(asked, answer_lengths(asked))
    made.save(PATH)
    print(made)


if __name__ == "__main__":
    main()
