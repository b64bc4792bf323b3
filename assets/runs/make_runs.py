"""Makes the recorded runs of this folder: `python make_runs.py`; one: `python make_runs.py chat`.

The simulated ones come out the same, byte for byte. `eight_prompts` is measured: its decisions and
tokens come out the same, its times are those of the machine that made it.
"""

from __future__ import annotations

import platform
import sys
from pathlib import Path
from typing import Any

from tinyvllm_lab.engine.config import EngineConfig
from tinyvllm_lab.engine.events import Kind
from tinyvllm_lab.engine.log import EventLog
from tinyvllm_lab.engine.sampling_params import SamplingParams
from tinyvllm_lab.engine.storage import save
from tinyvllm_lab.simulate import presets
from tinyvllm_lab.simulate.arrivals import Bursts, Poisson
from tinyvllm_lab.simulate.lengths import LogNormal, Uniform
from tinyvllm_lab.simulate.run import simulate
from tinyvllm_lab.simulate.workloads import Workload

FOLDER = Path(__file__).parent
HARDWARE, MODEL = "A10G", "llama-3.2-1b"
QUESTIONS = (  # those of chapter 00
    "What is a KV cache?",
    "Count from 1 to 20.",
    "Tell me a story about Nina the owl and Leo the bear.",
    "What is the capital of France?",
    "What is continuous batching?",
    "Tell me a short story about Lily the girl and a treasure map.",
    "How are you today?",
    "What is prefill?",
)


def eight_prompts() -> EventLog:
    """Eight questions to the shipped model, and three seats: the airport of chapter 00."""
    import torch

    from tinyvllm_lab.llm import LLM

    torch.set_num_threads(1)
    greedy = SamplingParams(temperature=0.0, max_tokens=160)
    with LLM("tiny", dtype="float32", engine_config=EngineConfig(max_num_seqs=3)) as llm:
        chats = [[{"role": "user", "content": question}] for question in QUESTIONS]
        prompts = [llm.tokenizer.encode_chat(messages) for messages in chats]
        llm.generate(prompts, greedy, progress=False)
    log = llm.engine.log
    assert log is not None
    log.info |= {
        "time": "measured",
        "machine": f"another machine ({platform.machine()}, one thread)",
        "model": "tiny",
        "kv_bytes_per_token": llm.model.config.kv_bytes_per_token("float32"),
    }
    for number, question in enumerate(QUESTIONS):
        log.requests[number]["prompt"] = question
    return log


def chat() -> EventLog:
    """Conversations in turns: each brings its history, and finds it in the prefix cache."""
    answer = LogNormal(90, 0.6, 8, 300)
    load = presets.chat(60, Poisson(12.0), answer=answer, think_s=0.3, seed=4)
    return _simulated(load, max_num_seqs=6, num_blocks=257)


def static() -> EventLog:
    """The course's 36 requests in static batches: everyone waits for the longest answer."""
    return _course(batching="static")


def continuous() -> EventLog:
    """The course's 36 requests, batched continuously: a free seat is taken in the next step."""
    return _course()


def prefix_sharing() -> EventLog:
    """Questions about a few popular documents: their beginnings are computed and stored once."""
    load = presets.rag(
        24, Bursts(6, every_s=0.4), num_documents=6, documents_per_request=2, popularity=1.4,
        answer=LogNormal(40, 0.5, 10, 120), seed=3,
    )  # fmt: skip
    return _simulated(load, max_num_seqs=8, num_blocks=257)


def preemption() -> EventLog:
    """Long answers in a small pool: victims lose their blocks, and compute their tokens again."""
    load = presets.independent(20, Poisson(40.0), Uniform(30, 120), Uniform(60, 180), seed=2)
    return _simulated(load, max_num_seqs=8, num_blocks=73, max_model_len=512)


def first_fit() -> EventLog:
    """The course's 36 requests in contiguous regions, first fit: free memory falls into holes."""
    return _course(
        allocator="contiguous-first-fit", num_blocks=97, max_num_seqs=36, max_model_len=512
    )


def chunked_prefill() -> EventLog:
    """Long prompts are read in chunks, so that nobody's next token waits for a whole one."""
    load = presets.airport(24, Poisson(20.0), long_prompt=Uniform(900, 1800), seed=5)
    return _simulated(load, max_num_seqs=8, num_blocks=513, max_num_batched_tokens=256)


RUNS = {
    make.__name__: make
    for make in (
        eight_prompts, chat, static, continuous, prefix_sharing, preemption, first_fit,
        chunked_prefill,
    )
}  # fmt: skip


def _course(**knobs: Any) -> EventLog:
    """The workload of chapters 08 to 10 on the engine of chapter 09, but for some knobs."""
    load = Workload.load(FOLDER.parent / "workloads" / "course.jsonl")
    engine = {"max_num_seqs": 8, "max_num_batched_tokens": 2048, "num_blocks": 257}
    return _simulated(load, **{**engine, "enable_prefix_caching": False, **knobs})


def _simulated(load: Workload, **knobs: Any) -> EventLog:
    log = simulate(load, EngineConfig(**knobs), HARDWARE, MODEL).log
    assert log is not None
    return _without_wall_times(log)


def _without_wall_times(log: EventLog) -> EventLog:
    """The log without what the simulation itself took, which no two machines agree on."""
    kept = log.kept()
    rows = kept.rows.copy()  # int64 [events, 4]
    rows[rows[:, 0] == int(Kind.STEP_END), 2:] = 0
    made = EventLog.of(kept._replace(rows=rows), log.config)
    made.info |= log.info
    made.requests |= log.requests
    return made


def make_run(name: str) -> EventLog:
    """One of `RUNS`, with a line that says what it shows."""
    log = RUNS[name]()
    log.info["about"] = RUNS[name].__doc__
    return log


def main() -> None:
    """Write the files."""
    for name in sys.argv[1:] or RUNS:
        log = make_run(name)
        path = save(log, FOLDER / f"{name}.tvt")
        print(f"{path.name}: {log.num_steps:,} steps, {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
