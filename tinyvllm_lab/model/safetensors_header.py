"""The header of a Safetensors file: read it, and believe none of it (chapter 02).

    byte 0        8 bytes: the length N of the header, an unsigned little-endian integer
    byte 8        N bytes: JSON in UTF-8
                  {"__metadata__": {"any": "text"},
                   "name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, ...}
    byte 8 + N    the tensors' numbers, row by row, little-endian; `data_offsets` count from here

The tensors must cover the data exactly, without a gap or an overlap, so that no byte of a file
goes unseen. We accept and reject what the official library does, with one exception: a key that
stands twice in the JSON is an error here, while the library keeps the last one.
Source: https://huggingface.co/docs/safetensors and the library's own behaviour.

This file imports no torch: a header can be looked at without it.
"""

import json
import math
import re
from dataclasses import dataclass
from mmap import mmap
from typing import Any

from tinyvllm_lab.errors import SafetensorsError

# Bits of one number. The order is the official library's: files are written from the last to the
# first, so that wide numbers come first and all stay aligned.
DTYPE_BITS = {
    "BOOL": 8, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8,
    "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "I16": 16, "U16": 16, "F16": 16, "BF16": 16,
    "I32": 32, "U32": 32, "F32": 32, "C64": 64, "F64": 64, "I64": 64, "U64": 64,
}  # fmt: skip
LENGTH_BYTES = 8
MAX_HEADER_BYTES = 100_000_000
_MAX_JSON_DEPTH = 127
_UINT64_LIMIT = 2**64


@dataclass(frozen=True)
class TensorInfo:
    """What the header says about one tensor. `data_offsets` count from the end of the header."""

    dtype: str
    shape: tuple[int, ...]
    data_offsets: tuple[int, int]

    @property
    def num_bytes(self) -> int:
        """Bytes that the tensor occupies in the file."""
        begin, end = self.data_offsets
        return end - begin


@dataclass(frozen=True)
class Header:
    """A checked header: tensors in the order of their data, free texts, where the data begins."""

    tensors: dict[str, TensorInfo]
    metadata: dict[str, str]
    data_start: int


class _RepeatedKey(ValueError):
    """A key stands twice in one JSON object."""


@dataclass(frozen=True)
class _HeaderText:
    """The JSON of a header, and the file it came from: what an error message must name."""

    file: str
    raw: bytes

    def error(
        self, what: str, *, tensor: str | None = None, byte: int | None = None, expected: str = ""
    ) -> SafetensorsError:
        """An error about a tensor, a byte of the file, or both.

        Without a byte it is the one where the tensor's entry begins.
        """
        if byte is None:
            byte = self.bytes_of_key(tensor or "")[0]
        subject = "" if tensor is None else f" tensor {tensor!r},"
        return SafetensorsError(f"{self.file},{subject} byte {byte}: {what}", expected)

    def bytes_of_key(self, key: str) -> list[int]:
        """The bytes of the file where the quoted key stands.

        If the JSON spells the key with escapes that we do not, this is the header's first byte.
        """
        quoted = re.escape(json.dumps(key, ensure_ascii=False).encode("utf-8", "replace"))
        found = [LENGTH_BYTES + match.start() for match in re.finditer(quoted, self.raw)]
        return found or [LENGTH_BYTES]


def read_header(buffer: bytes | mmap, file: str) -> Header:
    """Check and parse the header of a whole Safetensors file.

    Args:
        buffer: all bytes of the file.
        file: its name, for messages.

    Raises:
        SafetensorsError: the file is damaged; the message names the file, the byte and, where one
            is to blame, the tensor.
    """
    text = _HeaderText(file, _header_bytes(buffer, file))
    entries = _parse_json(text)
    metadata = _metadata(entries.pop("__metadata__", None), text)
    tensors = {name: _tensor_info(name, entry, text) for name, entry in entries.items()}
    tensors = dict(sorted(tensors.items(), key=lambda item: item[1].data_offsets))
    data_start = LENGTH_BYTES + len(text.raw)
    _check_layout(tensors, data_start, len(buffer), text)
    return Header(tensors, metadata, data_start)


