"""Numbers that the prose of chapter 10 quotes beside its strips, computed again."""

import pytest

from tinyvllm_lab.engine.config import EngineConfig
from tinyvllm_lab.engine.history import History
from tinyvllm_lab.engine.state import EngineState
from tinyvllm_lab.paths import assets_dir
from tinyvllm_lab.simulate import Workload, simulate

SLOTS, HEAD = 96 * 16, 29


@pytest.fixture(scope="module")
def history() -> History:
    config = EngineConfig(
        allocator="contiguous-first-fit", max_num_seqs=36, max_num_batched_tokens=2048,
        num_blocks=97, max_model_len=512, enable_prefix_caching=False,
    )  # fmt: skip
    workload = Workload.load(assets_dir() / "workloads" / "course.jsonl")
    return History(simulate(workload, config, "A10G", "llama-3.2-1b").log)


def holes(state: EngineState) -> list[int]:
    """Lengths of the free stretches between the regions."""
    held = sorted(record.region for record in state.requests.values() if record.region)
    ends = [0, *(start + length for start, length in held)]
    starts = [*(start for start, _ in held), SLOTS]
    return [start - end for end, start in zip(ends, starts, strict=True) if start > end]


def test_the_head_of_the_queue_waits_before_three_quarters_of_the_memory(history: History) -> None:
    state = history.at(187)
    assert next(iter(state.queue)) == HEAD
    assert -(-state.requests[HEAD].prompt_tokens // 16) * 16 == 496
    assert (sum(holes(state)), max(holes(state))) == (1184, 368)


def test_it_stands_there_from_step_126_to_192(history: History) -> None:
    waits = [s for s in range(250) if next(iter(history.at(s).queue), None) == HEAD]
    assert waits == list(range(126, 193))
