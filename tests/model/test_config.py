"""ModelConfig against transformers' LlamaConfig, and what it refuses."""

import json
import subprocess
import sys

import pytest

from tinyvllm_lab.errors import ModelError
from tinyvllm_lab.model.config import ModelConfig, RopeConfig
from tinyvllm_lab.paths import assets_dir

LLAMA_3_2_1B = {
    "architectures": ["LlamaForCausalLM"],
    "attention_bias": False,
    "bos_token_id": 128000,
    "eos_token_id": [128001, 128008, 128009],
    "head_dim": 64,
    "hidden_act": "silu",
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "max_position_embeddings": 131072,
    "mlp_bias": False,
    "model_type": "llama",
    "num_attention_heads": 32,
    "num_hidden_layers": 16,
    "num_key_value_heads": 8,
    "rms_norm_eps": 1e-05,
    "rope_scaling": {
        "factor": 32.0,
        "high_freq_factor": 4.0,
        "low_freq_factor": 1.0,
        "original_max_position_embeddings": 8192,
        "rope_type": "llama3",
    },
    "rope_theta": 500000.0,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
    "vocab_size": 128256,
}
LLAMA3_ROPE = RopeConfig(500000.0, "llama3", 32.0, 1.0, 4.0, 8192)
SMALL = {
    "vocab_size": 99,
    "hidden_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "intermediate_size": 80,
}


def changed(**fields):
    return LLAMA_3_2_1B | fields


def without(*names):
    return {k: v for k, v in LLAMA_3_2_1B.items() if k not in names}


def test_llama_3_2_1b_reads_as_published():
    config = ModelConfig.from_dicts(LLAMA_3_2_1B)
    assert config == ModelConfig(
        vocab_size=128256, hidden_size=2048, num_layers=16, num_heads=32, num_kv_heads=8,
        head_dim=64, intermediate_size=8192, rms_norm_eps=1e-5, max_position_embeddings=131072,
        tie_word_embeddings=True, dtype="bfloat16", bos_token_id=128000,
        eos_token_ids=(128001, 128008, 128009), rope=LLAMA3_ROPE,
    )  # fmt: skip
    assert config.num_queries_per_kv == 4
    assert config.kv_bytes_per_token() == 32 * 1024
    assert config.kv_bytes_per_token("float32") == 64 * 1024
    assert config.kv_bytes_per_token("float8_e4m3fn") == 16 * 1024
    assert config.num_parameters() == 1_235_814_400


def test_shipped_model_reads():
    config = ModelConfig.from_dir(assets_dir() / "models" / "tiny")
    assert config.num_parameters() == 6_820_096
    assert config.eos_token_ids == (2033, 2041)
    assert config.rope == RopeConfig(500000.0, "llama3", 4.0, 1.0, 4.0, 512)


def test_transformers_5_spelling_means_the_same():
    rope = LLAMA_3_2_1B["rope_scaling"] | {"rope_theta": 500000.0}
    new = without("rope_theta", "rope_scaling", "torch_dtype")
    new |= {"rope_parameters": rope, "dtype": "bfloat16"}
    assert ModelConfig.from_dicts(new) == ModelConfig.from_dicts(LLAMA_3_2_1B)


ROPES = {
    "absent": ({}, RopeConfig(10000.0)),
    "theta only": ({"rope_theta": 1e5, "rope_scaling": None}, RopeConfig(1e5)),
    "default": (
        {"rope_parameters": {"rope_type": "default", "rope_theta": 1e5}},
        RopeConfig(1e5),
    ),
    "old key": (
        {"rope_theta": 7.0, "rope_scaling": {"type": "linear", "factor": 2}},
        RopeConfig(7.0, "linear", 2.0),
    ),
    "theta beside": (
        {"rope_theta": 7.0, "rope_parameters": {"rope_type": "linear", "factor": 2.0}},
        RopeConfig(7.0, "linear", 2.0),
    ),
    "both": (
        {
            "rope_scaling": {"rope_type": "linear", "factor": 4.0},
            "rope_parameters": {"rope_type": "default", "rope_theta": 5.0},
            "rope_theta": 6.0,
        },
        RopeConfig(6.0, "linear", 4.0),
    ),
}


@pytest.mark.parametrize("name", ROPES)
def test_rope_spellings_agree_with_transformers(name, tmp_path):
    fields, expected = ROPES[name]
    config = ModelConfig.from_dicts(SMALL | fields)
    assert config.rope == expected

    (tmp_path / "config.json").write_text(json.dumps(SMALL | fields | {"model_type": "llama"}))
    theirs = pytest.importorskip("transformers").LlamaConfig.from_pretrained(tmp_path)
    rope = theirs.rope_parameters
    assert rope["rope_theta"] == config.rope.theta
    assert rope["rope_type"].replace("default", "none") == config.rope.rope_type
    assert rope.get("factor", 1.0) == config.rope.factor


