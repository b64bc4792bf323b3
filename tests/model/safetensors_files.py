"""Safetensors files made by hand, byte by byte."""

import json
import struct

A = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
EMPTY = {"dtype": "F32", "shape": [0], "data_offsets": [8, 8]}


def file_bytes(header, data=b"\1\2\3\4\5\6\7\10", length=None):
    """A file from a header (bytes, or something for JSON), data, and a length to lie about."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def written(folder, content):
    path = folder / "x.safetensors"
    path.write_bytes(content)
    return path


def a_with(**fields):
    return {"a": A | fields}
