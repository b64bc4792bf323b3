"""Command-line flags made from dataclasses: `EngineConfig` and `SamplingParams` describe them.

A field is described once, where it is defined. A flag that is not given is not passed on, so the
defaults stay where they belong too.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import re
from collections.abc import Callable
from types import GenericAlias, NoneType
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import typer

from tinyvllm_lab.engine.config import EngineConfig, FieldSpec, field_specs
from tinyvllm_lab.engine.sampling_params import SamplingParams

# Without a place on the command line, or without a meaning for one streamed answer.
_NO_FLAG = {"n", "logit_bias", "logprobs"}
_ADVISED = {"temperature", "top_p"}
_OWN_DEFAULTS = {"max_tokens": 256}  # enough for a whole story or answer


def engine_and_sampling_flags(command: Callable[..., None]) -> Callable[..., None]:
    """Add a flag for every knob of the engine and for every sampling parameter.

    The command gets them as two keyword arguments: `engine_config` (None if no flag was given) and
    `sampling`, the given fields of `SamplingParams`. Both are valid when it is called.
    """

    @functools.wraps(command)
    def wrapper(**values: Any) -> None:
        engine = _take_given(values, [p.name for p in engine_parameters])
        sampling = _take_given(values, [p.name for p in sampling_parameters])
        sampling = {**_OWN_DEFAULTS, **sampling}
        SamplingParams(**sampling)
        config = EngineConfig(**engine) if engine else None
        command(**values, engine_config=config, sampling=sampling)

    engine_parameters = [_engine_parameter(spec) for spec in field_specs()]
    sampling_parameters = list(_sampling_parameters())
    own = inspect.signature(command, eval_str=True).parameters.values()
    visible = [p for p in own if p.name not in ("engine_config", "sampling")]
    flagged: Any = wrapper
    flagged.__signature__ = inspect.Signature([*visible, *sampling_parameters, *engine_parameters])
    flagged.__annotations__ = {}
    return flagged


def _take_given(values: dict[str, Any], names: list[str]) -> dict[str, Any]:
    taken = {name: values.pop(name) for name in names}
    return {name: value for name, value in taken.items() if value not in (None, [])}


def _parameter(name: str, kind: Any, option: Any) -> inspect.Parameter:
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind, option]
    )


def _flag(name: str, kind: type) -> str:
    dashed = name.replace("_", "-")
    return f"--{dashed}/--no-{dashed}" if kind is bool else f"--{dashed}"


def _engine_parameter(spec: FieldSpec) -> inspect.Parameter:
    option = typer.Option(
        _flag(spec.name, spec.type),
        help=f"{spec.help} {_default_text(spec.default, spec.unit)}",
        show_default=False,
        min=spec.minimum,
        max=spec.maximum,
        rich_help_panel="Engine",
    )
    kind = Literal[spec.choices] if spec.choices else spec.type
    return _parameter(spec.name, kind | None, option)


def _sampling_parameters() -> list[inspect.Parameter]:
    helps, hints = _argument_help(SamplingParams), get_type_hints(SamplingParams)
    parameters = []
    for field in dataclasses.fields(SamplingParams):
        if field.name in _NO_FLAG:
            continue
        kind = _plain_type(hints[field.name])
        default = _default_text(_OWN_DEFAULTS.get(field.name, field.default))
        if field.name in _ADVISED:
            default = "Default: the model's own."
        option = typer.Option(
            _flag(field.name, kind),
            help=f"{helps[field.name]} {default}",
            show_default=False,
            rich_help_panel="Sampling",
        )
        parameters.append(_parameter(field.name, kind | None, option))
    return parameters


def _default_text(default: Any, unit: str = "") -> str:
    if default in (None, ()):
        return ""
    shown = {True: "yes", False: "no"}[default] if isinstance(default, bool) else default
    return f"Default: {shown} {unit}".rstrip() + "."


def _plain_type(hint: Any) -> Any:
    """`int` for `int | None`, `list[str]` (a flag that may be repeated) for `tuple[str, ...]`."""
    if get_origin(hint) is tuple:
        return GenericAlias(list, get_args(hint)[:1])
    kinds = [kind for kind in get_args(hint) if kind is not NoneType]
    return kinds[0] if kinds else hint


def _argument_help(documented: type) -> dict[str, str]:
    """name -> text of the "Args:" section of a docstring."""
    text = inspect.getdoc(documented) or ""
    section = text.partition("Args:\n")[2].partition("\n\n")[0]
    entries = re.findall(r"^    (\w+): (.*(?:\n {8}.*)*)", section, re.MULTILINE)
    return {name: _sentence(text) for name, text in entries}


def _sentence(text: str) -> str:
    words = " ".join(text.split())
    return words[0].upper() + words[1:]
