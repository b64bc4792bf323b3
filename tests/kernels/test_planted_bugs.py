"""The checker reports each classic bug, on the right line, and accuses no correct kernel."""

import copy
import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch

from tinyvllm_lab.errors import KernelError
from tinyvllm_lab.kernels import check, load, load_source

pytestmark = pytest.mark.needs("cxx")

HERE = Path(__file__).parent
BUGS = HERE / "planted_bugs.cu"


def expectations() -> dict[str, tuple[str, str, int]]:
    """kernel -> (kind, array, line). A paragraph of the file holds one kernel and one `// BUG`."""
    found, number = {}, 1
    for paragraph in BUGS.read_text().split("\n\n"):
        kernel = re.search(r"__global__ void (\w+)", paragraph)
        for line in paragraph.splitlines():
            bug = re.search(r"// BUG (\w+) ?(\w*)", line)
            if bug and kernel:
                found[kernel[1]] = (bug[1], bug[2], number)
            number += 1
        number += 1
    return found


def f32(*shape: int) -> np.ndarray:
    return np.arange(1, 1 + int(np.prod(shape)), dtype=np.float32).reshape(shape)


def i32(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


# kernel -> arguments, grid, block, dynamic shared bytes
LAUNCHES: dict[str, tuple] = {
    "missing_barrier": ((f32(64), f32(64)), 1, 64, 0),
    "tree_without_barrier": ((f32(1), f32(64)), 1, 64, 0),
    "reduction_slot_reused": ((f32(64), f32(64)), 1, 64, 0),
    "warp_synchronous": ((f32(1), f32(64)), 1, 64, 0),
    "shuffle_is_no_fence": ((f32(32), f32(32)), 1, 32, 0),
    "divergent_barrier": ((f32(32),), 1, 32, 0),
    "barrier_in_branch": ((f32(32),), 1, 32, 0),
    "barrier_in_uneven_loop": ((f32(32), f32(40), 40), 1, 32, 0),
    "early_return": ((f32(32), 20), 1, 32, 0),
    "off_by_one": ((f32(64), f32(64), 64), 3, 32, 0),
    "ragged_grid": ((f32(50), 1.0), 2, 32, 0),
    "before_the_start": ((f32(32), f32(32)), 1, 32, 0),
    "wrong_row_stride": ((f32(4, 8), f32(4, 8), 9, 8), 4, 32, 0),
    "unset_table_entry": ((f32(48), f32(64), i32(2, 0, -1)), 3, 16, 0),
    "null_pointer": ((f32(32), None), 1, 32, 0),
    "static_shared_too_small": ((f32(32),), 1, 32, 0),
    "tile_indices_swapped": ((f32(8, 32), f32(8, 32)), 1, (32, 8), 0),
    "shared_through_pointer": ((f32(32),), 1, 32, 0),
    "dynamic_shared_too_small": ((f32(64), f32(64)), 1, 64, 200),
    "local_array_too_small": ((f32(32), 5), 1, 32, 0),
    "above_the_stack": ((f32(1), 50_000), 1, 1, 0),  # 200 kB: a fiber's stack has 256 KiB
    "misaligned_vector": ((f32(32), f32(32)), 1, 32, 0),
    "write_through_const": ((f32(32), f32(32)), 1, 32, 0),
    "histogram_without_atomics": ((i32(*[0] * 8), i32(*[3] * 64)), 1, 64, 0),
    "every_block_adds": ((f32(1), f32(5)), 5, 32, 0),
    "histogram_not_zeroed": ((i32(*[0] * 8), i32(*range(8))), 1, 8, 0),
    "padding_not_written": ((f32(32), f32(20), 20), 1, 32, 0),
    "atomic_read_plainly": ((i32(*[0] * 32), i32(0)), 1, 32, 0),
    "neighbour_in_place": ((f32(32),), 1, 32, 0),
    "last_block_without_fence": ((f32(1), f32(4), i32(0)), 4, 32, 0),
    "half_warp_full_mask": ((f32(32),), 1, 32, 0),
    "own_bit_missing": ((f32(32),), 1, 32, 0),
    "source_takes_no_part": ((f32(32),), 1, 32, 0),
    "lane_returned": ((f32(32), 31), 1, 32, 0),
    "different_warp_operations": ((i32(*[0] * 32),), 1, 32, 0),
    "spin_wait": ((f32(32), i32(0)), 1, 32, 0),
    "endless_loop": ((f32(1), 3), 1, 32, 0),
    "endless_recursion": ((f32(1),), 1, 1, 0),
    "crash": ((f32(1),), 1, 1, 0),
    "heads_per_group_zero": ((f32(32), 8, 9), 1, 32, 0),
    "assert_in_range": ((f32(4), i32(1, 2, 10, 3), 10), 1, 4, 0),
}


def time_limit(name: str) -> float:
    """Short for what never ends; the others must not meet it, however busy the machine is."""
    return 0.2 if expectations()[name][0] == "time_limit" else 30.0


def test_every_kernel_is_covered():
    kernels = re.findall(r"__global__ void (\w+)", BUGS.read_text())
    assert kernels == list(expectations()) == list(LAUNCHES)
    assert len(kernels) >= 15


@pytest.mark.parametrize("name", LAUNCHES)
def test_bug_is_reported_on_its_line(name):
    args, grid, block, shared = copy.deepcopy(LAUNCHES[name])
    function = load(BUGS, checked=True).get_function(name)
    limit = time_limit(name)
    result = check(function, *args, grid=grid, block=block, shared=shared, time_limit=limit)
    kind, array, line = expectations()[name]
    seen = [(f.kind, f.array if array else "", f.line) for f in result.findings]
    assert (kind, array, line) in seen, "\n".join(map(str, result.findings))
    for finding in result.findings:
        assert finding.kernel == name
        assert f"thread {finding.place.thread} of block {finding.place.block}" in finding.message


IN_PROCESS = sorted(LAUNCHES.keys() - {"endless_loop", "endless_recursion", "crash"})


@pytest.mark.parametrize("name", IN_PROCESS)
def test_trusted_kernels_can_be_checked_in_this_process(name):
    args, grid, block, shared = copy.deepcopy(LAUNCHES[name])
    function = load(BUGS, checked=True).get_function(name)
    options = {"time_limit": time_limit(name), "isolate": False}
    result = check(function, *args, grid=grid, block=block, shared=shared, **options)
    assert expectations()[name][0] in {finding.kind for finding in result.findings}


def test_a_broken_off_kernel_leaves_the_arrays_alone():
    function = load(BUGS, checked=True).get_function("ragged_grid")
    out = f32(50)
    assert not check(function, out, 7.0, grid=2, block=32).completed
    assert out.tolist() == f32(50).tolist()


def test_findings_are_json():
    args, grid, block, shared = copy.deepcopy(LAUNCHES["neighbour_in_place"])
    function = load(BUGS, checked=True).get_function("neighbour_in_place")
    result = check(function, *args, grid=grid, block=block, shared=shared)
    data = json.loads(json.dumps([finding.to_json() for finding in result.findings]))
    assert data[0]["kind"] == "race"
    assert data[0]["array"] == "x"
    assert data[0]["place"]["text"].startswith("const float left")
    assert str(result).count("neighbour_in_place: race") == len(data)


def test_checked_modules_raise():
    function = load(BUGS, checked=True).get_function("off_by_one")
    with pytest.raises(KernelError, match=r"'x' at byte 256, 4 bytes past the end.*bugs\.cu:\d+"):
        function(f32(64), f32(64), 64, grid=3, block=32)


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("out[0] = x[3];", "read of 4 bytes: a null pointer, at byte 12, by"),
        (
            "out[2147483647] = 1;",
            "write of 4 bytes: 'out' at byte 8589934588, 8589934464 bytes past",
        ),
        ("*(float*)0x123456789000 = 1;", "write of 4 bytes: address 0x123456789000, near no array"),
        (
            "exit(0);",
            r"crashed \(it ended the process\) in or after .* on a line that is not known",
        ),
        ("abort();", r"crashed \(Aborted\) in or after .* on a line that is not known"),
    ],
)
def test_a_wild_kernel_is_told_in_words_and_leaves_its_arrays_alone(body, told):
    text = f'extern "C" __global__ void wild(float* out, const float* x) {{ {body} }}'
    wild, out = load_source(text, "wild", backend="cpu").get_function("wild"), f32(32)
    with pytest.raises(KernelError, match=told):
        wild(out, None, grid=1, block=1)
    assert out.tolist() == f32(32).tolist()


