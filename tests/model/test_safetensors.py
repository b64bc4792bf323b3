"""What our Safetensors reader accepts and rejects, against the official library."""

import json
import struct

import pytest
import safetensors
import torch
from safetensors_files import EMPTY, A, a_with, file_bytes, written

from tinyvllm_lab.errors import SafetensorsError
from tinyvllm_lab.model.safetensors import SafetensorsFile
from tinyvllm_lab.model.safetensors_header import DTYPE_BITS


def unknown(json_text):
    """The tensor a, with one field that the format does not know."""
    return b'{"a":{"x":%s,"dtype":"F32","shape":[2],"data_offsets":[0,8]}}' % json_text


ACCEPTED = {
    "plain": a_with(),
    "no tensors": {},
    "unknown field": a_with(anything=[1, {"b": None}]),
    "bare list": {"a": ["F32", [2], [0, 8]]},
    "dtype as object": a_with(dtype={"F32": None}),
    "metadata null": {"__metadata__": None, "a": A},
    "metadata": {"__metadata__": {"format": "pt", "": "é"}, "a": A},
    "space around": b' \n{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}\t\r\n ',
    "escapes": b'{"\\ud83d\\ude00\\u0000":{"dtype":"\\u004632","shape":[2],"data_offsets":[0,8]}}',
    "empty name": {"": A},
    "scalar": a_with(dtype="F64", shape=[]),
    "empty tensors anywhere": {
        "z": EMPTY,
        "y": EMPTY,
        "a": A,
        "b": EMPTY | {"data_offsets": [0, 0]},
    },
    "zero, then an overflow": {"a": A, "b": EMPTY | {"shape": [0, 2**40, 2**40]}},
    "size of 64 bits": {"a": A, "b": EMPTY | {"shape": [2**60, 0]}},
    "huge number unused": unknown(b"9" * 300),
    "long number unused": unknown(b"0." + b"9" * 5000),
    "127 levels": unknown(b"[" * 125 + b"]" * 125),
}
REJECTED = {
    "no JSON": b"{",
    "no header": b"",
    "a list": b"[]",
    "null": b"null",
    "byte order mark": b"\xef\xbb\xbf{}",
    "bad UTF-8": b'{"a\xff":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}',
    "NUL behind": json.dumps(a_with()).encode() + b"\0",
    "junk behind": json.dumps(a_with()).encode() + b"x",
    "tab in a name": b'{"a\t":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}',
    "half a surrogate pair": b'{"\\ud800":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}',
    "half a pair unused": unknown(b'"\\udc00"'),
    "NaN": unknown(b"NaN"),
    "-Infinity": unknown(b"-Infinity"),
    "1e999": unknown(b"1e999"),
    "400 digits": unknown(b"9" * 400),
    "5000 digits": unknown(b"-" + b"9" * 5000),
    "128 levels": unknown(b"[" * 126 + b"]" * 126),
    "100,000 levels": unknown(b"[" * 100_000 + b"]" * 100_000),
    "entry null": {"a": None},
    "entry a list of four": {"a": ["F32", [2], [0, 8], 0]},
    "dtype unknown": a_with(dtype="F31"),
    "dtype in lower case": a_with(dtype="f32"),
    "dtype a number": a_with(dtype=4),
    "dtype as object of more": a_with(dtype={"F32": {}}),
    "shape missing": {"a": {"dtype": "F32", "data_offsets": [0, 8]}},
    "shape a number": a_with(shape=2),
    "shape null": a_with(shape=None),
    "shape of floats": a_with(shape=[2.0]),
    "shape of booleans": a_with(shape=[2, True]),
    "shape negative": a_with(shape=[-2]),
    "shape -0": b'{"a":{"dtype":"F32","shape":[-0],"data_offsets":[0,0]}}',
    "size of 65 bits": {"a": A, "b": EMPTY | {"shape": [0, 2**64]}},
    "overflow, then zero": {"a": A, "b": EMPTY | {"shape": [2**40, 2**40, 0]}},
    "overflow in bits": {"a": A, "b": EMPTY | {"shape": [2**60], "data_offsets": [8, 8 + 2**62]}},
    "one offset": a_with(data_offsets=[8]),
    "three offsets": a_with(data_offsets=[0, 8, 8]),
    "offsets reversed": a_with(data_offsets=[8, 0]),
    "offsets too short": a_with(data_offsets=[0, 4]),
    "shape too small": a_with(shape=[1]),
    "overlap": {"a": A, "b": A},
    "gap at the start": a_with(shape=[1], data_offsets=[4, 8]),
    "empty tensor in the middle": {"a": A, "b": EMPTY | {"data_offsets": [4, 4]}},
    "data left over": a_with(shape=[1], data_offsets=[0, 4]),
    "beyond the file": a_with(shape=[3], data_offsets=[0, 12]),
    "half a byte": a_with(dtype="F4", shape=[15]),
    "metadata a list": {"__metadata__": [], "a": A},
    "metadata of numbers": {"__metadata__": {"x": 1}, "a": A},
    "metadata twice": b'{"__metadata__":{},"__metadata__":{}}',
    "dtype twice": b'{"a":{"dtype":"F32","dtype":"F32","shape":[2],"data_offsets":[0,8]}}',
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_accepts_what_the_library_accepts(name, tmp_path):
    content = file_bytes(ACCEPTED[name], data=b"" if name == "no tensors" else bytes(8))
    theirs = dict(safetensors.deserialize(content))
    with SafetensorsFile(written(tmp_path, content)) as file:
        assert set(file.keys()) == set(theirs)
        for key in file:
            assert file.info(key).dtype == theirs[key]["dtype"]
            assert list(file.info(key).shape) == theirs[key]["shape"]
            assert bytes(file.raw(key)) == bytes(theirs[key]["data"])


@pytest.mark.parametrize("name", REJECTED)
def test_rejects_what_the_library_rejects(name, tmp_path):
    content = file_bytes(REJECTED[name])
    with pytest.raises(safetensors.SafetensorError):
        safetensors.deserialize(content)
    with pytest.raises(SafetensorsError, match=r"x\.safetensors.* byte \d+: "):
        SafetensorsFile(written(tmp_path, content))


@pytest.mark.parametrize(
    "header",
    [
        b'{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},'
        b'"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}',
        b'{"__metadata__":{"a":"","a":""}}',
        unknown(b'{"a":1,"a":2}'),
    ],
)
def test_a_key_that_stands_twice_is_our_error_alone(header, tmp_path):
    content = file_bytes(header, data=b"" if b"F32" not in header else bytes(8))
    safetensors.deserialize(content)
    with pytest.raises(SafetensorsError, match=r"tensor 'a', byte \d+: this key stands twice"):
        SafetensorsFile(written(tmp_path, content))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\0" * 7,
        b"\0" * 8,
        file_bytes({}, length=100_000_001),
        file_bytes({}, length=2**64 - 1),
        file_bytes({}, b"", length=3),
        file_bytes(a_with(), b"\0" * 7),
        file_bytes(a_with(), b"\0" * 9),
    ],
)
def test_truncated_and_lying_files(content, tmp_path):
    with pytest.raises(safetensors.SafetensorError):
        safetensors.deserialize(content)
    with pytest.raises(SafetensorsError, match="byte"):
        SafetensorsFile(written(tmp_path, content))


