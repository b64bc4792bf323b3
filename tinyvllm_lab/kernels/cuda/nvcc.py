"""nvcc, NVIDIA's compiler driver, run as a program. It needs no GPU and no driver."""

import functools
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tinyvllm_lab.errors import KernelError


def _run(command: list[str]) -> tuple[str, str]:
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        raise KernelError(
            f"{' '.join(command)} failed:\n{(result.stderr or result.stdout).strip()}"
        )
    return result.stdout, result.stderr


@functools.cache
def _architectures(command: str) -> tuple[int, ...]:
    listed, _ = _run([command, "--list-gpu-arch"])
    return tuple(sorted({int(number) for number in re.findall(r"compute_(\d+)$", listed, re.M)}))


@dataclass(frozen=True)
class Nvcc:
    """One installed nvcc: its command and what it says about its version."""

    command: str
    version: str

    def architectures(self) -> tuple[int, ...]:
        """Compute capabilities it can compile for, as 10 * major + minor, ascending."""
        return _architectures(self.command)

    def compile(self, source: Path, target: str, options: Sequence[str], output: Path) -> str:
        """Write machine code for "sm_80", or PTX for "compute_80"; returns what ptxas said.

        Raises:
            KernelError: the file does not compile; the message has nvcc's own.
        """
        kind = "-cubin" if target.startswith("sm_") else "-ptx"
        verbose = ["-Xptxas", "-v"] if kind == "-cubin" else []
        # The host's compiler only preprocesses: one that is newer than nvcc knows will do.
        any_host = "-allow-unsupported-compiler"
        command = [self.command, kind, f"-arch={target}", any_host, *verbose, *options]
        _, said = _run([*command, "-o", str(output), str(source)])
        return said


def _candidates() -> list[str]:
    homes = [os.environ.get(name) for name in ("CUDA_HOME", "CUDA_PATH", "CONDA_PREFIX")]
    folders = [f"{home}/bin" for home in homes if home] + ["/usr/local/cuda/bin"]
    return [os.environ.get("NVCC", ""), "nvcc", *(f"{folder}/nvcc" for folder in folders)]


def find_nvcc() -> Nvcc | None:
    """The nvcc of `$NVCC`, the PATH, `$CUDA_HOME`, the conda environment or /usr/local/cuda."""
    for candidate in _candidates():
        found = shutil.which(candidate) if candidate else None
        if found:
            return Nvcc(found, _version(found))
    return None


@functools.cache
def _version(command: str) -> str:
    return _run([command, "--version"])[0].strip().splitlines()[-1]
