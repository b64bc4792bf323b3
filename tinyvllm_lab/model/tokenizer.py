"""`Tokenizer`: text to token ids and back, as the folder's `tokenizer.json` says (chapter 02)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tokenizers

from tinyvllm_lab.errors import ModelError
from tinyvllm_lab.model.chat import (
    LLAMA_3_2_TEMPLATE,
    LLAMA_3_MARKS,
    ChatTemplate,
    Message,
    load_chat_template,
)
from tinyvllm_lab.model.config_fields import read_json_object
from tinyvllm_lab.model.detokenizer import IncrementalDetokenizer, TokenPieces

SPECIAL_TOKEN_NAMES = ("bos_token", "eos_token", "pad_token", "unk_token")
# Llama 3's ends of text, message and turn. Many copies of its config name only the first.
LLAMA_3_ENDS = ("<|end_of_text|>", "<|eom_id|>", "<|eot_id|>")


class Tokenizer:
    """The tokenizer of one model folder, on Hugging Face's `tokenizers` library.

    Args:
        backend: the library's tokenizer.
        special_tokens: "bos_token", "eos_token", … -> text.
        chat_template: the folder's template; None: the built-in one if the vocabulary is Llama 3's.

    Attributes:
        bos_token_id, eos_token_id: None if the model has none.
        eos_token_ids: every token that ends this model's answer, in ascending order.

    Raises:
        ModelError: the tokenizer decodes in a way that no Llama-family model uses.
    """

    def __init__(
        self,
        backend: tokenizers.Tokenizer,
        special_tokens: Mapping[str, str] | None = None,
        chat_template: ChatTemplate | None = None,
    ) -> None:
        # A file may keep the padding and truncation of its training: they would cut prompts here.
        backend.no_padding()
        backend.no_truncation()
        self._backend = backend
        self._pieces = TokenPieces.of(backend)
        self._special_ids = frozenset(
            i for i, token in backend.get_added_tokens_decoder().items() if token.special
        )
        self.special_tokens = dict(special_tokens or {})
        self.bos_token_id = self._id_of("bos_token")
        self.eos_token_id = self._id_of("eos_token")
        self.eos_token_ids = self._all_eos_ids()
        self.chat_template = chat_template or self._built_in_template()

    @classmethod
    def from_dir(cls, folder: str | Path) -> Tokenizer:
        """Read `tokenizer.json`, `tokenizer_config.json` and the chat template of a model folder.

        Raises:
            ModelError: a file is missing or damaged; the message names it.
        """
        folder = Path(folder)
        backend = _read_backend(folder / "tokenizer.json")
        config = _read_optional(folder / "tokenizer_config.json")
        special = _special_tokens(_read_optional(folder / "special_tokens_map.json") | config)
        return cls(backend, special, load_chat_template(folder, config))

    @property
    def vocab_size(self) -> int:
        """Number of tokens, special ones included. (A model's embedding may have more rows.)"""
        return self._backend.get_vocab_size(with_added_tokens=True)

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """Token ids of `text`; special tokens spelled out in it become their own ids.

        Args:
            add_special_tokens: put the begin-of-text token in front, if the model has one.

        Raises:
            ModelError: `text` is not a string of valid Unicode.
        """
        try:
            return self._backend.encode(text, add_special_tokens=add_special_tokens).ids
        except (TypeError, UnicodeEncodeError) as error:
            raise ModelError(f"{text!r:.80} cannot be encoded.", "a string of Unicode") from error

    def decode(self, token_ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        """Text of the ids. Ids that no token has (rows that only pad the embedding) add nothing.

        Raises:
            ModelError: an id is negative or no integer.
        """
        try:
            return self._backend.decode(token_ids, skip_special_tokens=skip_special_tokens)
        except (TypeError, OverflowError) as error:
            raise ModelError(f"{token_ids!r:.80} cannot be decoded.", "ids, 0 or more") from error

    def detokenizer(self, skip_special_tokens: bool = True) -> IncrementalDetokenizer:
        """A decoder for one request's tokens, as they come."""
        skipped = self._special_ids if skip_special_tokens else frozenset()
        return IncrementalDetokenizer(self._pieces, skipped)

    def token_id(self, text: str) -> int | None:
        """Id of the token that is spelled so in the vocabulary, or None."""
        return self._backend.token_to_id(text)

    def is_special(self, token_id: int) -> bool:
        """True for control tokens, such as begin-of-text, that are no text."""
        return token_id in self._special_ids

    def token_text(self, token_id: int) -> str:
        r"""One token, for display: its text, with bytes that are no whole character as `\xE2`."""
        return self._pieces.bytes_of(token_id).decode("utf-8", errors="backslashreplace")

    def apply_chat_template(
        self, messages: Sequence[Message], add_generation_prompt: bool = True, **variables: Any
    ) -> str:
        """The conversation as the text that the model was trained on.

        Args:
            messages: [{"role": "user", "content": "Hello"}, …].
            add_generation_prompt: open the assistant's turn at the end.
            variables: for the template; Llama 3.2's knows `date_string`, as in "26 Jul 2024".

        Raises:
            ModelError: the model has no template, or the template refuses the messages.
        """
        if self.chat_template is None:
            raise ModelError(
                "This model has no chat template, and its vocabulary is not Llama 3's.",
                expected="chat_template.jinja, or chat_template in tokenizer_config.json",
                fix="Use an instruction-tuned model, or send a plain prompt.",
            )
        return self.chat_template.render(
            messages,
            add_generation_prompt=add_generation_prompt,
            **{**self.special_tokens, **variables},
        )

    def encode_chat(
        self, messages: Sequence[Message], add_generation_prompt: bool = True, **variables: Any
    ) -> list[int]:
        """Token ids of the rendered conversation.

        The template writes begin-of-text itself, so the tokenizer must not add a second one.

        Raises:
            ModelError: as `apply_chat_template`.
        """
        text = self.apply_chat_template(messages, add_generation_prompt, **variables)
        return self.encode(text, add_special_tokens=False)

    def _id_of(self, name: str) -> int | None:
        text = self.special_tokens.get(name)
        return None if text is None else self.token_id(text)

    def _all_eos_ids(self) -> tuple[int, ...]:
        known = [self.eos_token_id, *(self.token_id(text) for text in LLAMA_3_ENDS)]
        return tuple(sorted({i for i in known if i is not None}))

    def _built_in_template(self) -> ChatTemplate | None:
        if any(self.token_id(mark) is None for mark in LLAMA_3_MARKS):
            return None
        self.special_tokens.setdefault("bos_token", LLAMA_3_MARKS[0])
        return ChatTemplate(LLAMA_3_2_TEMPLATE, "the built-in Llama 3.2 chat template")


def _read_backend(file: Path) -> tokenizers.Tokenizer:
    if not file.is_file():
        raise ModelError(
            f"{file} does not exist.",
            expected="a Hugging Face model folder with tokenizer.json",
            fix="Meta's original tokenizer.model is another format: take the folder from the hub.",
        )
    try:
        return tokenizers.Tokenizer.from_file(str(file))
    except Exception as error:  # the library raises bare Exception
        raise ModelError(f"{file} is damaged: {error}", "a tokenizers file") from error


def _read_optional(file: Path) -> dict[str, Any]:
    return read_json_object(file) if file.is_file() else {}


def _special_tokens(config: Mapping[str, Any]) -> dict[str, str]:
    """Special tokens by name; a file gives them as text or as {"content": text}."""
    tokens = {}
    for name in SPECIAL_TOKEN_NAMES:
        value = config.get(name)
        text = value.get("content") if isinstance(value, dict) else value
        if isinstance(text, str):
            tokens[name] = text
    return tokens
