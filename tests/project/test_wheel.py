"""The built wheel, installed into an empty environment in another folder, is complete.

Nothing is downloaded again: the new environment borrows the dependencies of this one, and none of
this one's tinyvllm_lab (its own comes first, and editable installs are not followed).
"""

import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def run(*command: object, cwd: Path) -> str:
    done = subprocess.run([str(c) for c in command], cwd=cwd, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, ROOT]
    run(*build, cwd=folder)
    (path,) = folder.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new environment's bin folder."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False)
    python = folder / "bin/python"
    run(sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", wheel, cwd=folder)
    site_packages = Path(run(python, "-c", "import site; print(site.getsitepackages()[0])",
                             cwd=folder).strip())  # fmt: skip
    (site_packages / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder / "bin"


def _sources(folder: str) -> set[str]:
    files = (path for path in (ROOT / folder).rglob("*") if path.is_file())
    return {str(f.relative_to(ROOT)) for f in files if "__pycache__" not in f.parts}


def test_the_wheel_carries_the_package_its_data_and_nothing_else(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    want = _sources("tinyvllm_lab") | {
        f"tinyvllm_lab/_{path}" for path in _sources("assets") | _sources("kernels")
    }
    assert want <= names
    inside = {name for name in names - want if ".dist-info/" not in name}
    assert not [name for name in inside if name.split("/")[0] != "tinyvllm_lab"]
    assert any(name.endswith("licenses/LICENSE") for name in names)


def test_it_finds_its_own_assets_and_kernels(environment: Path, tmp_path: Path) -> None:
    code = (
        "from tinyvllm_lab.paths import assets_dir, kernels_dir;"
        "from tinyvllm_lab import recorded_run;"
        "print(assets_dir(), kernels_dir(), recorded_run('chat').num_steps, sep='\\n')"
    )
    assets, kernels, steps = run(environment / "python", "-c", code, cwd=tmp_path).split()
    for path in (assets, kernels):
        assert Path(path).is_relative_to(environment.parent)
    assert (Path(assets) / "models/tiny/model.safetensors").stat().st_size > 13_000_000
    assert int(steps) > 1000


def test_it_generates(environment: Path, tmp_path: Path) -> None:
    flags = ["--model", "tiny", "--max-tokens", "24", "--temperature", "0"]
    story = run(environment / "tinyvllm-lab", "generate", "Once upon a time", *flags, cwd=tmp_path)
    assert story.startswith("Once upon a time")
    assert len(story.split()) > 12


@pytest.mark.needs("cxx")
def test_its_kernels_are_built_and_checked(environment: Path, tmp_path: Path) -> None:
    code = (
        "import os, torch; os.environ['TINYVLLM_CACHE_DIR'] = 'cache';"
        "from tinyvllm_lab.kernels import load, op_functions;"
        "x, weight = torch.randn(3, 40), torch.rand(40);"
        "out = op_functions('cpu', checked=True)['rms_norm'](x, weight, 1e-5);"
        "torch.testing.assert_close(out, torch.nn.functional.rms_norm(x, (40,), weight, 1e-5));"
        "print(load('rmsnorm', backend='cpu').source)"
    )
    source = run(environment / "python", "-c", code, cwd=tmp_path).strip()
    assert Path(source).is_relative_to(environment.parent.resolve())
    assert list((tmp_path / "cache").rglob("libsimt-*.so"))
