"""Chat templates: from messages to the one string that the model was trained on (chapter 02).

A model sees text, not roles. The template that turns messages into text belongs to the model, as
its weights do: it is a Jinja program in the model folder. It comes from a stranger, so it runs in
Jinja's sandbox.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from tinyvllm_lab.errors import ModelError

# Llama 3.2's format without tools, in our own words. The system block is always written, even
# without a system message; the date is today's unless the caller passes `date_string`.
LLAMA_3_2_TEMPLATE = """\
{%- macro turn(role, text) -%}
    {{- '<|start_header_id|>' + role + '<|end_header_id|>\\n\\n' + text + '<|eot_id|>' -}}
{%- endmacro -%}
{%- if messages[0].role == 'system' -%}
    {%- set system_text, turns = messages[0].content | trim, messages[1:] -%}
{%- else -%}
    {%- set system_text, turns = '', messages -%}
{%- endif -%}
{%- set today = date_string if date_string is defined else strftime_now('%d %b %Y') -%}
{%- set dates = 'Cutting Knowledge Date: December 2023\\nToday Date: ' + today + '\\n\\n' -%}
{{- bos_token -}}
{{- turn('system', dates + system_text) -}}
{%- for message in turns -%}
    {{- turn(message.role, message.content | trim) -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' -}}
{%- endif -%}
"""
LLAMA_3_MARKS = ("<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>")

Message = Mapping[str, Any]


class ChatTemplate:
    """A compiled chat template.

    Args:
        source: the Jinja program.
        origin: where it came from, for error messages.

    Raises:
        ModelError: the source is not valid Jinja; the message names the line.
    """

    def __init__(self, source: str, origin: str = "the chat template") -> None:
        self.source, self.origin = source, origin
        try:
            self._template = _environment().from_string(source)
        except jinja2.TemplateSyntaxError as error:
            raise ModelError(
                f"{origin}, line {error.lineno}: {error.message}", expected="a Jinja template"
            ) from error

    def render(
        self, messages: Sequence[Message], *, add_generation_prompt: bool = True, **variables: Any
    ) -> str:
        """The conversation as one string, special tokens spelled out.

        Args:
            messages: each with a "role" ("system", "user", "assistant") and a "content".
            add_generation_prompt: open the assistant's turn at the end.
            variables: what else the template asks for, such as `bos_token` or `date_string`.

        Raises:
            ModelError: a message is malformed, or the template refuses it.
        """
        check_messages(messages)
        values = {"tools": None, "documents": None, **variables}
        try:
            return self._template.render(
                messages=[dict(m) for m in messages],
                add_generation_prompt=add_generation_prompt,
                **values,
            )
        except Exception as error:  # a template is a stranger's program: it can fail in any way
            raise ModelError(
                f"{self.origin} does not accept these messages: {error}",
                expected="messages with the roles and in the order that this model knows",
            ) from error


def check_messages(messages: Sequence[Message]) -> None:
    """Refuse what is not a list of messages.

    Raises:
        ModelError: naming the message.
    """
    expected = '[{"role": "user", "content": "Hello"}, …]'
    if isinstance(messages, (str, Mapping)) or not messages:
        raise ModelError(f"The conversation is {messages!r}.", expected)
    for i, message in enumerate(messages):
        for key in ("role", "content"):
            if not isinstance(message, Mapping) or not isinstance(message.get(key), str):
                raise ModelError(f"Message {i} has no text under {key!r}: {message!r}.", expected)


def load_chat_template(folder: Path, tokenizer_config: Mapping[str, Any]) -> ChatTemplate | None:
    """The folder's template, or None if it has none.

    `chat_template.jinja` goes before the `chat_template` of tokenizer_config.json, which is a
    string or a list of named templates, of which "default" (or the only one) is taken.

    Raises:
        ModelError: the template cannot be read or compiled.
    """
    file = folder / "chat_template.jinja"
    if file.is_file():
        try:
            return ChatTemplate(file.read_text(encoding="utf-8"), str(file))
        except (OSError, UnicodeDecodeError) as error:
            raise ModelError(f"{file} cannot be read: {error}", "a UTF-8 text file") from error
    origin = f"chat_template of {folder / 'tokenizer_config.json'}"
    found = tokenizer_config.get("chat_template")
    if found is None or isinstance(found, str):
        return None if found is None else ChatTemplate(found, origin)
    return ChatTemplate(_default_of(found, origin), origin)


def _default_of(named: Any, origin: str) -> str:
    try:
        sources = {entry["name"]: entry["template"] for entry in named}
    except (TypeError, KeyError) as error:
        raise ModelError(
            f"{origin} is {named!r:.80}.",
            expected='a string, or a list of {"name": …, "template": …}',
        ) from error
    if "default" not in sources and len(sources) != 1:
        raise ModelError(f"{origin} has only the names {sorted(sources)}.", expected='"default"')
    source = sources.get("default", next(iter(sources.values())))
    if not isinstance(source, str):
        raise ModelError(f"{origin} is {source!r:.80}.", expected="text")
    return source


class _GenerationBlock(Extension):
    """`{% generation %}…{% endgeneration %}` marks what the model wrote; to us it is plain text."""

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


_GenerationBlock.tags = {"generation"}


def _environment() -> ImmutableSandboxedEnvironment:
    """Jinja as Hugging Face's templates expect it."""
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=[_GenerationBlock, "jinja2.ext.loopcontrols"],
    )
    # Jinja's own tojson escapes HTML, which would change what the model reads.
    environment.filters["tojson"] = _to_json
    environment.globals.update(raise_exception=_raise_exception, strftime_now=_strftime_now)
    return environment


def _to_json(value: Any, indent: int | None = None, **options: Any) -> str:
    return json.dumps(value, **{"ensure_ascii": False, "indent": indent, **options})


def _raise_exception(message: str) -> None:
    raise jinja2.TemplateError(message)


def _strftime_now(format: str) -> str:
    return datetime.now().strftime(format)
