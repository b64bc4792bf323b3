"""The command line: flags from the dataclasses, errors in three lines, light until it must work.

The engine itself is a fake here; `test_cli_session.py` runs the real one in a terminal.
"""

import dataclasses
import json
import os
import re
import subprocess
import sys
import types
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tinyvllm_lab import cli
from tinyvllm_lab.engine.config import EngineConfig, field_specs
from tinyvllm_lab.engine.recordings import recorded_runs
from tinyvllm_lab.engine.sampling_params import SamplingParams
from tinyvllm_lab.errors import RequestRefused, TinyVllmError

TRACES = Path(__file__).parents[1] / "data/vllm_traces"
runner = CliRunner()


class FakeLLM:
    """Echoes its prompt, and remembers how it was called."""

    calls: list["FakeLLM"]

    def __init__(self, model: str, engine_config: EngineConfig | None = None) -> None:
        self.model, self.engine_config = model, engine_config
        self.prompts: list = []
        self.default_sampling_params = SamplingParams(temperature=0.6)
        self.tokenizer = types.SimpleNamespace(encode_chat=lambda messages: messages)
        self.calls.append(self)

    def stream(self, prompt, sampling_params: SamplingParams):
        self.prompts.append(prompt)
        self.sampling_params = sampling_params
        if "refuse me" in str(prompt):
            raise RequestRefused("Too long [really].", fix="Say less.")
        yield from ("once ", "more")


@pytest.fixture
def llms(monkeypatch: pytest.MonkeyPatch) -> list[FakeLLM]:
    FakeLLM.calls = []
    module = types.ModuleType("tinyvllm_lab.llm")
    module.LLM = FakeLLM
    monkeypatch.setitem(sys.modules, "tinyvllm_lab.llm", module)
    return FakeLLM.calls


def invoke(*arguments: str, input: str | None = None):
    return runner.invoke(cli.app, arguments, input=input)


def test_generate_streams_and_passes_only_the_flags_that_were_given(llms) -> None:
    done = invoke("generate", "Once", "--model", "x", "--max-tokens", "7", "--stop", "a")
    assert done.exit_code == 0
    assert done.output.endswith("Onceonce more\n")
    (llm,) = llms
    assert (llm.model, llm.engine_config) == ("x", None)
    assert llm.sampling_params == SamplingParams(max_tokens=7, stop=("a",), temperature=0.6)


def test_an_error_starts_on_a_line_of_its_own(llms) -> None:
    done = invoke("generate", "refuse me")
    assert isinstance(done.exception, RequestRefused)
    assert done.output.endswith("refuse me\n")


def test_every_knob_of_the_engine_is_a_flag_with_its_help(llms) -> None:
    text = runner.invoke(cli.app, ["generate", "--help"], env={"COLUMNS": "200"}).output
    for spec in field_specs():
        flag = f"--{spec.name.replace('_', '-')}"
        assert flag in text, flag
        assert spec.help.split()[0] in text
    changed = {"max_num_seqs": 3, "policy": "sjf", "enable_chunked_prefill": False}
    invoke("chat", "--max-num-seqs", "3", "--policy", "sjf", "--no-enable-chunked-prefill")
    assert llms[0].engine_config == EngineConfig(**changed)


def test_every_sampling_parameter_but_three_is_a_flag() -> None:
    text = runner.invoke(cli.app, ["generate", "--help"], env={"COLUMNS": "200"}).output
    names = {f.name for f in dataclasses.fields(SamplingParams)} - {"n", "logit_bias", "logprobs"}
    flags = set(re.findall(r"--[a-z-]+", text))
    assert {f"--{name.replace('_', '-')}" for name in names} <= flags


@pytest.mark.parametrize("flags", [["--policy", "random"], ["--block-size", "0"]])
def test_a_value_out_of_range_is_refused_before_anything_is_loaded(llms, flags) -> None:
    done = invoke("generate", "Once", *flags)
    assert done.exit_code == 2
    assert flags[0] in done.output
    assert llms == []