def ints(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.int32)


# kernel -> arguments, grid, block, dynamic shared bytes
CORRECT: dict[str, tuple] = {
    "two_block_sums": ((f32(3), f32(3, 100), 100), 3, 96, 0),
    "tree_sum": ((f32(1), f32(64)), 1, 64, 256),
    "tree_sum_with_syncwarp": ((f32(1), f32(64)), 1, 64, 0),
    "double_buffered_scan": ((f32(64), f32(64)), 1, 64, 0),
    "tiled_transpose": ((f32(20, 33), f32(33, 20), 33, 20), (2, 3), (16, 16), 0),
    "shared_histogram": ((ints(8), np.arange(300, dtype=np.int32) % 8, 300), 3, 64, 0),
    "half_warps": ((ints(32),), 1, 32, 0),
    "segments_of_eight": ((ints(40),), 1, 40, 0),
    "compact": ((f32(64), ints(1), np.tile(np.float32([1, -1]), 32)), 1, 64, 0),
    "last_block_adds_up": ((f32(1), f32(5), ints(1), f32(300), 300), 5, 64, 0),
    "until_all_agree": ((ints(40), np.arange(40, dtype=np.int32) % 7), 1, 40, 0),
    "bf16_neighbours": ((torch.ones(64, dtype=torch.bfloat16),), 1, 64, 0),
    "vector_copy": ((f32(40), f32(40), 10), 2, 8, 0),
    "bytes_then_words": ((ints(32), np.arange(128, dtype=np.uint8)), 1, 32, 0),
    "structs": ((f32(32), f32(32)), 1, 32, 0),
    "copied_by_the_library": ((f32(64), f32(32)), 1, 64, 0),
    "module_variables": ((f32(32),), 1, 32, 0),
    "three_dimensions": ((ints(24 * 24),), (2, 3, 4), (4, 3, 2), 0),
}


def test_every_correct_kernel_is_covered():
    kernels = re.findall(r"__global__ void (\w+)", (HERE / "correct.cu").read_text())
    assert kernels == list(CORRECT)


@pytest.mark.parametrize("name", CORRECT)
def test_no_false_alarm(name):
    args, grid, block, shared = copy.deepcopy(CORRECT[name])
    function = load(HERE / "correct.cu", checked=True).get_function(name)
    result = check(function, *args, grid=grid, block=block, shared=shared)
    assert result.ok, str(result)
    assert result.num_accesses > 0


def test_results_come_back_from_the_child():
    function = load(HERE / "correct.cu", checked=True).get_function("last_block_adds_up")
    out, x = f32(1), f32(300)
    function(out, f32(5), ints(1), x, 300, grid=5, block=64)
    assert out[0] == x.sum()
