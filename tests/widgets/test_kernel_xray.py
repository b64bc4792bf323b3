"""The kernel x-ray: the browser shows what Python counted, and nothing is lost on the way."""

import base64
import json
import shutil
import subprocess
import sys

import numpy as np
import pytest

from tinyvllm_lab.errors import ConfigError, KernelError
from tinyvllm_lab.kernels import load_source, xray
from tinyvllm_lab.kernels.recorded import read_xray, write_xray
from tinyvllm_lab.kernels.xray_timeline import WARP
from tinyvllm_lab.widgets import KernelXRay, save_html
from tinyvllm_lab.widgets.esm import STATIC, bundle
from tinyvllm_lab.widgets.kernel_xray_still import LOOKS, sentence, thread_states
from tinyvllm_lab.widgets.xray_run import KINDS, XRayRun, access_text, excerpts, worth

pytestmark = pytest.mark.needs("cxx")

WHICH = ["good", "racy", "lost"]
SOURCE = r"""// A comment that nobody needs to see.


__device__ float twice(float v) { return 2.0f * v; }

extern "C" __global__ void sums(float* out, const float* x, int stride) {
    __shared__ float s[160];
    s[threadIdx.x] = x[threadIdx.x * stride % 1024];
BARRIER
    float v = s[threadIdx.x * 32 % 96];
    v += __shfl_xor_sync(0xffffffffu, v, 1);
    if (threadIdx.x % 3 == 0) out[threadIdx.x] = twice(v);
}
"""


def launch(barrier="    __syncthreads();", **options):
    function = load_source(SOURCE.replace("BARRIER", barrier), "sums", backend="cpu")
    args = np.zeros(96, np.float32), np.ones(1024, np.float32), 9
    return function.get_function("sums"), args, {"grid": 3, "block": 96, **options}


@pytest.fixture(scope="module")
def good():
    function, args, options = launch(blocks=2)
    return xray(function, *args, **options)


@pytest.fixture(scope="module")
def racy():
    function, args, options = launch("")
    return xray(function, *args, **options)


@pytest.fixture(scope="module")
def lost():
    """Writes to shared memory, of which the launch has none."""
    source = """extern "C" __global__ void lost() {
        extern __shared__ float s[];
        s[threadIdx.x] = 1.0f;
    }"""
    return xray(load_source(source, "lost", backend="cpu").get_function("lost"), grid=1, block=32)


def test_it_takes_an_xray_a_file_a_mapping_or_a_kernel(good, racy, tmp_path):
    write_xray(good, tmp_path / "good.xray")
    assert read_xray(tmp_path / "good.xray") == good
    one = KernelXRay(good)
    assert KernelXRay(tmp_path / "good.xray").runs == one.runs
    function, args, options = launch()
    assert KernelXRay(function, *args, **options).runs[0]["ticks"] == one.runs[0]["ticks"]
    two = KernelXRay({"good": good, "racy": str(tmp_path / "good.xray")}, step=3)
    assert [(run["label"], run["start"]) for run in two.runs] == [("good", 3), ("racy", 3)]
    assert list(two.xrays) == ["good", "racy"]


def test_it_begins_where_there_is_something_to_see(good, racy):
    run = XRayRun("", good)
    first = next(step for step in run.timeline.steps if step.tick == run.start)
    assert good.arrays[first.array].name == "x"  # 9 sectors a warp, where 4 would do
    run = XRayRun("", racy)
    assert run.start == run.timeline.tick_of(racy, racy.findings[0])
    shown = next(one for one in run.to_page()["findings"] if one["kind"] == "race")
    finding = next(one for one in racy.findings if one.kind == "race")
    assert (shown["here"], shown["line"]) == (True, finding.line)
    assert shown["threads"] == [finding.place.thread[0], finding.other.thread[0]]


def test_the_excerpt_is_the_functions_that_ran(good):
    (part,) = excerpts(good)
    lines = SOURCE.replace("BARRIER", "    __syncthreads();").splitlines()
    assert part.lines == lines[part.first - 1 : part.first - 1 + len(part.lines)]
    assert part.lines[0].startswith('extern "C"')
    assert part.lines[-1] == "}"


SCRIPT = """
import fs from "node:fs";
const { XRayRun, KINDS, sentence, costOf, worthOf, sectorsOf, passesOf } = await import(URL_OF_RUN);
const { LOOKS } = await import(URL_OF_VIEW);
const pages = JSON.parse(fs.readFileSync(0));
const found = [];
for (const page of pages) {
  const run = await XRayRun.of(page);
  const steps = Array.from({ length: page.steps }, (_, n) => run.step(n));
  const states = Array.from({ length: page.ticks }, (_, tick) =>
    Array.from({ length: run.threads }, (_, thread) => run.stateOf(thread, tick)));
  found.push({
    steps: steps.map((s) => [
      s.tick, s.warp, s.kind, s.line, s.array, s.size, s.lanes.map((l) => [l.lane, l.offset])]),
    words: steps.map((s) => sentence(run, s.warp, s.tick)), states,
    counts: steps.map((s) => (run.spaceOf(s) === "shared" ? passesOf(s)
      : sectorsOf(s).map(({ sector, used }) => [sector, used]))),
    costs: page.accesses.map((a) => [costOf(a), worthOf(a)]),
  });
}
const looks = Object.entries(LOOKS).map(([kind, { fill, label }]) => [kind, fill, label]);
console.log(JSON.stringify({ found, KINDS, looks }));
"""