def _header_bytes(buffer: bytes | mmap, file: str) -> bytes:
    file_bytes = len(buffer)
    if file_bytes < LENGTH_BYTES:
        raise SafetensorsError(
            f"{file}, byte {file_bytes}: the file ends within the length of its header.",
            expected=f"at least {LENGTH_BYTES} bytes",
            fix="Download the file again.",
        )
    header_bytes = int.from_bytes(buffer[:LENGTH_BYTES], "little")
    if header_bytes > MAX_HEADER_BYTES:
        raise SafetensorsError(
            f"{file}, byte 0: the header claims to have {header_bytes} bytes.",
            expected=f"at most {MAX_HEADER_BYTES}",
            fix="This is no Safetensors file, or a damaged one.",
        )
    if LENGTH_BYTES + header_bytes > file_bytes:
        raise SafetensorsError(
            f"{file}, byte {file_bytes}: the file ends within its header of {header_bytes} bytes.",
            fix="Download the file again.",
        )
    return bytes(buffer[LENGTH_BYTES : LENGTH_BYTES + header_bytes])


def _parse_json(text: _HeaderText) -> dict[str, Any]:
    try:
        decoded = text.raw.decode("utf-8")
    except UnicodeDecodeError as error:
        byte = LENGTH_BYTES + error.start
        raise text.error("the header is no valid UTF-8.", byte=byte) from None
    try:
        entries = parse_strict_json(decoded)
    except json.JSONDecodeError as error:
        byte = LENGTH_BYTES + len(decoded[: error.pos].encode("utf-8"))
        raise text.error(f"the header is no valid JSON: {error.msg}.", byte=byte) from None
    except _RepeatedKey as error:
        key = str(error)
        byte = text.bytes_of_key(key)[-1]
        raise text.error("this key stands twice in an object.", tensor=key, byte=byte) from None
    except (ValueError, RecursionError) as error:
        raise text.error(f"the header is no valid JSON: {error}.", byte=LENGTH_BYTES) from None
    if not isinstance(entries, dict):
        raise text.error("the header is no JSON object.", byte=LENGTH_BYTES, expected="{...}")
    return entries


def parse_strict_json(text: str) -> Any:
    """JSON as the standard has it, which is less than what Python's parser takes.

    Raises:
        ValueError: also for NaN, numbers beyond a float, half of a surrogate pair, keys that stand
            twice, and more than 127 levels.
    """
    value = json.loads(
        text,
        object_pairs_hook=_object_without_repeats,
        parse_int=_parse_int,
        parse_float=_parse_float,
        parse_constant=_refuse_constant,
    )
    _check_nesting(value, depth=0)
    return value


def _object_without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in pairs:
        if key in result:
            raise _RepeatedKey(key)
        result[key] = value
    return result


def _parse_int(digits: str) -> int | float:
    """An unsigned 64-bit integer, or else a float: then it is no valid size or offset."""
    if digits.startswith("-") or len(digits) > 20 or int(digits) >= _UINT64_LIMIT:
        return _parse_float(digits)
    return int(digits)


def _parse_float(digits: str) -> float:
    value = float(digits)
    if math.isinf(value):
        raise ValueError("a number exceeds the range of a float")
    return value


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON number")


def _check_nesting(value: Any, depth: int) -> None:
    """Walk over everything: limit the depth, and refuse texts that are no Unicode."""
    if isinstance(value, str):
        value.encode("utf-8")  # raises UnicodeEncodeError, a ValueError, for half a surrogate pair
    if not isinstance(value, dict | list):
        return
    if depth == _MAX_JSON_DEPTH:
        raise ValueError(f"more than {_MAX_JSON_DEPTH} levels of nesting")
    if isinstance(value, dict):
        for key in value:
            _check_nesting(key, depth + 1)
        value = value.values()
    for item in value:
        _check_nesting(item, depth + 1)


