"""`tinyvllm-lab`: the command line. Heavy modules are imported by the command that needs them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from tinyvllm_lab import __version__
from tinyvllm_lab.cli_flags import engine_and_sampling_flags
from tinyvllm_lab.engine.config import EngineConfig
from tinyvllm_lab.errors import TinyVllmError

if TYPE_CHECKING:
    from tinyvllm_lab.engine.log import EventLog
    from tinyvllm_lab.llm import LLM
    from tinyvllm_lab.widgets.panel import Panel

INTERRUPTED = 130  # what a shell expects of a program that Ctrl-C ended

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Build a small LLM inference engine, and watch it think.",
)
models_app = typer.Typer(help="The models on this machine, and how to get more.")
app.add_typer(models_app, name="models")
runs_app = typer.Typer(help="The recorded runs that come with the course.")
app.add_typer(runs_app, name="runs")

console = Console(highlight=False, soft_wrap=True)
errors = Console(stderr=True, highlight=False, soft_wrap=True)

Model = Annotated[
    str, typer.Option("--model", "-m", help="A folder, a name of `models`, or a hub id.")
]


def main() -> None:
    """Run the command line. Our own errors become three lines and exit status 1."""
    # Torch's threads, and those of the notebooks' kernels, wait by sleeping: threads that spin
    # make a busy machine many times slower.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    try:
        app()
    except TinyVllmError as error:
        errors.print(f"[bold red]error:[/] {escape(error.what)}")
        if error.expected:
            errors.print(f"[bold]expected:[/] {escape(error.expected)}")
        if error.fix:
            errors.print(f"[bold green]fix:[/] {escape(error.fix)}")
        sys.exit(1)


def _show_version(wanted: bool) -> None:
    if wanted:
        console.print(f"tinyvllm-lab {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show it.")
    ] = False,
) -> None: ...


@app.command()
def doctor(model: Model = "tiny") -> None:
    """Check this machine: each line is OK, WARN or FAIL, with the one line that mends it."""
    from tinyvllm_lab.course import doctor as doctor_module

    if not doctor_module.doctor(model):
        raise typer.Exit(1)


@app.command()
@engine_and_sampling_flags
def generate(
    prompt: Annotated[str, typer.Argument(help="The text to go on from.")],
    model: Model = "tiny",
    *,
    engine_config: EngineConfig | None,
    sampling: dict[str, Any],
) -> None:
    """Continue a text, printing it as it comes."""
    llm = _load(model, engine_config)
    console.print(f"[dim]{escape(prompt)}[/]", end="")
    _print_stream(llm.stream(prompt, replace(llm.default_sampling_params, **sampling)))


@app.command()
@engine_and_sampling_flags
def chat(
    model: Model = "tiny",
    system: Annotated[str, typer.Option(help="The system message.")] = "",
    *,
    engine_config: EngineConfig | None,
    sampling: dict[str, Any],
) -> None:
    """Talk with a model. /reset forgets, /quit ends, Ctrl-C stops an answer."""
    from tinyvllm_lab.cli_chat import Chat

    llm = _load(model, engine_config)
    Chat(llm, replace(llm.default_sampling_params, **sampling), system, console).loop()


@models_app.callback(invoke_without_command=True)
def models(context: typer.Context) -> None:
    """List the models that can be named here."""
    if context.invoked_subcommand is None:
        from tinyvllm_lab.model.registry import list_models

        for row in list_models():
            mark = "[green]here[/]" if row.installed else "[dim]to get[/]"
            console.print(f"[bold]{escape(row.name)}[/]  {mark}  {row.num_bytes / 1e6:,.0f} MB")
            console.print(f"  {escape(row.about)}\n  [dim]{escape(row.where)}[/]")


@models_app.command("get")
def get_model(name: Annotated[str, typer.Argument(help="smollm2-135m")]) -> None:
    """Fetch a model and convert it to Safetensors."""
    if name != "smollm2-135m":
        raise TinyVllmError(
            f"No model {name!r} to get.",
            expected="smollm2-135m",
            fix="For one of the Hugging Face hub: hf download NAME --local-dir FOLDER",
        )
    from tinyvllm_lab.model.smollm2 import get_smollm2

    console.print(f"{get_smollm2()}")


@runs_app.callback(invoke_without_command=True)
def runs(context: typer.Context) -> None:
    """List the recorded runs."""
    if context.invoked_subcommand is None:
        from tinyvllm_lab.engine.recordings import recorded_runs

        for name, about in recorded_runs().items():
            console.print(f"[bold]{escape(name)}[/]\n  {escape(about)}")


@runs_app.command("page")
def write_page(
    name: Annotated[str, typer.Argument(help="A name of `runs`.")],
    file: Annotated[Path, typer.Argument(help="The web page to write.", dir_okay=False)],
) -> None:
    """Write a web page that plays a recorded run in any browser, without a network."""
    from tinyvllm_lab.engine.recordings import recorded_run

    log = recorded_run(name)
    try:
        panels = _panels(log)
    except ModuleNotFoundError as error:
        raise _lab_is_missing(error) from None
    from tinyvllm_lab.widgets import save_html

    console.print(f"{save_html(file, *panels, title=name)}")


@app.command("replay")
def replay_command(
    file: Annotated[Path, typer.Argument(exists=True, dir_okay=False)],
    compare: Annotated[
        bool, typer.Option(help="Compare with the steps that the file records.")
    ] = False,
) -> None:
    """Run a recorded workload through the scheduler, and print its steps."""
    from tinyvllm_lab.engine.replay import differences, replay

    workload = _read_json(file)
    steps = replay(workload)
    if not compare:
        _print_lines(json.dumps(step) for step in steps)
        return
    found = differences(_recorded_steps(file, workload), steps)
    _print_lines(found)
    console.print(f"{file.name}: {len(steps)} steps, {len(found)} differences")
    if found:
        raise typer.Exit(1)


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def lab(context: typer.Context) -> None:
    """Open JupyterLab on chapter 00. Further options go to JupyterLab, such as --no-browser."""
    try:
        from tinyvllm_lab.course.lab import lab_command, trust
    except ModuleNotFoundError as error:
        raise _lab_is_missing(error) from None
    trust()
    command = lab_command(context.args)
    if os.name == "posix":
        os.execv(command[0], command)
    sys.exit(subprocess.call(command))


def _panels(log: EventLog) -> Sequence[Panel]:
    """Those that show a run at a glance, with one set of controls."""
    from tinyvllm_lab import widgets

    is_paged = log.config is None or log.config.allocator == "paged"
    memory = widgets.BlockMap if is_paged else widgets.ContiguousStrip
    kinds = (widgets.Airport, widgets.SlotTimeline, memory, widgets.MetricStrip)
    return widgets.show(*(kind(log) for kind in kinds)).panels


def _lab_is_missing(error: ModuleNotFoundError) -> TinyVllmError:
    return TinyVllmError(
        f"The package {error.name!r} is not installed, which notebooks and panels need.",
        fix="make lab (in the clone), or: pip install -e '.[lab]'",
    )


def _load(model: str, engine_config: EngineConfig | None) -> LLM:
    with errors.status(f"loading {model} …"):
        from tinyvllm_lab.llm import LLM

        return LLM(model, engine_config=engine_config)


def _print_stream(pieces: Iterable[str]) -> None:
    try:
        for piece in pieces:
            sys.stdout.write(piece)
            sys.stdout.flush()
    except KeyboardInterrupt:
        print()
        sys.exit(INTERRUPTED)
    except TinyVllmError:
        print()  # the message starts on a line of its own
        raise
    print()


def _print_lines(lines: Iterable[str]) -> None:
    for line in lines:
        print(line)


def _read_json(file: Path) -> dict[str, Any]:
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise TinyVllmError(f"{file} is no JSON: {error}", expected="a recorded workload") from None


def _recorded_steps(file: Path, workload: dict[str, Any]) -> list[dict[str, Any]]:
    steps = workload.get("trajectory")
    if not isinstance(steps, list) or not all(isinstance(step, dict) for step in steps):
        raise TinyVllmError(
            f"{file} records no steps to compare with.",
            expected="'trajectory', a list with one object a step",
            fix="Leave --compare out to see what our scheduler does.",
        )
    return steps
