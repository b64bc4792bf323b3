"""`tinyvllm-lab doctor`: is this machine ready, and if not, what is the one line that mends it?

Each check is a pure function of facts; `collect_facts` asks the machine for them. Torch is not
imported: what must be known of it stands in its files.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from packaging.requirements import Requirement
from packaging.version import Version

from tinyvllm_lab.course.machine import Facts, collect_facts

NAMED = ("torch", "jupyterlab", "ipykernel", "ipywidgets", "anywidget")
EXTENSIONS = {
    "anywidget": "anywidget",
    "@jupyter-widgets/jupyterlab-manager": "jupyterlab_widgets",
}
WORKING_BYTES = 1 << 30  # Python, torch and activations, beside the weights
_INSTALL = "make lab (in the clone), or: pip install -e '.[lab]'"


class Status(Enum):
    """How a check ended. Only FAIL keeps the course from running."""

    OK = "OK"
    WARN = "WARN"
    FAIL = "FAIL"


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the report."""

    name: str
    status: Status
    detail: str
    fix: str = ""


def diagnose(facts: Facts) -> list[Check]:
    """All checks, in the order of the report."""
    return [
        check_python(facts.python),
        *check_packages(facts.requirements, facts.versions),
        check_kernel(facts.kernel_python, facts.prefix, facts.executable),
        check_server(facts.jupyter_on_path, facts.prefix),
        check_extensions(facts.lab_extensions),
        check_compiler(facts.compiler),
        check_gpu(facts.gpu, facts.driver_cuda, facts.torch_cuda),
        check_nvcc(facts.nvcc, facts.nvcc_archs, facts.gpu_arch),
        check_memory(facts.weight_bytes, facts.free_bytes, facts.model),
    ]


def doctor(model: str = "tiny") -> bool:
    """Print the report; False if something must be mended first.

    Args:
        model: the model whose weights must fit into memory.
    """
    checks = diagnose(collect_facts(model))
    print(report(checks))
    return not any(check.status is Status.FAIL for check in checks)


def report(checks: list[Check]) -> str:
    """The checks as text: one line each, and one more for a fix."""
    width = max(len(check.name) for check in checks)
    lines = []
    for check in checks:
        lines.append(f"{check.status.value:<4}  {check.name:<{width}}  {check.detail}")
        if check.fix:
            lines.append(f"{'':<{width + 6}}  fix: {check.fix}")
    return "\n".join(lines)


def check_python(version: tuple[int, int, int]) -> Check:
    """Python 3.11 or newer."""
    text = ".".join(map(str, version))
    if version >= (3, 11):
        return Check("Python", Status.OK, text)
    return Check("Python", Status.FAIL, f"{text}, and 3.11 is needed", "make lab PYTHON=python3.12")


def check_packages(requirements: list[str], versions: dict[str, str | None]) -> list[Check]:
    """The packages that pyproject.toml names, in the versions that it asks for.

    Args:
        requirements: lines such as "torch>=2.5".
        versions: name -> installed version, or None where it is not installed.
    """
    if not requirements:
        return [Check("packages", Status.FAIL, "tinyvllm-lab itself is not installed", _INSTALL)]
    checks, others, wrong = [], 0, []
    for requirement in map(Requirement, requirements):
        problem = _package_problem(requirement, versions.get(requirement.name))
        if requirement.name in NAMED:
            detail = problem or str(versions[requirement.name])
            checks.append(_check(requirement.name, problem is None, detail, _INSTALL))
        else:
            others += 1
            wrong += [f"{requirement.name} {problem}"] if problem else []
    detail = "; ".join(wrong) or f"{others} more, all in the range that is asked for"
    return [*checks, _check("packages", not wrong, detail, _INSTALL)]


def check_kernel(kernel_python: str | None, prefix: str, executable: str) -> Check:
    """The Jupyter kernel `python3` runs in this environment: else widgets find no model."""
    if kernel_python is None:
        return Check("kernel", Status.FAIL, "no kernel named python3", _INSTALL)
    # A bare name means "the Python of the server" to Jupyter.
    python = kernel_python if os.path.isabs(kernel_python) else executable
    if _prefix_of(python) == os.path.abspath(prefix):
        return Check("kernel", Status.OK, f"python3 runs {python}")
    detail = f"python3 runs {python}, which is not in {prefix}"
    return Check("kernel", Status.FAIL, detail, f"{executable} -m ipykernel install --sys-prefix")


def check_server(jupyter_on_path: str | None, prefix: str) -> Check:
    """`jupyter` on the PATH is the one of this environment, or there is none."""
    if jupyter_on_path is None or _prefix_of(jupyter_on_path) == os.path.abspath(prefix):
        return Check("server", Status.OK, f"JupyterLab starts from {prefix}")
    detail = f"`jupyter` on the PATH is {jupyter_on_path}, of another environment"
    return Check("server", Status.WARN, detail, "start it with: tinyvllm-lab lab")


