"""Write Safetensors files: the other half of chapter 02.

The bytes are those that the official library writes for the same tensors.
"""

import json
import math
import os
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import IO

import torch

from tinyvllm_lab.errors import SafetensorsError
from tinyvllm_lab.model.safetensors import TORCH_DTYPES
from tinyvllm_lab.model.safetensors_header import DTYPE_BITS, LENGTH_BYTES

_ALIGNMENT = 8


def save_safetensors(
    path: str | Path,
    tensors: Mapping[str, torch.Tensor],
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Write tensors of any shape into one file, which appears complete or not at all.

    Args:
        path: the file; one that exists is replaced.
        tensors: name to tensor.
        metadata: free texts for `__metadata__`.

    Raises:
        SafetensorsError: a tensor has a dtype that the format lacks, or a name that it reserves.
        OSError: the disk is full, or the folder cannot be written to.
    """
    path = Path(path)
    entries = _entries(tensors)
    header = {"__metadata__": dict(metadata)} if metadata else {}
    text = json.dumps(header | entries, ensure_ascii=False, separators=(",", ":")).encode("utf-8")
    text += b" " * (-len(text) % _ALIGNMENT)
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        with open(temporary, "xb") as file:
            file.write(len(text).to_bytes(LENGTH_BYTES, "little") + text)
            for name in entries:
                _write_tensor(file, tensors[name])
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def _entries(tensors: Mapping[str, torch.Tensor]) -> dict[str, dict]:
    """The header's entries, widest numbers first, so that every tensor is aligned."""
    shapes = {name: _dtype_and_shape(name, tensor) for name, tensor in tensors.items()}
    width = {dtype: place for place, dtype in enumerate(DTYPE_BITS)}
    entries, begin = {}, 0
    for name in sorted(shapes, key=lambda name: (-width[shapes[name][0]], name.encode())):
        dtype, shape = shapes[name]
        end = begin + math.prod(shape) * DTYPE_BITS[dtype] // 8
        entries[name] = {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}
        begin = end
    return entries


def _dtype_and_shape(name: str, tensor: torch.Tensor) -> tuple[str, list[int]]:
    torch_name = str(tensor.dtype).removeprefix("torch.")
    names = [dtype for dtype, known_as in TORCH_DTYPES.items() if known_as == torch_name]
    if not names or name == "__metadata__" or (names == ["F4"] and not tensor.shape):
        raise SafetensorsError(
            f"Tensor {name!r} of dtype {tensor.dtype} cannot be saved.",
            expected="another name than __metadata__, one of the format's dtypes, F4 in rows",
        )
    shape = list(tensor.shape)
    if names == ["F4"]:
        shape[-1] *= 2  # torch counts pairs of 4-bit numbers, the file counts numbers
    return names[0], shape


def _write_tensor(file: IO[bytes], tensor: torch.Tensor) -> None:
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    if flat.numel():
        file.write(flat.view(torch.uint8).numpy().data)