@pytest.mark.parametrize(
    "shape",
    [
        {},
        {"num_key_value_heads": 2, "tie_word_embeddings": True},
        {"num_key_value_heads": 3, "head_dim": 16, "eos_token_id": [5, 6]},
    ],
)
def test_folders_written_by_transformers_read_the_same(shape, tmp_path):
    transformers = pytest.importorskip("transformers")
    theirs = transformers.LlamaConfig(**SMALL, **shape)
    theirs.architectures = ["LlamaForCausalLM"]
    theirs.save_pretrained(tmp_path)
    ours = ModelConfig.from_dir(tmp_path)
    assert ours.num_kv_heads == theirs.num_key_value_heads
    assert ours.head_dim == theirs.head_dim
    assert ours.tie_word_embeddings == theirs.tie_word_embeddings
    assert ours.rms_norm_eps == theirs.rms_norm_eps
    assert ours.max_position_embeddings == theirs.max_position_embeddings
    model = transformers.LlamaForCausalLM(theirs)
    assert ours.num_parameters() == model.num_parameters()


def test_defaults_are_those_of_transformers():
    theirs = pytest.importorskip("transformers").LlamaConfig(**SMALL)
    ours = ModelConfig.from_dicts(SMALL)
    assert ours.rms_norm_eps == theirs.rms_norm_eps
    assert ours.max_position_embeddings == theirs.max_position_embeddings
    assert ours.rope.theta == theirs.rope_parameters["rope_theta"]
    assert ours.tie_word_embeddings == theirs.tie_word_embeddings


def test_eos_ids_of_both_files_count():
    config = ModelConfig.from_dicts(
        changed(eos_token_id=128001),
        {"eos_token_id": [128001, 128009], "do_sample": True, "temperature": 0.6, "top_p": 0.9},
    )
    assert config.eos_token_ids == (128001, 128009)
    assert config.generation.do_sample is True
    assert (config.generation.temperature, config.generation.top_p) == (0.6, 0.9)
    assert ModelConfig.from_dicts(changed(eos_token_id=None)).eos_token_ids == ()


REFUSED = {
    "architectures": ["MistralForCausalLM"],
    "model_type": "gemma3",
    "hidden_act": "gelu",
    "attention_bias": True,
    "mlp_bias": True,
    "quantization_config": {"quant_method": "gptq"},
    "partial_rotary_factor": 0.5,
    "torch_dtype": "float8_e4m3fn",
    "vocab_size": None,
    "hidden_size": -1,
    "num_hidden_layers": 1.5,
    "num_attention_heads": True,
    "num_key_value_heads": 5,
    "head_dim": 63,
    "rms_norm_eps": float("nan"),
    "rope_theta": 10**400,
    "rope_scaling": [1],
    "eos_token_id": "</s>",
    "tie_word_embeddings": "yes",
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_field_we_cannot_honour_is_refused_by_name(name):
    with pytest.raises(ModelError) as caught:
        ModelConfig.from_dicts(changed(**{name: REFUSED[name]}), where="some/folder")
    assert name.removesuffix("s") in str(caught.value) or "num_kv_heads" in str(caught.value)
    assert caught.value.expected


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"rope_type": "yarn"}, "'yarn'"),
        ({"rope_type": "dynamic"}, "'dynamic'"),
        ({"rope_type": None, "type": "longrope"}, "'longrope'"),
        ({"factor": 0.5}, "factor"),
        ({"factor": None}, "factor"),
        ({"high_freq_factor": 1.0}, "high_freq_factor"),
        ({"partial_rotary_factor": 0.25}, "partial_rotary_factor"),
        ({"full_attention": {"rope_theta": 1.0}}, "full_attention"),
    ],
)
def test_an_unsupported_rope_is_refused_by_name(change, named):
    rope = LLAMA_3_2_1B["rope_scaling"] | change
    with pytest.raises(ModelError, match=named):
        ModelConfig.from_dicts(changed(rope_scaling=rope))


def test_head_dim_absent_needs_divisible_heads():
    config = changed(hidden_size=2050)
    del config["head_dim"]
    with pytest.raises(ModelError, match="num_attention_heads"):
        ModelConfig.from_dicts(config)


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b"\xff{}", b"[" * 100_000, b"9" * 5000])
def test_damaged_json_is_named(content, tmp_path):
    (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(ModelError, match=r"config\.json"):
        ModelConfig.from_dir(tmp_path)


def test_missing_folder_is_named(tmp_path):
    with pytest.raises(ModelError, match="nowhere"):
        ModelConfig.from_dir(tmp_path / "nowhere")


def test_unknown_cache_dtype_is_refused():
    with pytest.raises(ModelError, match="int3"):
        ModelConfig.from_dicts(LLAMA_3_2_1B).kv_bytes_per_token("int3")


def test_reading_a_config_imports_no_torch():
    code = (
        "import sys; from tinyvllm_lab.model.config import ModelConfig;"
        f"ModelConfig.from_dir({str(assets_dir() / 'models' / 'tiny')!r});"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
