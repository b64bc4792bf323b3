"""The JavaScript: one bundle from several files, unit tests under Node, types, one palette."""

import re
import subprocess
from pathlib import Path

import pytest

from tinyvllm_lab.widgets import esm, palette

HERE = Path(__file__).parent
STATIC = esm.STATIC
PANELS = [
    "airport", "slot_timeline", "block_map", "block_table", "token_stream", "metric_strip",
    "contiguous_strip", "latency_throughput", "launch_geometry",
]  # fmt: skip


def node(*arguments, **options):
    command = ["node", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, **options)


@pytest.mark.needs("node")
@pytest.mark.parametrize("name", [*PANELS, "feed"])
def test_a_bundle_is_one_module_with_the_default_that_anywidget_wants(name, tmp_path):
    (tmp_path / "bundle.mjs").write_text(esm.bundle(name))
    assert not re.search(r"^import ", esm.bundle(name), re.MULTILINE)
    code = f"const m = await import('{tmp_path}/bundle.mjs'); console.log(Object.keys(m.default));"
    run = node("--input-type=module", "-e", code)
    assert run.returncode == 0, run.stderr
    assert ("initialize" if name == "feed" else "render") in run.stdout


def test_a_bundle_is_small():
    assert max(len(esm.bundle(name)) for name in [*PANELS, "feed"]) < 80_000


@pytest.mark.needs("node")
def test_units_under_node():
    run = node("--test", *sorted((HERE / "js").glob("*.test.mjs")))
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.needs("node")
@pytest.mark.skipif(
    not (HERE / "node_modules").is_dir(), reason="needs tsc (npm ci --prefix tests/widgets)"
)
def test_types():
    compiler = HERE / "node_modules" / ".bin" / "tsc"
    run = subprocess.run([compiler, "-p", HERE], capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stdout


def test_python_and_javascript_have_one_palette():
    theme = (STATIC / "theme.js").read_text()
    for colour in (*palette.COLOURS, *palette.PHASE_COLOURS, *palette.PATTERNS):
        assert f'"{colour}"' in theme
    listed = re.search(r"COLOURS = \[([^]]*)\]", theme)
    assert listed is not None
    assert re.findall(r'"(#\w+)"', listed[1]) == list(palette.COLOURS)
    for colour in (palette.EMPTY, palette.LINE, palette.TEXT, palette.SOFT, palette.CARD):
        assert colour in theme


def test_text_reads_well_on_every_colour():
    for request in range(24):
        look = palette.look_of(request)
        light, dark = sorted((palette.luminance(look.fill), palette.luminance(look.ink)))
        assert (dark + 0.05) / (light + 0.05) > 4.2, look
