"""From a GGUF file to a Hugging Face folder: names, numbers, tokenizer, config.

GGUF is the format of llama.cpp: one file with key-value pairs, tokenizer and tensors, the latter
mostly quantised to 4 or 8 bits. The `gguf` package reads it; what is left to do is here.
Source: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
import torch
from tokenizers import AddedToken, decoders, models, pre_tokenizers
from tqdm import tqdm

from tinyvllm_lab.errors import ModelError
from tinyvllm_lab.model.safetensors_writer import save_safetensors

_GLOBAL_NAMES = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_LAYER_TENSOR = re.compile(r"blk\.(\d+)\.(\w+)\.weight")
_CONTROL_TOKEN = 3  # gguf.TokenType.CONTROL
_SPECIAL_TOKENS = {"bos": "bos", "eos": "eos", "unk": "unknown", "pad": "padding"}


class _Keys:
    """The key-value pairs of a GGUF file, with errors that name the key."""

    def __init__(self, reader: Any, path: Path) -> None:
        self._fields, self._path = reader.fields, path

    def get(self, key: str, default: Any = None) -> Any:
        """The value, or the default."""
        field = self._fields.get(key)
        return default if field is None else field.contents()

    def __getitem__(self, key: str) -> Any:
        if key not in self._fields:
            raise ModelError(f"{self._path} has no key {key}.", "a GGUF file of a Llama model")
        return self.get(key)


def convert_gguf(path: Path, folder: Path, progress: bool = False) -> None:
    """Write `config.json`, `tokenizer.json` and `model.safetensors` (bfloat16) into a folder.

    Covers Llama models with SmolLM's byte-level tokenizer. Tensors are dequantised to float32 and
    rounded to bfloat16.

    Raises:
        ModelError: the package `gguf` is missing, the file is damaged, or it holds something else.
    """
    reader = _open(path)
    keys = _Keys(reader, path)
    if keys["general.architecture"] != "llama":
        raise ModelError(f"{path} holds a {keys['general.architecture']}.", expected="a llama")
    tensors = dict(_tensors(reader, keys, path, progress))
    config = _config(keys, tied="lm_head.weight" not in tensors)
    _write_json(folder / "config.json", config)
    special_ids = {name: config[name] for name in config if name.endswith("_token_id")}
    _write_json(folder / "generation_config.json", special_ids)
    _tokenizer(keys).save(str(folder / "tokenizer.json"))
    _write_json(folder / "tokenizer_config.json", _tokenizer_config(keys))
    save_safetensors(folder / "model.safetensors", tensors, {"format": "pt"})


def require_gguf() -> Any:
    """The `gguf` package.

    Raises:
        ModelError: it is not installed.
    """
    try:
        import gguf
    except ImportError:
        raise ModelError(
            "The package gguf, which reads GGUF files, is not installed.", fix="pip install gguf"
        ) from None
    return gguf


def _open(path: Path) -> Any:
    gguf = require_gguf()
    try:
        return gguf.GGUFReader(path)
    except (OSError, ValueError, IndexError, KeyError, UnicodeDecodeError) as error:
        raise ModelError(f"{path} is no GGUF file, or a damaged one: {error}.") from error


def _tensors(
    reader: Any, keys: _Keys, path: Path, progress: bool
) -> Iterator[tuple[str, torch.Tensor]]:
    quants = require_gguf().quants
    for tensor in tqdm(reader.tensors, "Dequantising", unit=" tensors", disable=not progress):
        try:
            values = quants.dequantize(tensor.data, tensor.tensor_type)
        except NotImplementedError as error:
            raise ModelError(f"{path}: tensor {tensor.name}: {error}") from error
        if tensor.name.endswith("attn_q.weight"):
            values = unpermute_for_rope(values, keys["llama.attention.head_count"])
        elif tensor.name.endswith("attn_k.weight"):
            values = unpermute_for_rope(values, keys["llama.attention.head_count_kv"])
        # A copy, for the reader's array is a view of the file.
        yield _name(tensor.name, path), torch.from_numpy(np.array(values)).to(torch.bfloat16)


def _name(gguf_name: str, path: Path) -> str:
    if gguf_name in _GLOBAL_NAMES:
        return _GLOBAL_NAMES[gguf_name]
    found = _LAYER_TENSOR.fullmatch(gguf_name)
    if found is None or found[2] not in _LAYER_NAMES:
        raise ModelError(f"{path} has the tensor {gguf_name!r}.", "only those of a plain Llama")
    return f"model.layers.{found[1]}.{_LAYER_NAMES[found[2]]}.weight"


def unpermute_for_rope(weight: np.ndarray, num_heads: int) -> np.ndarray:
    """Bring the rows of a query or key projection from GGUF's order into Hugging Face's.

    RoPE turns pairs of numbers. In GGUF the two of a pair are neighbours, rows 2i and 2i + 1 of a
    head; in Hugging Face's files they are half a head apart, rows i and i + head_dim/2.

    Args:
        weight: [num_heads * head_dim, hidden_size]
    """
    rows, columns = weight.shape
    pairs = weight.reshape(num_heads, rows // num_heads // 2, 2, columns)
    return pairs.swapaxes(1, 2).reshape(rows, columns)  # [num_heads * (2 * head_dim/2), hidden]


def _config(keys: _Keys, tied: bool) -> dict[str, Any]:
    hidden_size, num_heads = keys["llama.embedding_length"], keys["llama.attention.head_count"]
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": len(keys["tokenizer.ggml.tokens"]),
        "hidden_size": hidden_size,
        "intermediate_size": keys["llama.feed_forward_length"],
        "num_hidden_layers": keys["llama.block_count"],
        "num_attention_heads": num_heads,
        "num_key_value_heads": keys["llama.attention.head_count_kv"],
        "head_dim": hidden_size // num_heads,
        "hidden_act": "silu",
        "max_position_embeddings": keys["llama.context_length"],
        "rms_norm_eps": _decimal(keys["llama.attention.layer_norm_rms_epsilon"]),
        "rope_theta": _decimal(keys["llama.rope.freq_base"]),
        "rope_scaling": None,
        "tie_word_embeddings": tied,
        "torch_dtype": "bfloat16",
        "bos_token_id": keys["tokenizer.ggml.bos_token_id"],
        "eos_token_id": keys["tokenizer.ggml.eos_token_id"],
        "pad_token_id": keys["tokenizer.ggml.padding_token_id"],
    }


def _decimal(value: float) -> float:
    """The decimal number that a float32 stands for: 1e-05, not 9.999999747378752e-06."""
    return float(f"{value:.6g}")


def _tokenizer(keys: _Keys) -> tokenizers.Tokenizer:
    """Byte-level BPE that takes every digit alone, as SmolLM was trained."""
    if keys["tokenizer.ggml.pre"] != "smollm":
        raise ModelError(f"The tokenizer is {keys['tokenizer.ggml.pre']!r}.", expected="'smollm'")
    tokens = keys["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ")) for merge in keys["tokenizer.ggml.merges"]]
    vocabulary = {token: i for i, token in enumerate(tokens)}
    tokenizer = tokenizers.Tokenizer(models.BPE(vocabulary, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    kinds = keys["tokenizer.ggml.token_type"]
    control = [token for token, kind in zip(tokens, kinds, strict=True) if kind == _CONTROL_TOKEN]
    tokenizer.add_special_tokens([AddedToken(token, normalized=False) for token in control])
    return tokenizer


def _tokenizer_config(keys: _Keys) -> dict[str, Any]:
    tokens = keys["tokenizer.ggml.tokens"]
    special = {
        f"{short}_token": tokens[keys[f"tokenizer.ggml.{long}_token_id"]]
        for short, long in _SPECIAL_TOKENS.items()
    }
    return {
        **special,
        "clean_up_tokenization_spaces": False,
        "model_max_length": keys["llama.context_length"],
        "tokenizer_class": "PreTrainedTokenizerFast",
        "chat_template": keys["tokenizer.chat_template"],
    }


def _write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
