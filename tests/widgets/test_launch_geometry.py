"""The launch-geometry explorer: its counts against running every thread, in both languages."""

import json
import shutil
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tinyvllm_lab.errors import ConfigError
from tinyvllm_lab.kernels.resources import occupancy
from tinyvllm_lab.widgets import LaunchGeometry
from tinyvllm_lab.widgets.esm import STATIC
from tinyvllm_lab.widgets.launch_geometry import CARDS, OWN, kernel_table

sizes = st.tuples(st.integers(1, 9), st.integers(1, 90))
blocks = st.tuples(st.integers(1, 40), st.integers(1, 5))
grids = st.none() | st.tuples(st.integers(1, 4), st.integers(1, 4))
launches = st.builds(
    LaunchGeometry, sizes, blocks, grids, grid_stride=st.booleans(), guard=st.booleans(),
    kernel=st.sampled_from([OWN, "matmul_register_f32", "rmsnorm_tree_bf16"]),
    registers=st.integers(16, 255), shared=st.integers(0, 120_000),
    architecture=st.sampled_from(sorted(CARDS)), look_at=st.integers(0, 15),
)  # fmt: skip


def places(widget):
    """Of every thread, block by block: row, column."""
    c, x, y = widget.choice, widget.launch.x, widget.launch.y
    for block_y in range(y.grid):
        for block_x in range(x.grid):
            yield [
                (block_y * c["block_y"] + thread_y, block_x * c["block_x"] + thread_x)
                for thread_y in range(c["block_y"])
                for thread_x in range(c["block_x"])
            ]


@settings(max_examples=150)
@given(launches)
def test_the_counts_are_those_of_running_every_thread(widget):
    """Each thread is run by hand, with a loop where the kernel has one."""
    c, found, x, y = widget.choice, widget.figures, widget.launch.x, widget.launch.y
    rows, columns = c["rows"], c["columns"]
    computed, counts = {}, {"computes": 0, "idle": 0, "outside": 0, "elsewhere": 0}
    partly = empty = warps = most = 0
    for number, block in enumerate(places(widget)):
        busy = []
        for thread, (row, column) in enumerate(block):
            mine = [
                (r, k)
                for r in (range(row, rows, y.reach) if c["stride"] else [row])
                for k in (range(column, columns, x.reach) if c["stride"] else [column])
                if r < rows and k < columns
            ]
            for element in mine:
                computed[element] = computed.get(element, 0) + 1
            beyond = "elsewhere" if row * columns + column < rows * columns else "outside"
            idle = "idle" if c["guard"] or c["stride"] else beyond
            state = "computes" if mine else idle
            counts[state] += 1
            assert widget.thread(number, thread) == (row, column, state, len(mine))
            most = max(most, len(mine))
            busy.append(bool(mine))
        lanes = [sum(busy[at : at + 32]) for at in range(0, len(busy), 32)]
        warps += len(lanes)
        partly += sum(0 < n < 32 for n in lanes)
        empty += lanes.count(0)
        assert widget.launch.share(number) == pytest.approx(sum(busy) / len(busy))
    assert set(computed.values()) == {1}
    assert found.missing == rows * columns - len(computed)
    assert counts.pop("computes") == found.computing
    assert counts == {name: getattr(found, name) for name in counts}
    assert (found.warps, found.partly, found.empty, found.most) == (warps, partly, empty, most)
    assert found.threads == found.computing + found.idle + found.outside + found.elsewhere


def test_known_launches():
    found = LaunchGeometry(1000, 256).figures
    assert (found.blocks, found.threads, found.idle, found.partly) == (4, 1024, 24, 1)
    assert LaunchGeometry(3000, 128, 16).figures.missing == 3000 - 16 * 128
    assert LaunchGeometry(3000, 128, 16, grid_stride=True).figures.missing == 0
    assert LaunchGeometry(1000, 256, guard=False).figures.outside == 24
    # A thread to the right of a matrix writes the beginning of the next row.
    assert LaunchGeometry((3, 10), (16, 1), guard=False).thread(0, 10) == (0, 10, "elsewhere", 0)
    assert LaunchGeometry((3, 10), (16, 1), guard=False).thread(2, 10) == (2, 10, "outside", 0)


def test_blocks_fill_the_sms_in_waves():
    widget = LaunchGeometry(256 * 2500, 256, registers=32, architecture=90)
    found = widget.figures  # 64 warps an SM are 8 blocks; 132 SMs hold 1,056
    assert (found.resident, found.slots, found.waves, found.tail) == (8, 1056, 2, 388)
    assert found.occupancy == 1.0
    assert LaunchGeometry(99, 1024, registers=255).figures.limiter == "registers"
    assert LaunchGeometry(99, 64, shared=99_000, architecture=86).figures.limiter == "shared memory"
    failing = LaunchGeometry((64, 64), (64, 64)).figures
    assert (failing.resident, failing.limiter) == (0, "threads of a block")


