"""nvcc compiles every kernel for every architecture: nothing spills, registers keep to the headers.

Builds are kept in the build cache, so only changed files are compiled again: all of them take about
a minute and a half on one core.
"""

import importlib.util
import json
import re

import pytest

from tinyvllm_lab.kernels.cuda.compiler import build_cuda
from tinyvllm_lab.kernels.sources import find_source
from tinyvllm_lab.paths import assets_dir, kernels_dir

ARCHITECTURES = [75, 80, 86, 89, 90, 100, 120]
FILES = sorted(path.stem for path in kernels_dir().glob("*.cu"))

CEILING = re.compile(r"^//   (\w+) +<= (\d+) ", re.M)
ENTRY = re.compile(
    r"Compiling entry function '(\w+)'.*?"
    r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads.*?"
    r"Used (\d+) registers",
    re.S,
)


def ceilings(file: str) -> dict[str, int]:
    """Kernel without type and head size -> registers, from the table in the file's header."""
    return {name: int(most) for name, most in CEILING.findall(find_source(file).read_text())}


def without_type(kernel: str) -> str:
    return re.sub(r"_(f32|bf16)(_d\d+)?$", "", kernel)


@pytest.mark.needs("nvcc")
@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("file", FILES)
def test_every_kernel_compiles_without_spills_and_under_its_ceiling(file, arch):
    build = build_cuda(find_source(file), f"sm_{arch}")
    allowed, entries = ceilings(file), ENTRY.findall(build.ptxas)
    assert {name for name, *_ in entries} == {kernel.name for kernel in build.declarations.kernels}
    assert {without_type(name) for name, *_ in entries} == set(allowed)
    for name, stack, stores, loads, registers in entries:
        assert (stack, stores, loads) == ("0", "0", "0"), name
        assert int(registers) <= allowed[without_type(name)], name


@pytest.mark.needs("nvcc", "cxx")
def test_the_stored_table_is_what_the_compiler_says_now():
    """Run `python assets/resources/make_table.py` after a change to a kernel."""
    script = assets_dir() / "resources" / "make_table.py"
    spec = importlib.util.spec_from_file_location("make_table", script)
    make_table = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(make_table)
    made, kept = make_table.table(), json.loads(make_table.PATH.read_text())
    assert made["kernels"].keys() == kept["kernels"].keys()
    if made["compiler"] == kept["compiler"]:  # another one may give other registers
        assert make_table.text(made) == make_table.PATH.read_text()


def test_all_the_course_promises_is_there():
    assert FILES == [
        "argmax",
        "copy_blocks",
        "embedding",
        "gemv",
        "matmul",
        "paged_attention",
        "prefill_attention",
        "reshape_and_cache",
        "rmsnorm",
        "rope",
        "sampling",
        "softmax",
        "swiglu",
    ]
