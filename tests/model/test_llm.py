"""`LLM` on the shipped model; the oracle is transformers' `generate` on the same folder."""

import json
import shutil
import threading

import pytest
import torch
from tokenizer_samples import TINY

from tinyvllm_lab import llm as llm_module
from tinyvllm_lab.engine.config import EngineConfig
from tinyvllm_lab.engine.sampling_params import SamplingParams
from tinyvllm_lab.llm import LLM

torch.set_num_threads(1)
PROMPTS = ["Once upon a time", "One day, a fox", "The little cat was"]
GREEDY = SamplingParams(temperature=0.0, max_tokens=24)
END_OF_TEXT, EOM, EOT = 2033, 2040, 2041


@pytest.fixture(scope="module")
def llm():
    with LLM("tiny", dtype="float32", engine_config=EngineConfig(check_invariants=True)) as llm:
        yield llm


@pytest.fixture(autouse=True)
def nothing_is_left(llm):
    yield
    assert not llm.engine.requests
    assert not llm.engine.scheduler.has_work
    assert llm.engine.scheduler.memory.num_used == 0
    assert not llm._token_times


@pytest.fixture(scope="module")
def hf_model():
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(TINY, dtype=torch.float32)


def hf_generate(model, prompt_ids, num_tokens):
    with torch.no_grad():
        ids = model.generate(
            torch.tensor([prompt_ids]),
            max_new_tokens=num_tokens,
            do_sample=False,
            eos_token_id=[END_OF_TEXT, EOM, EOT],
            pad_token_id=END_OF_TEXT,
        )
    return ids[0, len(prompt_ids) :].tolist()


# --- the answers ----------------------------------------------------------------------------------


def test_greedy_answers_are_transformers_token_for_token(llm, hf_model):
    for prompt, answer in zip(PROMPTS, llm.generate(PROMPTS, GREEDY), strict=True):
        assert answer.prompt == prompt
        assert answer.prompt_token_ids == llm.tokenizer.encode(prompt)
        assert answer.token_ids == hf_generate(hf_model, answer.prompt_token_ids, 24)
        assert answer.text == llm.tokenizer.decode(answer.token_ids)
        assert (answer.finish_reason, answer.logprobs) == ("length", None)


def test_a_chat_ends_by_itself_as_in_transformers(llm, hf_model):
    messages = [{"role": "user", "content": "Count from 3 to 9."}]
    answer = llm.chat(messages, SamplingParams(temperature=0.0), date_string="26 Jul 2024")
    prompt_ids = llm.tokenizer.encode_chat(messages, date_string="26 Jul 2024")
    assert answer.prompt_token_ids == prompt_ids
    assert answer.token_ids == hf_generate(hf_model, prompt_ids, 128)
    assert (answer.text, answer.finish_reason) == ("3, 4, 5, 6, 7, 8, 9.", "stop")
    assert answer.token_ids[-1] == EOT


def test_prompts_come_as_text_or_ids_one_or_many(llm):
    ids = llm.tokenizer.encode(PROMPTS[0])
    (expected,) = llm.generate(PROMPTS[0], GREEDY)
    for prompts in ([PROMPTS[0]], ids, [ids], (tuple(ids),), torch.tensor(ids)):
        (answer,) = llm.generate(prompts, GREEDY)
        assert answer.token_ids == expected.token_ids
    assert llm.generate([], GREEDY) == []


def test_each_prompt_may_have_its_own_params(llm):
    params = [SamplingParams(temperature=0.0, max_tokens=n) for n in (1, 5, 3)]
    answers = llm.generate(PROMPTS, params)
    assert [len(answer.token_ids) for answer in answers] == [1, 5, 3]


def test_a_seed_repeats_its_answer_alone_and_in_a_batch(llm):
    params = SamplingParams(temperature=1.0, seed=11, max_tokens=20)
    (alone,) = llm.generate(PROMPTS[0], params)
    batch = llm.generate(PROMPTS, [params, GREEDY, SamplingParams(max_tokens=20)])
    assert batch[0].token_ids == alone.token_ids


