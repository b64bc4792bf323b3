"""Makes `kernels.json`, what each kernel of the course takes of a GPU: `python make_table.py`.

Needs nvcc. The launch-geometry panel reads the table, so that it needs none. Registers and static
shared memory are ptxas's, for every architecture that the course is built for; dynamic shared
memory is what `tinyvllm_lab.kernels` asks for, and depends on the block alone.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from tinyvllm_lab.kernels.cuda.compiler import declarations, find_cuda_compiler
from tinyvllm_lab.kernels.ops import OPS
from tinyvllm_lab.kernels.resources import resource_report
from tinyvllm_lab.kernels.sources import find_source
from tinyvllm_lab.paths import kernels_dir

PATH = Path(__file__).parent / "kernels.json"
ABOUT = (
    "Threads that a block may have, registers of a thread by architecture, bytes of static shared "
    "memory of a block, and bytes of dynamic shared memory for each of its threads, of every "
    "kernel in kernels/. Measured by ptxas."
)
TREES = ("rms_norm", "softmax", "argmax")
"""Operations that have a version "tree", which folds sums in dynamic shared memory."""


def dynamic_shared_per_thread() -> dict[str, int]:
    """Kernel -> bytes for each thread of a block; kernels that take none are left out."""
    found = {}
    for dtype in (torch.float32, torch.bfloat16):
        x = torch.zeros(1, 4096, dtype=dtype)
        for op in TREES:
            more = (x[0], 1e-5) if op == "rms_norm" else ()
            (launch,) = OPS[op].work(x, *more, version="tree").launches
            found[launch.kernel] = launch.shared // launch.block[0]
    return found


def table() -> dict[str, Any]:
    """The whole table."""
    dynamic = dynamic_shared_per_thread()
    kernels: dict[str, Any] = {}
    for file in sorted(path.stem for path in kernels_dir().glob("*.cu")):
        signatures = declarations(find_source(file), ()).kernels
        most = {signature.name: signature.max_threads for signature in signatures}
        for found in sorted(resource_report(file), key=lambda row: row.kernel):
            row = kernels.setdefault(
                found.kernel,
                {
                    "file": file,
                    "max_threads": most[found.kernel],
                    "static_shared": found.static_shared,
                    "dynamic_shared_per_thread": dynamic.get(found.kernel, 0),
                    "registers": {},
                },
            )
            row["registers"][str(found.architecture)] = found.registers
    return {"about": ABOUT, "compiler": find_cuda_compiler().version, "kernels": kernels}


def text(made: dict[str, Any]) -> str:
    """As JSON, one kernel a line."""
    head = {name: value for name, value in made.items() if name != "kernels"}
    lines = [f'    "{name}": {json.dumps(row)}' for name, row in made["kernels"].items()]
    start = json.dumps(head, indent=2).removesuffix("\n}")
    return f'{start},\n  "kernels": {{\n' + ",\n".join(lines) + "\n  }\n}\n"


if __name__ == "__main__":
    PATH.write_text(text(table()))
    print(PATH)