@pytest.fixture(scope="module")
def browser(good, racy, lost):
    """What the browser's code makes of three x-rays, under Node."""
    script = SCRIPT
    for name in ("run", "view"):
        url = (STATIC / f"xray_{name}.js").as_uri()
        script = script.replace(f"URL_OF_{name.upper()}", json.dumps(url))
    pages = KernelXRay({"good": good, "racy": racy, "lost": lost}).runs
    command = [shutil.which("node"), "--input-type=module", "-e", script]
    given = json.dumps(pages, default=lambda data: base64.b64encode(data).decode())
    done = subprocess.run(command, input=given, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


@pytest.mark.needs("node")
@pytest.mark.parametrize("which", WHICH)
def test_the_browser_unpacks_and_counts_the_same(which, browser, request):
    run = XRayRun(which, request.getfixturevalue(which))
    theirs = browser["found"][WHICH.index(which)]
    for step, (*what, lanes), words, counted in zip(
        run.timeline.steps, theirs["steps"], theirs["words"], theirs["counts"], strict=True
    ):
        assert what == [step.tick, step.warp, step.kind, step.line, step.array, step.size]
        assert [lane for lane, _ in lanes] == list(step.lanes)
        assert words == sentence(run, step)
        if step.array >= 0:
            assert [offset for _, offset in lanes] == list(step.offsets)
            mine = [list(pair) for pair in step.sectors().items()]
            assert counted == (step.passes() if run.is_shared(step) else mine)
    costs = [[access_text(a), pytest.approx(worth(a))] for a in run.xray.accesses]
    assert theirs["costs"] == costs
    names = {"barrier": "waiting", "idle": "idle", "done": "done"}
    for tick, states in enumerate(theirs["states"]):
        assert states == [names.get(state, "active") for state in thread_states(run, tick)]


@pytest.mark.needs("node")
def test_python_and_the_browser_have_the_same_words_and_colours(browser):
    assert browser["KINDS"] == list(KINDS)
    assert browser["looks"] == [[kind, *look] for kind, look in LOOKS.items()]
    assert WARP == 32


@pytest.mark.needs("node")
def test_it_is_small_and_one_module_that_renders(good, tmp_path):
    assert len(KernelXRay(good).runs[0]["data"]) < 800
    assert len(bundle("kernel_xray")) < 80_000
    (tmp_path / "bundle.mjs").write_text(bundle("kernel_xray"))
    code = f"console.log(Object.keys((await import('{tmp_path}/bundle.mjs')).default).join())"
    command = [shutil.which("node"), "--input-type=module", "-e", code]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "render\n"


def test_it_carries_a_picture_and_makes_a_page(good, racy, tmp_path):
    panel = KernelXRay({"repaired": good, "broken": racy}, title="A title of <ours>")
    data, _ = panel._repr_mimebundle_()
    assert "image/png" in data
    assert data["text/plain"].startswith("KernelXRay(repaired: ")
    page = panel.save_html(tmp_path / "a.html").read_text()
    assert "const $$kernel_xray" in page
    assert "tvl-code" in page
    assert save_html(tmp_path / "b.html", panel, panel).stat().st_size > len(page)


def test_a_launch_without_memory_has_a_picture_too():
    empty = load_source('extern "C" __global__ void nothing() {}', "nothing", backend="cpu")
    panel = KernelXRay(empty.get_function("nothing"), grid=1, block=32)
    assert panel.runs[0]["ticks"] == 0
    assert panel.still()


def test_what_is_wrong_is_refused(good, tmp_path):
    for bad in (3, {}, {"a": 3}, [good]):
        with pytest.raises(ConfigError):
            KernelXRay(bad)
    with pytest.raises(ConfigError):
        KernelXRay(good, size="huge")
    with pytest.raises(ConfigError, match="grid would be for a kernel"):
        KernelXRay(good, grid=1)
    (tmp_path / "bad.xray").write_bytes(b"no")
    for name in ("none.xray", "bad.xray"):
        with pytest.raises(KernelError, match=name):
            KernelXRay(tmp_path / name)


def test_it_needs_no_torch(good, tmp_path):
    write_xray(good, tmp_path / "good.xray")
    code = (
        "import sys; from tinyvllm_lab.widgets import KernelXRay;"
        f"KernelXRay({str(tmp_path / 'good.xray')!r}).still(); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