def test_n_samples_differ_and_the_first_is_the_single_one(llm):
    params = SamplingParams(temperature=1.0, seed=5, max_tokens=16, n=3)
    (answer,) = llm.generate(PROMPTS[0], params)
    (again,) = llm.generate(PROMPTS[0], params)
    (single,) = llm.generate(PROMPTS[0], SamplingParams(temperature=1.0, seed=5, max_tokens=16))
    texts = [output.text for output in answer.outputs]
    assert len(set(texts)) == 3
    assert texts == [output.text for output in again.outputs]
    assert texts[0] == single.text
    assert [output.index for output in answer.outputs] == [0, 1, 2]


def test_logprobs_are_those_of_transformers(llm, hf_model):
    (answer,) = llm.generate(PROMPTS[0], SamplingParams(seed=2, max_tokens=10, logprobs=4))
    ids = [*answer.prompt_token_ids, *answer.token_ids]
    with torch.no_grad():
        expected = hf_model(torch.tensor([ids])).logits[0].log_softmax(dim=-1)
    first = len(answer.prompt_token_ids) - 1
    for i, found in enumerate(answer.logprobs):
        row = expected[first + i]
        assert found.logprob == pytest.approx(row[answer.token_ids[i]].item(), abs=1e-3)
        assert [token_id for token_id, _ in found.top] == row.topk(4).indices.tolist()
    assert len(answer.logprobs) == 10


# --- where an answer ends -------------------------------------------------------------------------


@pytest.mark.parametrize("eos", [END_OF_TEXT, EOM, EOT])
def test_each_eos_id_stops_and_ignore_eos_ignores_each_30(llm, eos):
    forced = {"temperature": 0.0, "logit_bias": {eos: 100.0}, "max_tokens": 3}
    params = [
        SamplingParams(**forced),
        SamplingParams(**forced, ignore_eos=True),
        SamplingParams(**forced, ignore_eos=True, stop_token_ids=(eos,)),
        SamplingParams(**forced, min_tokens=2),
    ]
    stopped, ignored, stop_id, minimum = llm.generate([PROMPTS[0]] * 4, params)
    assert (stopped.token_ids, stopped.text, stopped.finish_reason) == ([eos], "", "stop")
    assert (ignored.token_ids, ignored.finish_reason) == ([eos] * 3, "length")
    assert (stop_id.token_ids, stop_id.finish_reason) == ([eos], "stop")
    assert minimum.token_ids[2:] == [eos]
    assert eos not in minimum.token_ids[:2]


def test_a_stop_token_is_in_the_ids_but_not_in_the_text(llm):
    (free,) = llm.generate(PROMPTS[0], GREEDY)
    stop_id = free.token_ids[5]
    end = free.token_ids.index(stop_id) + 1
    (answer,) = llm.generate(PROMPTS[0], SamplingParams(temperature=0.0, stop_token_ids=(stop_id,)))
    assert answer.token_ids == free.token_ids[:end]
    assert answer.text == llm.tokenizer.decode(free.token_ids[: end - 1])


@pytest.mark.parametrize("min_tokens", [0, 12, 24])
def test_a_stop_string_over_token_borders_is_cut_off_31(llm, min_tokens):
    (free,) = llm.generate(PROMPTS[0], GREEDY)
    stop = free.text[7:16]
    params = SamplingParams(temperature=0.0, max_tokens=24, stop=stop, min_tokens=min_tokens)
    (answer,) = llm.generate(PROMPTS[0], params)
    streamed = "".join(llm.stream(PROMPTS[0], params))
    assert streamed == answer.text
    if min_tokens:
        assert answer.text == free.text
        assert len(answer.token_ids) == 24
    else:
        assert (answer.text, answer.finish_reason) == (free.text[:7], "stop")
        assert stop not in llm.tokenizer.decode(answer.token_ids[:-1])


# --- streams --------------------------------------------------------------------------------------


def test_a_stream_is_the_answer_in_pieces(llm):
    (answer,) = llm.generate(PROMPTS[0], GREEDY)
    pieces = list(llm.stream(PROMPTS[0], GREEDY))
    assert "".join(pieces) == answer.text
    assert len(pieces) > 10


