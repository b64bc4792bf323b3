"""Chat templates: the oracle is transformers' `apply_chat_template` on the same folder."""

import json
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizer_samples import TINY, byte_level, write_folder
from tokenizers import AddedToken

from tinyvllm_lab.errors import ModelError
from tinyvllm_lab.model.chat import LLAMA_3_2_TEMPLATE, LLAMA_3_MARKS, ChatTemplate
from tinyvllm_lab.model.tokenizer import Tokenizer

USER = {"role": "user", "content": " Hello, wörld! \n"}
CONVERSATIONS = [
    [USER],
    [{"role": "system", "content": "  Be brief. "}, USER],
    [USER, {"role": "assistant", "content": "Hi.\n"}, {"role": "user", "content": "Why?"}],
    [{"role": "system", "content": ""}, USER, {"role": "assistant", "content": "{{ no }} <b>&"}],
]
CHATML = """\
{% for message in messages %}{% if loop.first and message['role'] != 'system' %}
<|im_start|>system
Default{{ '<|im_end|>' }}
{% endif %}
{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}
{% endfor %}
{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}
"""
EXTENSIONS = """\
{{ bos_token }}{% for m in messages %}{% if m.role == 'assistant' %}{% continue %}{% endif %}
    {%- generation %}[{{ m | tojson }}]{% endgeneration %}
{% endfor %}{{ eos_token }}{{ mood | default('calm') }}{{ tools is none }}
"""


def hf_render(folder, messages, **variables):
    from transformers import PreTrainedTokenizerFast

    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    return tokenizer.apply_chat_template(messages, tokenize=False, **variables)


def config_with(template):
    config = {"bos_token": "<s>", "eos_token": "</s>", "chat_template": template}
    return {"tokenizer_config.json": json.dumps(config)}


def named(**templates):
    return [{"name": name, "template": text} for name, text in templates.items()]


FOLDERS = {
    "string": config_with(CHATML),
    "named": config_with(named(tool_use="tools only", default=CHATML)),
    "jinja file": config_with("not this one") | {"chat_template.jinja": CHATML},
    "extensions": config_with(EXTENSIONS),
    "llama 3.2": config_with(LLAMA_3_2_TEMPLATE),
}


@pytest.mark.parametrize("add_generation_prompt", [True, False])
@pytest.mark.parametrize("messages", CONVERSATIONS)
@pytest.mark.parametrize("kind", FOLDERS)
def test_renders_as_transformers(tmp_path, kind, messages, add_generation_prompt):
    folder = write_folder(tmp_path, byte_level(), FOLDERS[kind])
    variables = {"add_generation_prompt": add_generation_prompt, "date_string": "26 Jul 2024"}
    variables["mood"] = "excited"
    ours = Tokenizer.from_dir(folder).apply_chat_template(messages, **variables)
    assert ours == hf_render(folder, messages, **variables)


@pytest.mark.parametrize("messages", CONVERSATIONS)
def test_the_tiny_model_renders_and_encodes_as_transformers(messages):
    from transformers import PreTrainedTokenizerFast

    ours, theirs = Tokenizer.from_dir(TINY), PreTrainedTokenizerFast.from_pretrained(TINY)
    expected = theirs.apply_chat_template(
        messages, add_generation_prompt=True, date_string="01 Jan 2026", return_dict=False
    )
    assert ours.encode_chat(messages, date_string="01 Jan 2026") == expected


def llama_3_text(messages, date):
    """Llama 3.2's format, written down a second time in Python."""
    has_system = messages[0]["role"] == "system"
    system = messages[0]["content"].strip() if has_system else ""
    dates = f"Cutting Knowledge Date: December 2023\nToday Date: {date}\n\n"
    turns = [("system", dates + system)]
    turns += [(m["role"], m["content"].strip()) for m in messages[has_system:]]
    body = "".join(
        f"<|start_header_id|>{role}<|end_header_id|>\n\n{text}<|eot_id|>" for role, text in turns
    )
    return f"<|begin_of_text|>{body}<|start_header_id|>assistant<|end_header_id|>\n\n"


ROLES = st.sampled_from(["system", "user", "assistant"])
MESSAGES = st.lists(st.fixed_dictionaries({"role": ROLES, "content": st.text()}), min_size=1)


@given(MESSAGES)
def test_the_built_in_template_is_llama_3_2s_format(messages):
    rendered = ChatTemplate(LLAMA_3_2_TEMPLATE).render(
        messages, bos_token="<|begin_of_text|>", date_string="26 Jul 2024"
    )
    assert rendered == llama_3_text(messages, "26 Jul 2024")


def llama_3_folder(folder, marks=LLAMA_3_MARKS):
    backend = byte_level()
    backend.add_special_tokens([AddedToken(mark, special=True) for mark in marks])
    return write_folder(folder, backend, {})


def test_a_folder_without_template_gets_the_built_in_one_and_todays_date(tmp_path):
    tokenizer = Tokenizer.from_dir(llama_3_folder(tmp_path))
    before = datetime.now().strftime("%d %b %Y")
    rendered = tokenizer.apply_chat_template([USER])
    days = {before, datetime.now().strftime("%d %b %Y")}
    assert rendered in {llama_3_text([USER], day) for day in days}


def test_a_folder_of_another_family_without_template_cannot_chat(tmp_path):
    tokenizer = Tokenizer.from_dir(llama_3_folder(tmp_path, LLAMA_3_MARKS[:2]))
    with pytest.raises(ModelError, match="no chat template"):
        tokenizer.apply_chat_template([USER])


NO_TEXT = [None, 5, [{"type": "text", "text": "x"}]]
NO_MESSAGE = [5, {"role": "user"}, *({"role": "user", "content": value} for value in NO_TEXT)]


@pytest.mark.parametrize(
    "messages", ["Hello", [], None, {}, {"role": "user"}, *([bad] for bad in NO_MESSAGE)]
)
def test_what_is_no_conversation_is_refused(messages):
    with pytest.raises(ModelError, match=r"conversation|Message 0"):
        ChatTemplate(LLAMA_3_2_TEMPLATE).render(messages, bos_token="")


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        ("{{ raise_exception('Roles must alternate') }}", "Roles must alternate"),
        ("{{ messages[7].content.x }}", "no element 7"),
        ("{{ messages.__class__.__mro__ }}", "unsafe"),
        ("{{ messages.append(1) }}", "unsafe|not safely callable"),
        ("{{ 1 + 'a' }}", "unsupported operand"),
        ("{% for i in range(10 ** 9) %}{% endfor %}", "[Rr]ange"),
    ],
)
def test_a_template_that_fails_is_a_typed_error(source, complaint):
    with pytest.raises(ModelError, match=complaint):
        ChatTemplate(source).render([USER])


def test_a_template_that_is_no_jinja_names_its_line():
    with pytest.raises(ModelError, match=r"mine, line 2"):
        ChatTemplate("fine\n{% if %}", "mine")


@pytest.mark.parametrize("template", [5, [], [{"name": "a"}], named(a="x", b="y"), named(a=5)])
def test_a_chat_template_entry_of_no_known_form_is_refused(tmp_path, template):
    folder = write_folder(tmp_path, byte_level(), config_with(template))
    with pytest.raises(ModelError, match="chat_template"):
        Tokenizer.from_dir(folder)


def test_a_template_file_that_is_no_text_is_refused(tmp_path):
    folder = write_folder(tmp_path, byte_level(), {})
    (folder / "chat_template.jinja").write_bytes(b"\xff\xfe")
    with pytest.raises(ModelError, match="cannot be read"):
        Tokenizer.from_dir(folder)
