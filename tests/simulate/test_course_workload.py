"""The workload of chapters 08, 09 and 10 is what its script makes, and lasts as long as it says."""

import runpy

import pytest
import torch

from tinyvllm_lab.model.registry import resolve_model
from tinyvllm_lab.model.tokenizer import Tokenizer
from tinyvllm_lab.paths import assets_dir
from tinyvllm_lab.simulate.workloads import Workload

FOLDER = assets_dir() / "workloads"


@pytest.fixture(scope="module")
def shipped() -> Workload:
    return Workload.load(FOLDER / "course.jsonl")


@pytest.fixture(scope="module")
def script() -> dict:
    return runpy.run_path(str(FOLDER / "make_course.py"))


def test_it_has_what_the_chapters_speak_of(shipped) -> None:
    kinds = [request.kind for request in shipped]
    assert {kind: kinds.count(kind) for kind in shipped.kinds} == {
        "count": 8, "hangs_up": 2, "glossary": 5, "short_answer": 14, "story": 4, "long_prompt": 3,
    }  # fmt: skip
    assert [request.arrival_s for request in shipped][:9] == [0.0] * 8 + [0.019]
    assert shipped.longest_context <= 512, "the shipped model was trained on 512 positions"
    for request in shipped:
        assert (request.abort_after_tokens is not None) == (request.kind == "hangs_up")


def test_its_script_asks_the_same_questions(shipped, script) -> None:
    asked = script["questions"](Tokenizer.from_dir(resolve_model("tiny")))
    lengths = [request.max_tokens for request in shipped]
    assert script["with_lengths"](asked, lengths) == shipped


def test_its_lengths_are_those_of_the_models_greedy_answers(shipped, script) -> None:
    torch.set_num_threads(1)
    assert script["answer_lengths"](shipped) == [request.max_tokens for request in shipped]


def test_the_file_is_as_save_writes_it(shipped, tmp_path) -> None:
    again = tmp_path / "course.jsonl"
    shipped.save(again)
    assert again.read_bytes() == (FOLDER / "course.jsonl").read_bytes()