def _metadata(value: Any, text: _HeaderText) -> dict[str, str]:
    if value is None:
        return {}
    if not isinstance(value, dict) or any(type(v) is not str for v in value.values()):
        raise text.error(
            "__metadata__ holds something else than texts.",
            tensor="__metadata__",
            expected='an object of texts, such as {"format": "pt"}',
        )
    return value


def _tensor_info(name: str, entry: Any, text: _HeaderText) -> TensorInfo:
    fields = _fields(name, entry, text)
    dtype = fields["dtype"]
    # The official reader takes {"F32": null} for "F32", by a habit of its JSON library.
    if isinstance(dtype, dict) and list(dtype.values()) == [None]:
        dtype = next(iter(dtype))
    if type(dtype) is not str or dtype not in DTYPE_BITS:
        raise text.error(
            f"the dtype is {dtype!r}.", tensor=name, expected="one of " + ", ".join(DTYPE_BITS)
        )
    shape, offsets = fields["shape"], fields["data_offsets"]
    if not _is_list_of_sizes(shape):
        raise text.error(f"the shape is {shape!r}.", tensor=name, expected="a list of sizes")
    if not _is_list_of_sizes(offsets) or len(offsets) != 2:
        raise text.error(
            f"data_offsets is {offsets!r}.", tensor=name, expected="two bytes: [begin, end]"
        )
    return TensorInfo(dtype, tuple(shape), (offsets[0], offsets[1]))


def _fields(name: str, entry: Any, text: _HeaderText) -> dict[str, Any]:
    names = ("dtype", "shape", "data_offsets")
    # The same habit again: a bare list of the three values counts as the object.
    if isinstance(entry, list) and len(entry) == len(names):
        return dict(zip(names, entry, strict=True))
    if not isinstance(entry, dict):
        raise text.error("its entry is no object.", tensor=name, expected=" and ".join(names))
    for field in names:
        if field not in entry:
            raise text.error(f"{field} is missing.", tensor=name, expected=" and ".join(names))
    return entry


def _is_list_of_sizes(value: Any) -> bool:
    return isinstance(value, list) and all(type(v) is int for v in value)


def _check_layout(
    tensors: dict[str, TensorInfo], data_start: int, file_bytes: int, text: _HeaderText
) -> None:
    """The tensors, in the order of their data, must cover every byte behind the header once."""
    covered = data_start
    for name, info in tensors.items():
        begin, end = (data_start + offset for offset in info.data_offsets)
        if begin < covered:
            raise text.error(
                f"it overlaps the tensor before it, which ends at byte {covered}.",
                tensor=name,
                byte=begin,
            )
        if begin > covered:
            raise text.error(
                f"the {begin - covered} bytes from byte {covered} belong to no tensor.",
                tensor=name,
                byte=begin,
            )
        if end < begin:
            raise text.error(f"it ends before it begins, at byte {end}.", tensor=name, byte=begin)
        if end > file_bytes:
            raise text.error(
                f"it ends at byte {end}, but the file has {file_bytes} bytes.",
                tensor=name,
                byte=begin,
            )
        _check_size(name, info, begin, text)
        covered = end
    if covered < file_bytes:
        raise text.error(
            f"the last {file_bytes - covered} bytes of the file belong to no tensor.", byte=covered
        )


def _check_size(name: str, info: TensorInfo, begin: int, text: _HeaderText) -> None:
    bits = 1
    # Step by step, as 64-bit arithmetic would: an overflow on the way is an error even when a later
    # size is zero.
    for factor in (*info.shape, DTYPE_BITS[info.dtype]):
        bits *= factor
        if bits >= _UINT64_LIMIT:
            raise text.error(f"its shape {list(info.shape)} exceeds 64 bits.", tensor=name)
    if bits != 8 * info.num_bytes:
        raise text.error(
            f"it has {info.num_bytes} bytes, but {info.dtype} of shape {list(info.shape)} "
            f"needs {bits / 8:.15g}.",
            tensor=name,
            byte=begin,
        )
