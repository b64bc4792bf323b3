"""What the doctor asks the machine: versions, kernels, compilers, the card, memory."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import Requirement

_ANSI = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of this machine. None: it is not there, or cannot be known."""

    python: tuple[int, int, int]
    executable: str
    prefix: str
    requirements: list[str]
    versions: dict[str, str | None]
    kernel_python: str | None
    jupyter_on_path: str | None
    lab_extensions: str
    compiler: str | None
    nvcc: str | None
    nvcc_archs: list[str]
    gpu: str | None
    gpu_arch: str | None
    driver_cuda: str | None
    torch_cuda: str | None
    model: str
    weight_bytes: int | None
    free_bytes: int | None


def collect_facts(model: str = "tiny") -> Facts:
    """Ask the machine. Takes some seconds: JupyterLab is started once to list its extensions."""
    requirements = our_requirements()
    gpu, gpu_arch = _gpu()
    return Facts(
        python=sys.version_info[:3],
        executable=sys.executable,
        prefix=sys.prefix,
        requirements=requirements,
        versions={name: _version(name) for name in (Requirement(r).name for r in requirements)},
        kernel_python=_kernel_python(),
        jupyter_on_path=shutil.which("jupyter-lab"),
        lab_extensions=_output([sys.executable, "-m", "jupyter", "labextension", "list"]),
        compiler=_first_line(["c++", "g++", "clang++"]),
        nvcc=_nvcc_version(),
        nvcc_archs=_output(["nvcc", "--list-gpu-arch"]).split(),
        gpu=gpu,
        gpu_arch=gpu_arch,
        driver_cuda=_found(r"CUDA Version: *([\d.]+)", _output(["nvidia-smi"])),
        torch_cuda=_torch_cuda(),
        model=model,
        weight_bytes=_weight_bytes(model),
        free_bytes=free_memory(),
    )


def our_requirements(extra: str = "lab") -> list[str]:
    """What this package and its `extra` ask for; empty if the package is not installed."""
    try:
        lines = importlib.metadata.requires("tinyvllm-lab") or []
    except importlib.metadata.PackageNotFoundError:
        return []
    requirements = map(Requirement, lines)
    wanted = [r for r in requirements if r.marker is None or r.marker.evaluate({"extra": extra})]
    return [f"{r.name}{r.specifier}" for r in wanted]


def free_memory() -> int | None:
    """Bytes that a program can still take; on systems that do not say, all of the memory."""
    try:
        meminfo = Path("/proc/meminfo").read_text()
    except OSError:
        names = os.sysconf_names if hasattr(os, "sysconf_names") else {}
        if "SC_PHYS_PAGES" not in names:
            return None
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    available = _found(r"MemAvailable: *(\d+) kB", meminfo)
    return int(available) * 1024 if available else None


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _kernel_python() -> str | None:
    try:
        from jupyter_client.kernelspec import KernelSpecManager, NoSuchKernel
    except ImportError:
        return None
    try:
        return KernelSpecManager().get_kernel_spec("python3").argv[0]
    except NoSuchKernel:
        return None


def _output(command: Sequence[str]) -> str:
    """What `command` prints, without colours; nothing if it cannot run."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return _ANSI.sub("", done.stdout + done.stderr) if done.returncode == 0 else ""


def _first_line(programs: list[str]) -> str | None:
    for program in programs:
        if text := _output([program, "--version"]):
            return text.splitlines()[0]
    return None


def _nvcc_version() -> str | None:
    release = _found(r"release ([\d.]+)", _output(["nvcc", "--version"]))
    return release and f"CUDA {release}"


def _gpu() -> tuple[str | None, str | None]:
    """Name with driver, and architecture, of the first card."""
    query = "--query-gpu=name,driver_version,compute_cap"
    lines = _output(["nvidia-smi", query, "--format=csv,noheader"]).splitlines()
    if not lines or lines[0].count(",") != 2:
        return None, None
    name, driver, capability = (part.strip() for part in lines[0].split(","))
    return f"{name}, driver {driver}", f"compute_{capability.replace('.', '')}"


def _torch_cuda() -> str | None:
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return None
    version_file = Path(spec.origin).with_name("version.py")
    text = version_file.read_text(encoding="utf-8") if version_file.is_file() else ""
    return _found(r"^cuda\b[^=]*= *'([\d.]+)'", text)


def _weight_bytes(model: str) -> int | None:
    """Bytes of a model that is here or that we know; nothing is downloaded to find out."""
    from tinyvllm_lab.model.registry import list_models

    for row in list_models():
        if row.name == model:
            return row.num_bytes
    files = list(Path(model).expanduser().glob("*.safetensors"))
    return sum(path.stat().st_size for path in files) if files else None


def _found(pattern: str, text: str) -> str | None:
    match = re.search(pattern, text, re.MULTILINE)
    return match.group(1) if match else None