def test_chat_remembers_resets_and_survives_a_refusal(llms) -> None:
    lines = ["hello", "refuse me", "again", "/reset", "/help", "anew", "/quit", "never"]
    done = invoke("chat", "--system", "Be brief.", input="\n".join(lines) + "\n")
    assert done.exit_code == 0
    system = {"role": "system", "content": "Be brief."}
    answer = {"role": "assistant", "content": "once more"}

    def user(text: str) -> dict[str, str]:
        return {"role": "user", "content": text}

    asked = llms[0].prompts
    assert asked[0] == [system, user("hello")]
    assert asked[2] == [system, user("hello"), answer, user("again")]
    assert asked[3] == [system, user("anew")]
    assert len(asked) == 4
    assert "Too long [really]." in done.output
    assert "Say less." in done.output


def test_the_end_of_the_input_ends_the_chat(llms) -> None:
    assert invoke("chat", input="hello").exit_code == 0


def test_replay_prints_the_steps_that_were_recorded() -> None:
    file = TRACES / "a01_single.json"
    done = invoke("replay", str(file))
    recorded = json.loads(file.read_text())["trajectory"]
    for step in recorded:
        step.pop("pc_stats", None)
    assert [json.loads(line) for line in done.output.splitlines()] == recorded


def test_replay_compares_and_says_where_steps_differ(tmp_path: Path) -> None:
    file = TRACES / "d01_preempt_minimal.json"
    done = invoke("replay", str(file), "--compare")
    assert done.exit_code == 0
    assert "0 differences" in done.output
    trace = json.loads(file.read_text())
    trace["trajectory"][2]["free"] += 1
    wrong = tmp_path / "wrong.json"
    wrong.write_text(json.dumps(trace))
    done = invoke("replay", str(wrong), "--compare")
    assert done.exit_code == 1
    assert "1 differences" in done.output


@pytest.mark.parametrize("trajectory", [None, 5, [5]])
def test_replay_cannot_compare_with_what_is_not_recorded(tmp_path: Path, trajectory) -> None:
    trace = json.loads((TRACES / "a01_single.json").read_text())
    file = tmp_path / "x.json"
    file.write_text(json.dumps({**trace, "trajectory": trajectory}))
    error = invoke("replay", str(file), "--compare").exception
    assert isinstance(error, TinyVllmError)
    assert "records no steps" in error.what


def test_runs_lists_the_recorded_ones_and_writes_a_page_that_plays_one(tmp_path: Path) -> None:
    listed = invoke("runs").output
    for name, about in recorded_runs().items():
        assert f"{name}\n  {about}" in listed
    page = tmp_path / "run.html"
    assert invoke("runs", "page", "preemption", str(page)).output.strip() == str(page)
    assert "airport" in page.read_text()
    assert isinstance(invoke("runs", "page", "lunch", str(page)).exception, TinyVllmError)


def run(*arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from tinyvllm_lab.cli import main; main()", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env={**os.environ, **env})


def test_our_errors_are_three_lines_and_no_traceback(tmp_path: Path) -> None:
    done = run("models", "get", "gpt-5")
    assert done.returncode == 1
    lines = done.stderr.splitlines()
    assert [line.split(":")[0] for line in lines] == ["error", "expected", "fix"]
    broken = tmp_path / "x.json"
    broken.write_text("{")
    done = run("replay", str(broken))
    assert done.returncode == 1
    assert "Traceback" not in done.stderr


def test_lab_without_jupyter_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nbformat", None)
    monkeypatch.setitem(sys.modules, "nbformat.sign", None)
    monkeypatch.delitem(sys.modules, "tinyvllm_lab.course.lab", raising=False)
    error = invoke("lab").exception
    assert isinstance(error, TinyVllmError)
    assert "[lab]" in error.fix


def test_help_and_version_import_neither_torch_nor_jupyter() -> None:
    code = (
        "import sys; import tinyvllm_lab.cli;"
        "sys.exit(any(m in sys.modules for m in ('torch', 'numpy', 'nbclient', 'jupyter_core')))"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
    assert run("--version").stdout.startswith("tinyvllm-lab 0.")
