"""A model of exactly Llama 3.2 1B's shape, in bfloat16 (2.47 GB), loads and generates in its size.

What is measured is the peak of the resident memory (`VmHWM`) of a fresh process, less what it held
before it opened the model. Pages of the mapped file count in it, as they do in `top`: that is the
strict measure, for the operating system may drop these pages at any time and read them again. What
it cannot drop (private memory: KV cache, activations, copies of weights) is measured beside it.
"""

import json
import subprocess
import sys
import textwrap

import pytest
import torch
from llama_shapes import LLAMA32_1B

from tinyvllm_lab.model.config import ModelConfig
from tinyvllm_lab.model.safetensors_writer import save_safetensors
from tinyvllm_lab.model.weights import weight_shapes

LOAD_AND_GENERATE = """
    import json, sys
    import torch
    from tinyvllm_lab.engine.config import EngineConfig
    from tinyvllm_lab.engine.plan import StepPlan
    from tinyvllm_lab.engine.request import Request
    from tinyvllm_lab.engine.torch_executor import TorchExecutor
    from tinyvllm_lab.model.llama import LlamaModel

    def resident(field):
        lines = open("/proc/self/status").read().splitlines()
        return next(1024 * int(line.split()[1]) for line in lines if line.startswith(field + ":"))

    torch.set_num_threads(1)
    torch.ones(64, 64, dtype=torch.bfloat16) @ torch.ones(64, 64, dtype=torch.bfloat16)
    before = resident("VmRSS"), resident("RssAnon")
    model = LlamaModel.from_dir(sys.argv[1])
    loaded = resident("VmRSS") - before[0]
    executor = TorchExecutor(model, EngineConfig())
    request = Request("r", list(range(100, 132)))
    request.block_table = [7, 3, 9]
    for _ in range(4):
        start, count = request.num_computed_tokens, request.num_tokens
        plan = StepPlan(0, [request], [count - start], [start], [True], count - start)
        request.num_computed_tokens = count
        request.token_ids += executor.execute(plan).token_ids
    print(json.dumps({
        "peak": resident("VmHWM") - before[0],
        "private": resident("RssAnon") - before[1],
        "loaded": loaded,
        "tokens": request.output_token_ids,
        "kv": executor.kv.num_bytes,
    }))
"""


@pytest.fixture
def model_dir(tmp_path):
    """The random model. It is written from one tile of numbers, so that making it costs little."""
    (tmp_path / "config.json").write_text(json.dumps(LLAMA32_1B))
    shapes = weight_shapes(ModelConfig.from_dicts(LLAMA32_1B))
    tile = torch.empty(1 << 20, dtype=torch.bfloat16).uniform_(-0.04, 0.04)
    largest = max(torch.Size(shape).numel() for shape in shapes.values())
    numbers = tile.repeat(-(-largest // len(tile)))
    weights = {name: numbers[: torch.Size(s).numel()].view(s) for name, s in shapes.items()}
    norms = {name: torch.ones_like(w) for name, w in weights.items() if w.dim() == 1}
    save_safetensors(tmp_path / "model.safetensors", weights | norms)
    yield tmp_path
    (tmp_path / "model.safetensors").unlink()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs Linux: reads /proc")
def test_1b_shaped_model_loads_and_generates_within_115_percent_of_its_size(
    model_dir, record_property
):
    size = (model_dir / "model.safetensors").stat().st_size
    assert 2.47e9 < size < 2.48e9
    script = textwrap.dedent(LOAD_AND_GENERATE)
    command = [sys.executable, "-c", script, str(model_dir)]
    out = subprocess.run(command, capture_output=True, text=True, check=True, timeout=600)
    found = json.loads(out.stdout)
    record_property("took", f"1B-shaped model: peak {found['peak'] / size:.3f} x its size")
    assert len(found["tokens"]) == 4
    assert found["loaded"] < 0.05 * size, "opening the file must not read the weights"
    assert found["peak"] < 1.15 * size
    assert found["private"] < 0.15 * size, "weights were copied"
