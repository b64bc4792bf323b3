import dataclasses
import json
import subprocess
import sys

import pytest

from tinyvllm_lab.errors import ConfigError
from tinyvllm_lab.model.config import ModelConfig
from tinyvllm_lab.paths import assets_dir
from tinyvllm_lab.simulate.hardware import (
    MEASURES,
    Efficiency,
    find_hardware,
    hardware_table,
    this_machine,
)
from tinyvllm_lab.simulate.models import ModelShape, find_model, model_names

ROWS = {row["key"]: row for row in json.loads((assets_dir() / "models.json").read_text())["models"]}


@pytest.mark.parametrize("gpu", hardware_table(), ids=lambda gpu: gpu.key)
def test_every_number_of_the_table_has_a_dated_source(gpu):
    assert set(gpu.sources) == set(MEASURES)
    for source in gpu.sources.values():
        assert source.document
        assert source.url.startswith("https://")
        assert 2015 <= int(source.date[:4]) <= 2030


@pytest.mark.parametrize("gpu", hardware_table(), ids=lambda gpu: gpu.key)
def test_the_numbers_are_dense_peaks_in_a_sensible_order(gpu):
    assert gpu.flops("bfloat16") == gpu.flops("float16")
    assert gpu.flops("float32") < gpu.flops("bfloat16") <= gpu.flops("int8")
    assert gpu.memory_bytes % 2**30 == 0
    assert 50 < gpu.ridge_point() < 500


def test_the_table_holds_the_promised_gpus_with_their_datasheet_numbers():
    # float16 tensor peak without sparsity, bandwidth, memory: written down here a second time.
    expected = {
        "A10G": (70e12, 600e9, 24),
        "L4": (121e12, 300e9, 24),
        "RTX 4090": (165.2e12, 1008e9, 24),
        "A100 40GB": (312e12, 1555e9, 40),
        "A100 80GB": (312e12, 2039e9, 80),
        "H100 SXM": (1979e12 / 2, 3.35e12, 80),
        "H200": (1979e12 / 2, 4.8e12, 141),
    }
    for name, (flops, bandwidth, gigabytes) in expected.items():
        gpu = find_hardware(name)
        assert gpu.flops("bfloat16") == flops
        assert gpu.bandwidth == bandwidth
        assert gpu.memory_bytes == gigabytes << 30


def test_names_are_found_by_a_unique_beginning_and_refused_otherwise():
    assert find_hardware("nvidia a10g").key == "a10g"
    assert find_hardware("h100").key == "h100-sxm"
    with pytest.raises(ConfigError, match="ambiguous"):
        find_hardware("A100")
    with pytest.raises(ConfigError, match="B300"):
        find_hardware("B300")
    with pytest.raises(ConfigError, match="float64"):
        find_hardware("L4").flops("float64")


@pytest.mark.parametrize("fraction", [0.0, -1.0, 1.5, float("nan")])
def test_an_efficiency_is_a_fraction(fraction):
    with pytest.raises(ConfigError, match=r"Efficiency\.gemm"):
        Efficiency(gemm=fraction)


def test_this_machine_is_measured_with_plausible_numbers():
    machine = this_machine()
    assert find_hardware("this machine") is machine
    assert set(machine.sources) == set(MEASURES)
    assert 1e9 < machine.flops("float32") < 1e14
    assert 1e8 < machine.bandwidth < 1e13
    assert machine.memory_bytes > 1 << 28


@pytest.mark.parametrize("name", model_names())
def test_parameter_counts_are_the_published_ones(name):
    assert find_model(name).num_parameters == ROWS[name]["num_parameters"]


@pytest.mark.parametrize("name", model_names())
def test_shapes_agree_with_our_model_config(name):
    shape = find_model(name)
    config = ModelConfig(
        **{f.name: getattr(shape, f.name) for f in dataclasses.fields(shape) if f.name in SIZES},
        dtype="bfloat16",
    )
    assert config.num_parameters() == shape.num_parameters
    assert config.kv_bytes_per_token() == shape.kv_bytes_per_token
    assert ModelShape.from_config(config, shape.name) == shape


SIZES = {f.name for f in dataclasses.fields(ModelConfig)} & set(ROWS["tiny"])


def test_the_tiny_shape_is_the_shipped_models():
    config = ModelConfig.from_dir(assets_dir() / "models" / "tiny")
    assert ModelShape.from_config(config, find_model("tiny").name) == find_model("tiny")


def test_costs_of_the_1b_by_hand():
    shape = find_model("Llama 3.2 1B")
    assert shape.kv_bytes_per_token == 32 * 1024
    assert shape.weight_bytes == 2 * 1_235_814_400
    # Q and O are 2048 x 2048, K and V 2048 x 512, the MLP's three 2048 x 8192; 16 layers.
    per_layer = 2 * 2048 * 2048 + 2 * 2048 * 512 + 3 * 2048 * 8192
    assert shape.linear_parameters == 16 * per_layer
    # Rule of thumb: two FLOPs per parameter (the tied embedding is used as the output head).
    assert shape.flops_per_token(0) == pytest.approx(2 * shape.num_parameters, rel=1e-3)
    assert shape.attention_flops_per_pair == 16 * 32 * 64 * 4


def test_quantised_weights_shrink_and_the_cache_stays():
    shape = find_model("llama-3.1-8b").with_dtypes("int4")
    assert shape.weight_bytes == find_model("llama-3.1-8b").weight_bytes // 4
    assert shape.kv_bytes_per_token == find_model("llama-3.1-8b").kv_bytes_per_token
    assert shape.with_dtypes("int4", "int8").kv_bytes_per_token == shape.kv_bytes_per_token // 2


def test_bad_shapes_are_refused():
    with pytest.raises(ConfigError, match="llama-9"):
        find_model("llama-9")
    with pytest.raises(ConfigError, match="num_layers"):
        dataclasses.replace(find_model("tiny"), num_layers=0)
    with pytest.raises(ConfigError, match="int3"):
        find_model("tiny").with_dtypes("int3")


def test_the_room_imports_neither_torch_nor_plotly():
    code = (
        "import sys, tinyvllm_lab.simulate as s\n"
        "[getattr(s, name) for name in s.__all__]\n"
        "s.CostModel('h200', 'tiny'); s.chat(10).source()\n"
        "assert not {'torch', 'plotly', 'pandas'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