def test_streams_may_be_read_in_turns(llm):
    expected = [answer.text for answer in llm.generate(PROMPTS, GREEDY)]
    streams = [llm.stream(prompt, GREEDY) for prompt in PROMPTS]
    texts = ["", "", ""]
    while any(pieces := [next(stream, "") for stream in streams]):
        texts = [text + piece for text, piece in zip(texts, pieces, strict=True)]
    assert texts == expected


def test_a_closed_stream_gives_its_blocks_back(llm):
    stream = llm.stream(PROMPTS[0], GREEDY)
    assert next(stream)
    assert llm.engine.scheduler.memory.num_used > 0
    stream.close()
    assert llm.engine.scheduler.memory.num_used == 0


def test_a_closed_stream_does_not_touch_the_others(llm):
    (expected,) = llm.generate(PROMPTS[1], GREEDY)
    closed, read = llm.stream(PROMPTS[0], GREEDY), llm.stream(PROMPTS[1], GREEDY)
    text = next(closed) and next(read)
    closed.close()
    assert text + "".join(read) == expected.text


def test_several_threads_may_ask(llm):
    expected = {answer.prompt: answer.token_ids for answer in llm.generate(PROMPTS, GREEDY)}
    found = {}

    def ask(prompt):
        found[prompt] = llm.generate(prompt, GREEDY)[0].token_ids

    threads = [threading.Thread(target=ask, args=(prompt,)) for prompt in PROMPTS]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == expected


# --- times and progress ---------------------------------------------------------------------------


def test_times_add_up(llm):
    for answer in llm.generate(PROMPTS, GREEDY):
        assert len(answer.itl_s) == len(answer.token_ids) - 1
        assert min([answer.ttft_s, *answer.itl_s]) > 0
        assert answer.ttft_s + sum(answer.itl_s) == pytest.approx(answer.e2e_s)


def test_the_bar_appears_only_when_it_takes_long(llm, monkeypatch, capsys):
    monkeypatch.setattr(llm_module, "PROGRESS_AFTER_S", 1e6)
    llm.generate(PROMPTS, GREEDY)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(llm_module, "PROGRESS_AFTER_S", 0.0)
    llm.generate(PROMPTS, GREEDY)
    assert "3/3" in capsys.readouterr().err
    llm.generate(PROMPTS, GREEDY, progress=False)
    assert capsys.readouterr().err == ""


# --- what the model folder says -------------------------------------------------------------------


@pytest.fixture
def copy_of_tiny(tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(TINY, folder)
    return folder


def test_max_model_len_is_what_the_model_knows(copy_of_tiny):
    config = json.loads((copy_of_tiny / "config.json").read_text())
    config |= {"max_position_embeddings": 600}
    (copy_of_tiny / "config.json").write_text(json.dumps(config))
    llm = LLM(copy_of_tiny, engine_config=EngineConfig(max_num_seqs=2))
    assert llm.engine.config == EngineConfig(max_num_seqs=2, max_model_len=600)


def test_without_params_the_makers_advice_is_followed(llm, copy_of_tiny):
    assert llm.default_sampling_params == SamplingParams(temperature=0.0)
    file = copy_of_tiny / "generation_config.json"
    file.write_text(json.dumps({"do_sample": True, "temperature": 0.6, "top_p": 0.9}))
    advised = LLM(copy_of_tiny).default_sampling_params
    assert (advised.temperature, advised.top_p) == (0.6, 0.9)


def test_weights_of_another_type(llm):
    other = LLM("tiny", dtype="bfloat16")
    assert other.model.dtype == torch.bfloat16
    assert (
        other.generate(PROMPTS[0], GREEDY)[0].text[:20]
        == llm.generate(PROMPTS[0], GREEDY)[0].text[:20]
    )


def test_closed_streams_leave_nothing_behind():
    with LLM("tiny", dtype="float32") as llm:
        streams = [llm.stream(p, SamplingParams(max_tokens=100)) for p in ("Once", "The dog")]
        for stream in streams:
            next(stream)
        for stream in streams:
            stream.close()
        assert llm.engine.requests == {}
        assert llm.engine.scheduler.memory.num_used == 0
