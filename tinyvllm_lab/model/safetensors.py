"""Tensors out of Safetensors files, without a copy (chapter 02).

The file is mapped into memory: opening a model of 2.5 GB takes milliseconds, and a tensor's pages
are read when its numbers are first touched. `Checkpoint` makes one mapping of one or many files.
"""

import mmap
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import TYPE_CHECKING, Any

from tinyvllm_lab.errors import SafetensorsError
from tinyvllm_lab.model.safetensors_header import TensorInfo, parse_strict_json, read_header

if TYPE_CHECKING:
    import torch

SINGLE_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"

# Names only: torch is imported when a tensor is read. What is absent here, or in an old torch,
# cannot be read as a tensor; its bytes can (`raw`).
TORCH_DTYPES = {
    "BOOL": "bool", "F4": "float4_e2m1fn_x2", "U8": "uint8", "I8": "int8", "F8_E5M2": "float8_e5m2",
    "F8_E4M3": "float8_e4m3fn", "F8_E8M0": "float8_e8m0fnu", "F8_E4M3FNUZ": "float8_e4m3fnuz",
    "F8_E5M2FNUZ": "float8_e5m2fnuz", "I16": "int16", "U16": "uint16", "F16": "float16",
    "BF16": "bfloat16", "I32": "int32", "U32": "uint32", "F32": "float32", "C64": "complex64",
    "F64": "float64", "I64": "int64", "U64": "uint64",
}  # fmt: skip