def check_extensions(listing: str) -> Check:
    """JupyterLab knows the extensions that draw the panels.

    Args:
        listing: what `jupyter labextension list` prints, without colours.
    """
    lines = [line.split() for line in listing.splitlines()]
    ready = {words[0] for words in lines if words[2:4] == ["enabled", "OK"]}
    missing = [name for name in EXTENSIONS if name not in ready]
    if not missing:
        return Check("panels", Status.OK, f"{' and '.join(EXTENSIONS)} are enabled")
    packages = " ".join(EXTENSIONS[name] for name in missing)
    detail = f"JupyterLab does not show {' and '.join(missing)} as enabled"
    fix = f"pip install --force-reinstall {packages}, then restart JupyterLab (not only the kernel)"
    return Check("panels", Status.FAIL, detail, fix)


def check_compiler(compiler: str | None) -> Check:
    """A C++ compiler, for CUDA kernels on the CPU (chapters 06, 07, 11)."""
    if compiler:
        return Check("C++ compiler", Status.OK, compiler)
    detail = "none: chapters 06, 07 and 11 show recorded runs of their kernels"
    fix = "xcode-select --install" if sys.platform == "darwin" else "sudo apt install g++"
    return Check("C++ compiler", Status.WARN, detail, fix)


def check_gpu(gpu: str | None, driver_cuda: str | None, torch_cuda: str | None) -> Check:
    """An NVIDIA card, if there is one, and a torch that can use it.

    Args:
        gpu: name and driver as nvidia-smi gives them; None without a card.
        driver_cuda: newest CUDA version that the driver runs.
        torch_cuda: CUDA version that torch was built for; None for a CPU build.
    """
    if gpu is None:
        return Check("GPU", Status.OK, "none: everything runs on the CPU")
    if torch_cuda is None:
        detail = f"{gpu}, but this torch was built for the CPU"
        fix = "pip uninstall torch, then: pip install torch (on Linux PyPI's carries CUDA)"
        return Check("GPU", Status.WARN, detail, fix)
    if driver_cuda and Version(torch_cuda).major > Version(driver_cuda).major:
        detail = f"{gpu}: its driver runs CUDA {driver_cuda}, torch was built for {torch_cuda}"
        return Check("GPU", Status.WARN, detail, "install a newer NVIDIA driver")
    return Check("GPU", Status.OK, f"{gpu}, torch for CUDA {torch_cuda}")


def check_nvcc(nvcc: str | None, archs: list[str], gpu_arch: str | None) -> Check:
    """The CUDA compiler, which only a machine with a card needs.

    Args:
        nvcc: its version; None without it.
        archs: what it can compile for, such as "compute_90".
        gpu_arch: the card's own, in the same spelling; None without a card.
    """
    if nvcc is None and gpu_arch is None:
        return Check("nvcc", Status.OK, "none, and without a GPU none is needed")
    if nvcc is None:
        detail = "none: the engine runs, own kernels do not run on the card"
        return Check("nvcc", Status.WARN, detail, "conda install -c conda-forge cuda-nvcc")
    if gpu_arch is None or gpu_arch in archs:
        return Check("nvcc", Status.OK, nvcc)
    detail = f"{nvcc} does not know {gpu_arch}, the architecture of this card"
    newer = "an older" if archs and _number(gpu_arch) < _number(archs[0]) else "a newer"
    return Check("nvcc", Status.WARN, detail, f"install {newer} CUDA toolkit")


def check_memory(weight_bytes: int | None, free_bytes: int | None, model: str) -> Check:
    """Free memory against the weights of `model`."""
    if weight_bytes is None:
        return Check("memory", Status.WARN, f"the model {model!r} is not on this machine",
                     "see: tinyvllm-lab models")  # fmt: skip
    needed = weight_bytes + WORKING_BYTES
    if free_bytes is None:
        return Check("memory", Status.OK, f"{_gib(needed)} needed; free memory is not known here")
    detail = f"{_gib(free_bytes)} free, {model!r} needs about {_gib(needed)}"
    fix = "close other programs and notebooks, or take a smaller model"
    return _check("memory", free_bytes >= needed, detail, fix, otherwise=Status.WARN)


def _check(name: str, good: bool, detail: str, fix: str, otherwise: Status = Status.FAIL) -> Check:
    return Check(name, Status.OK, detail) if good else Check(name, otherwise, detail, fix)


def _package_problem(requirement: Requirement, version: str | None) -> str | None:
    if version is None:
        return "is not installed"
    if not requirement.specifier.contains(version, prereleases=True):
        return f"{version} is installed, {requirement.specifier} is needed"
    return None


def _prefix_of(program: str) -> str:
    # Not resolved: the python of a venv is a link to one outside.
    return str(Path(os.path.abspath(program)).parent.parent)


def _number(arch: str) -> int:
    return int("".join(c for c in arch if c.isdigit()))


def _gib(size: int) -> str:
    return f"{size / (1 << 30):.1f} GiB"
