"""pyproject.toml, constraints.txt and the conda environments name the same things.

The environments are not solved here (that needs conda-forge). What can be known without it is
held: every line parses strictly, and the version that the tests run with satisfies all of them.
"""

import importlib.metadata
import tomllib
from pathlib import Path

import pytest
import rattler
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version
from rattler import MatchSpec, VersionSpec

ROOT = Path(__file__).parents[2]
ENVIRONMENTS = (ROOT / "environment.yml", ROOT / ".binder/environment.yml")
PYPI_NAME = {"pytorch": "torch", "pytorch-cpu": "torch"}
# What only conda has, or what pip cannot give: the interpreter and the compilers.
CONDA_ONLY = {"python", "pip", "cuda-version", "cuda-nvcc", "cxx-compiler"}
GPU_ONLY = {"pycuda"}
TESTED_EXTRAS = ("lab", "test", "scale")

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
Specs = dict[str, Requirement]


def _requirements(lines: list[str]) -> Specs:
    found = [Requirement(line) for line in lines]
    named = {canonicalize_name(r.name): r for r in found}
    assert len(named) == len(found), "a name stands twice"
    return named


def _extra(name: str) -> Specs:
    return _requirements(PROJECT["optional-dependencies"][name])


def _pins() -> dict[str, Version]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = {}
    for requirement in _requirements([x for x in lines if x and x[0] != "#"]).values():
        (spec,) = requirement.specifier
        assert spec.operator == "==", f"{requirement} is no exact version"
        pins[canonicalize_name(requirement.name)] = Version(spec.version)
    return pins


def _conda(path: Path) -> tuple[list[str], list[str]]:
    """The conda specs of an environment file, and the lines of its pip section."""
    env = yaml.safe_load(path.read_text())
    assert set(env) == {"name", "channels", "dependencies"}
    assert env["channels"] == ["conda-forge"]
    specs = [d for d in env["dependencies"] if isinstance(d, str)]
    (pip,) = [d for d in env["dependencies"] if not isinstance(d, str)]
    assert set(pip) == {"pip"}
    return specs, pip["pip"]


def _conda_specs(path: Path) -> dict[str, MatchSpec]:
    specs = [MatchSpec(line, strict=True) for line in _conda(path)[0]]
    named = {spec.name.normalized: spec for spec in specs}
    assert len(named) == len(specs), "a name stands twice"
    return named


def _pip_lines(path: Path) -> Specs:
    return _requirements([line for line in _conda(path)[1] if not line.startswith("-e")])


def _admits(spec: MatchSpec, version: str) -> bool:
    return spec.version is None or VersionSpec(spec.version).matches(rattler.Version(version))


def test_the_strict_parser_refuses_what_conda_would_misread() -> None:
    for bad in ("numpy>=1.2 <3", "plotly=>6"):
        with pytest.raises(Exception, match=r"."):
            MatchSpec(bad, strict=True)
    assert not _admits(MatchSpec("numpy <2", strict=True), "2.4")
    assert _admits(MatchSpec("numpy >=1.26", strict=True), "2.4")


@pytest.mark.parametrize("path", ENVIRONMENTS, ids=lambda p: p.parent.name)
def test_a_conda_environment_names_what_the_project_needs(path: Path) -> None:
    conda = {PYPI_NAME.get(name, name) for name in _conda_specs(path)}
    named = {canonicalize_name(n) for n in conda | set(_pip_lines(path))}
    needed = set(_requirements(PROJECT["dependencies"])) | set(_extra("lab"))
    assert needed <= named
    assert named - needed <= CONDA_ONLY | GPU_ONLY


@pytest.mark.parametrize("path", ENVIRONMENTS, ids=lambda p: p.parent.name)
def test_a_conda_environment_installs_this_project_from_its_clone(path: Path) -> None:
    (line,) = [line for line in _conda(path)[1] if line.startswith("-e")]
    assert (path.parent / line.removeprefix("-e ")).resolve() == ROOT


@pytest.mark.parametrize("path", ENVIRONMENTS, ids=lambda p: p.parent.name)
def test_conda_bounds_and_pip_bounds_admit_the_tested_version(path: Path) -> None:
    pins = _pins()
    ours = _requirements(PROJECT["dependencies"]) | _extra("lab")
    for name, spec in _conda_specs(path).items():
        pypi = PYPI_NAME.get(name, name)
        if pypi in CONDA_ONLY | GPU_ONLY:
            continue
        assert _admits(spec, str(pins[pypi])), f"{path.name}: {spec} refuses {pins[pypi]}"
        assert _floor(str(spec)) == _floor(str(ours[pypi].specifier)), name
    for name, requirement in _pip_lines(path).items():
        assert requirement.specifier.contains(pins[name])
        assert requirement.specifier == ours[name].specifier


def _floor(text: str) -> str:
    return text.split(">=")[1].split(",")[0].strip()


def test_only_the_gpu_environment_asks_for_cuda() -> None:
    gpu, cpu = (_conda_specs(path) for path in ENVIRONMENTS)
    assert {"pycuda", "cuda-nvcc", "cuda-version"} <= set(gpu)
    assert not any("cuda" in name for name in cpu)
    assert _admits(gpu["cuda-version"], "12.9")
    (pycuda,) = _extra("cuda").values()
    assert _floor(str(gpu["pycuda"])) == _floor(str(pycuda.specifier))


def test_every_python_of_the_environments_is_one_that_the_project_supports() -> None:
    supported = Requirement(f"python{PROJECT['requires-python']}").specifier
    for path in ENVIRONMENTS:
        spec = _conda_specs(path)["python"]
        admitted = [v for v in ("3.10", "3.11", "3.12", "3.13", "3.14") if _admits(spec, v)]
        assert admitted
        assert all(supported.contains(v) for v in admitted)


def test_constraints_pin_every_dependency_within_its_bounds() -> None:
    pins = _pins()
    wanted = [_requirements(PROJECT["dependencies"]), *map(_extra, TESTED_EXTRAS)]
    for specs in wanted:
        for name, requirement in specs.items():
            assert requirement.specifier.contains(pins[name]), f"{requirement} is not {pins[name]}"


def test_the_tests_run_with_the_pinned_versions() -> None:
    for name, pin in _pins().items():
        installed = Version(importlib.metadata.version(name)).public
        assert installed == str(pin), f"{name} {installed} runs, {pin} is pinned"