def test_the_header_may_have_100_mb_and_no_more(tmp_path):
    path = tmp_path / "x.safetensors"
    for length, fits in [(100_000_000, True), (100_000_001, False)]:
        text = json.dumps(a_with()).encode()
        path.write_bytes(struct.pack("<Q", length) + text.ljust(length) + bytes(8))
        if fits:
            assert SafetensorsFile(path).keys() == ["a"]
        else:
            with pytest.raises(SafetensorsError, match="100000001"):
                SafetensorsFile(path)


@pytest.mark.parametrize(
    ("header", "said"),
    [
        (a_with(dtype="F31"), r"tensor 'a', byte 9: the dtype is 'F31'\.\nExpected: one of BOOL, "),
        ({"a": A, "bé": A}, r"tensor 'bé', byte 136: it overlaps .* ends at byte 144\."),
        (a_with(shape=[1], data_offsets=[4, 8]), "byte 73: the 4 bytes from byte 69 belong to no"),
        (
            a_with(shape=[3], data_offsets=[0, 12]),
            "byte 70: it ends at byte 82, but the file has 78 b",
        ),
        (a_with(shape=[3]), r"has 8 bytes, but F32 of shape \[3\] needs 12"),
        (b'{"\xc3\xa9"x', r"byte 13: the header is no valid JSON: Expecting ':' delimiter"),
        (b'{"a\xff"}', "byte 11: the header is no valid UTF-8"),
    ],
)
def test_messages_name_the_tensor_and_the_byte(header, said, tmp_path):
    with pytest.raises(SafetensorsError, match=said):
        SafetensorsFile(written(tmp_path, file_bytes(header)))


def test_paths_that_are_no_files(tmp_path):
    for path in (tmp_path, tmp_path / "absent", "nul\0byte"):
        with pytest.raises(SafetensorsError, match="cannot be opened"):
            SafetensorsFile(path)


SHAPES = [[4, 2], [3, 8], [0], [2, 0], []]


@pytest.mark.parametrize("dtype", DTYPE_BITS)
def test_every_dtype_equals_the_library_bit_by_bit(dtype, tmp_path):
    for shape in SHAPES:
        bits = DTYPE_BITS[dtype] * torch.Size(shape).numel()
        if bits % 8:
            continue
        entry = {"dtype": dtype, "shape": shape, "data_offsets": [0, bits // 8]}
        path = written(tmp_path, file_bytes({"t": entry}, bytes(i % 2 for i in range(bits // 8))))
        ours = SafetensorsFile(path)
        if dtype.startswith("F6_"):
            with pytest.raises(SafetensorsError, match=f"tensor 't'.* no dtype {dtype}"):
                ours.tensor("t")
            continue
        with safetensors.safe_open(path, "pt") as library:
            theirs = library.get_tensor("t")
        tensor = ours.tensor("t")
        assert tensor.dtype == theirs.dtype
        assert tensor.shape == theirs.shape
        assert bytes(ours.raw("t")) == theirs.reshape(-1).view(torch.uint8).numpy().tobytes()
        assert torch.equal(
            tensor.reshape(-1).view(torch.uint8), theirs.reshape(-1).view(torch.uint8)
        )


def test_an_f4_row_of_odd_length_is_refused_when_read(tmp_path):
    entry = {"dtype": "F4", "shape": [2, 3], "data_offsets": [0, 3]}
    file = SafetensorsFile(written(tmp_path, file_bytes({"t": entry}, b"abc")))
    with pytest.raises(SafetensorsError, match="3 F4 numbers"):
        file.tensor("t")
    assert bytes(file.raw("t")) == b"abc"


def test_a_shape_beyond_torch_is_refused_when_read(tmp_path):
    entry = EMPTY | {"shape": [0, 2**63]}
    file = SafetensorsFile(written(tmp_path, file_bytes({"a": A, "t": entry})))
    with pytest.raises(SafetensorsError, match=r"tensor 't'.*cannot hold"):
        file.tensor("t")