class SafetensorsFile:
    """One open Safetensors file.

        with SafetensorsFile("model.safetensors") as file:
            file.keys()                      # the names, in the order of their data
            file.info("model.norm.weight")   # dtype, shape, data_offsets
            file.tensor("model.norm.weight") # a torch tensor over the mapped bytes

    Args:
        path: the file.

    Raises:
        SafetensorsError: the file cannot be opened, or is damaged.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._map: mmap.mmap | None = _map_file(self.path)
        try:
            header = read_header(self._map, str(self.path))
        except BaseException:
            self.close()
            raise
        self.metadata: dict[str, str] = header.metadata
        self.data_start: int = header.data_start
        self._tensors = header.tensors

    def keys(self) -> list[str]:
        """Names of the tensors, in the order of their data."""
        return list(self._tensors)

    def __contains__(self, name: object) -> bool:
        return name in self._tensors

    def __len__(self) -> int:
        return len(self._tensors)

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def info(self, name: str) -> TensorInfo:
        """Dtype, shape and data_offsets of a tensor.

        Raises:
            SafetensorsError: there is no such tensor.
        """
        if name not in self._tensors:
            raise SafetensorsError(
                f"{self.path} has no tensor {name!r}.", expected=f"one of its {len(self)} names"
            )
        return self._tensors[name]

    def raw(self, name: str) -> memoryview:
        """The tensor's bytes: a read-only view of the mapped file."""
        return self._view(name).toreadonly()

    def tensor(self, name: str) -> "torch.Tensor":
        """The tensor, sharing the mapped bytes. It outlives `close`.

        The mapping is private: writing into the tensor changes this process's copy of the page,
        never the file. Where the file's data is not aligned for the dtype, the tensor is a copy.
        Two 4-bit numbers share a byte, so F4's last dimension is half of the header's, as in torch.

        Raises:
            SafetensorsError: no such tensor, or torch has no such dtype or cannot hold its shape.
        """
        import torch

        info = self.info(name)
        dtype = self._torch_dtype(name, info)
        shape = self._torch_shape(name, info)
        try:
            if info.num_bytes == 0:
                return torch.empty(shape, dtype=dtype)  # torch maps no empty buffer
            view: memoryview | bytearray = self._view(name)
            if (self.data_start + info.data_offsets[0]) % dtype.itemsize:
                view = bytearray(view)
            # torch keeps the memoryview alive, and that keeps the mapping.
            return torch.frombuffer(view, dtype=torch.uint8).view(dtype).view(shape)
        except (RuntimeError, TypeError, OverflowError) as error:
            raise self._tensor_error(name, f"torch cannot hold its shape {shape}") from error

    def close(self) -> None:
        """Give the mapping back, now or when the last tensor that shares it is gone."""
        mapping, self._map = self._map, None
        if mapping is None:
            return
        try:
            mapping.close()
        except BufferError:
            return  # tensors or views still share it: it goes with the last of them

    def __enter__(self) -> "SafetensorsFile":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _view(self, name: str) -> memoryview:
        begin, end = self.info(name).data_offsets
        if self._map is None:
            raise SafetensorsError(f"{self.path} is closed.", fix="Read tensors before close().")
        return memoryview(self._map)[self.data_start + begin : self.data_start + end]

    def _torch_dtype(self, name: str, info: TensorInfo) -> "torch.dtype":
        import torch

        dtype = getattr(torch, TORCH_DTYPES.get(info.dtype, ""), None)
        if dtype is None:
            raise self._tensor_error(name, f"torch {torch.__version__} has no dtype {info.dtype}")
        return dtype

    def _torch_shape(self, name: str, info: TensorInfo) -> tuple[int, ...]:
        if info.dtype != "F4":
            return info.shape
        *rows, columns = info.shape
        if columns % 2:
            raise self._tensor_error(name, f"a row of {columns} F4 numbers ends within a byte")
        return (*rows, columns // 2)

    def _tensor_error(self, name: str, what: str) -> SafetensorsError:
        byte = self.data_start + self.info(name).data_offsets[0]
        return SafetensorsError(
            f"{self.path}, tensor {name!r}, byte {byte}: {what}.",
            fix="Use raw(name), which returns the bytes.",
        )


def _map_file(path: Path) -> mmap.mmap:
    try:
        with open(path, "rb") as file:
            # ACCESS_COPY: torch warns about read-only memory, and a write to it would be a crash.
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    except (OSError, ValueError) as error:  # ValueError: the file is empty, or its name has a NUL
        what = getattr(error, "strerror", None) or str(error)
        raise SafetensorsError(
            f"{path}, byte 0: it cannot be opened and mapped: {what}.",
            fix="Check the path; if the file is empty, download it again.",
        ) from None


class Checkpoint(Mapping[str, "torch.Tensor"]):
    """All tensors of a model as one read-only mapping from name to tensor, over its open files.

    Tensors are made when asked for, and outlive `close`.
    """

    def __init__(self, file_of: dict[str, SafetensorsFile]) -> None:
        self._file_of = file_of
        self.files: tuple[SafetensorsFile, ...] = tuple(dict.fromkeys(file_of.values()))

    def __getitem__(self, name: str) -> "torch.Tensor":
        return self._file_of[name].tensor(name)

    def __contains__(self, name: object) -> bool:
        return name in self._file_of

    def __iter__(self) -> Iterator[str]:
        return iter(self._file_of)

    def __len__(self) -> int:
        return len(self._file_of)

    def info(self, name: str) -> TensorInfo:
        """Dtype, shape and data_offsets (within its file) of a tensor."""
        return self._file_of[name].info(name)

    def raw(self, name: str) -> memoryview:
        """The tensor's bytes, read-only."""
        return self._file_of[name].raw(name)

    @property
    def num_bytes(self) -> int:
        """Bytes of all tensors."""
        return sum(self.info(name).num_bytes for name in self)

    def close(self) -> None:
        """Close all files."""
        for file in self.files:
            file.close()

    def __enter__(self) -> "Checkpoint":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def open_checkpoint(folder: str | Path) -> Checkpoint:
    """Open `model.safetensors`, or all files that `model.safetensors.index.json` names.

    Raises:
        SafetensorsError: neither is there, or one of the files is damaged. None stays open then.
    """
    folder = Path(folder)
    if (folder / SINGLE_FILE).exists():
        file = SafetensorsFile(folder / SINGLE_FILE)
        return Checkpoint(dict.fromkeys(file.keys(), file))
    if (folder / INDEX_FILE).exists():
        return _open_shards(folder, _read_index(folder / INDEX_FILE))
    raise SafetensorsError(
        f"{folder} has no weights in Safetensors.",
        expected=f"{SINGLE_FILE} or {INDEX_FILE}",
        fix="`tinyvllm-lab models` lists the models on this machine.",
    )


def _open_shards(folder: Path, weight_map: dict[str, str]) -> Checkpoint:
    with ExitStack() as opened:
        files = {
            shard: opened.enter_context(SafetensorsFile(folder / shard))
            for shard in sorted(set(weight_map.values()))
        }
        for name, shard in weight_map.items():
            if name not in files[shard]:
                raise SafetensorsError(
                    f"{folder / INDEX_FILE}: tensor {name!r} is not in {shard}.",
                    fix="Download the index and its files again, from one place.",
                )
        opened.pop_all()
    return Checkpoint({name: files[shard] for name, shard in weight_map.items()})


def _read_index(path: Path) -> dict[str, str]:
    try:
        index: Any = parse_strict_json(path.read_bytes().decode("utf-8"))
    except OSError as error:
        raise SafetensorsError(f"{path} cannot be read: {error.strerror}.") from None
    except (ValueError, RecursionError) as error:
        raise SafetensorsError(f"{path} is no valid JSON: {error}.") from None
    weight_map = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(weight_map, dict):
        raise SafetensorsError(
            f"{path} has no object weight_map.",
            expected='{"weight_map": {"tensor name": "file name", ...}}',
        )
    for name, shard in weight_map.items():
        _check_shard_name(path, name, shard)
    return weight_map


def _check_shard_name(path: Path, name: str, shard: Any) -> None:
    """An index comes from a stranger: it may name files below its own folder only."""
    if type(shard) is not str or not shard:
        raise SafetensorsError(f"{path}: tensor {name!r} is in {shard!r}.", expected="a file name")
    windows = PureWindowsPath(shard)  # knows both kinds of slash, drives and roots
    if windows.anchor or PurePosixPath(shard).is_absolute() or ".." in windows.parts:
        raise SafetensorsError(
            f"{path}: tensor {name!r} is in {shard!r}, which leads out of the folder.",
            expected="a file name inside the folder of the index",
            fix="Do not use this model: its index is damaged, or written with bad intent.",
        )