def test_a_kernel_of_the_course_brings_its_own_numbers():
    row = kernel_table()["kernels"]["rmsnorm_tree_f32"]
    widget = LaunchGeometry(2048, 256, kernel="rmsnorm_tree_f32", architecture=80)
    assert widget.resources == (row["registers"]["80"], row["static_shared"] + 4 * 256)
    assert widget.figures.resident == occupancy(80, 256, *widget.resources).blocks
    beyond = LaunchGeometry(2048, 512, kernel="matmul_register_f32").figures
    assert (beyond.resident, beyond.limiter) == (0, "launch bounds")  # of 256 threads


def browser(widgets):
    """What the browser finds: figures, all threads of the block that is looked at, sentences."""
    script = f"""
        import {{ figures, launchOf, threadOf }} from "{(STATIC / "launch_figures.js").as_uri()}";
        import {{ codeOf, sentences, threadText }} from "{(STATIC / "launch_words.js").as_uri()}";
        import fs from 'node:fs';
        const {{ tables, choices }} = JSON.parse(fs.readFileSync(0));
        console.log(JSON.stringify(choices.map((c) => {{
          const launch = launchOf(c);
          const block = Math.min(c.block, launch.x.grid * launch.y.grid - 1);
          const threads = [...Array(c.block_x * c.block_y).keys()];
          const found = figures(c, tables);
          return {{
            found, sentences: sentences(c, tables, launch, found),
            code: codeOf(launch, launch.guarded),
            threads: threads.map((t) => Object.values(threadOf(launch, block, t))),
            last: threadText(launch, block, threads.length - 1, tables.warp),
          }};
        }})));"""
    command = [shutil.which("node"), "--input-type=module", "-e", script]
    given_ = {"tables": widgets[0].tables, "choices": [w.choice for w in widgets]}
    done = subprocess.run(
        command, input=json.dumps(given_), capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


@pytest.mark.needs("node")
@settings(max_examples=4)
@given(st.lists(launches, min_size=60, max_size=60))
def test_the_browser_computes_the_same(widgets):
    for widget, theirs in zip(widgets, browser(widgets), strict=True):
        assert theirs["found"] == pytest.approx(vars(widget.figures))
        block = min(widget.choice["block"], widget.figures.blocks - 1)
        threads = widget.choice["block_x"] * widget.choice["block_y"]
        assert theirs["threads"] == [list(widget.thread(block, t)) for t in range(threads)]


@pytest.mark.needs("node")
def test_the_browser_says_who_computes_what():
    strided = LaunchGeometry(5000, 128, 8, grid_stride=True)
    matrix = LaunchGeometry((20, 70), (16, 8), guard=False)
    kernel = LaunchGeometry(99, 128, kernel="prefill_attention_flash_f32_d64", architecture=75)
    beyond = LaunchGeometry(99, 256, kernel="prefill_attention_flash_f32_d64", architecture=75)
    widgets = [LaunchGeometry(1000, 256), strided, matrix, kernel, beyond]
    plain, loop, broken, own, failing = browser(widgets)
    assert plain["sentences"][0] == (
        "4 × 256 = 1,024 threads for 1,000 elements. Idle: 24 threads, 2.3 %. "
        "Of 32 warps, 1 works partly, 0 not at all."
    )
    assert plain["last"] == (
        "Block 3, thread 255, lane 31 of warp 7: i = blockIdx.x * blockDim.x + threadIdx.x = "
        "3 * 256 + 255 = 1,023. Not less than n = 1,000: idle."
    )
    assert "if (i < n)" in plain["code"]
    assert loop["last"].endswith("It computes element 127, then 1,151, …: 5 elements.")
    assert "i += gridDim.x * blockDim.x" in loop["code"]
    assert [line[:6] for line in broken["sentences"]].count("Error:") == 2
    assert "if" not in broken["code"]
    assert "row = blockIdx.y * blockDim.y + threadIdx.y = 2 * 8 + 7 = 23" in broken["last"]
    assert f"With {kernel.resources[0]} registers a thread" in own["sentences"][-1]
    assert "fails on sm_75: the kernel's __launch_bounds__ allow" in failing["sentences"][-1]


def test_it_carries_a_picture_and_refuses_what_it_does_not_know():
    data, _ = LaunchGeometry()._repr_mimebundle_()
    assert "image/png" in data
    assert "24 idle" in data["text/plain"]
    for more in ({"guard": False}, {"grid_stride": True, "grid": (2, 3)}, {"block": (64, 64)}):
        assert LaunchGeometry((30, 500), **more).still().startswith(b"\x89PNG")
    for bad in (
        {"n": 0}, {"n": (0, 4)}, {"block": 2000}, {"grid": (1, 9999)}, {"kernel": "softmin"},
        {"n": 1.5}, {"n": (1, 2, 3)}, {"block": "x"}, {"grid": 0}, {"grid": (2.0, 1)},
        {"registers": 20.5}, {"registers": 300}, {"shared": -1},
        {"architecture": 70}, {"size": "x"}, {"look_at": -1},
    ):  # fmt: skip
        with pytest.raises(ConfigError):
            LaunchGeometry(**bad)


def test_no_torch_is_needed():
    code = (
        "import sys; from tinyvllm_lab.widgets import LaunchGeometry; LaunchGeometry().still();"
        "assert not {'torch', 'pycuda'} & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
