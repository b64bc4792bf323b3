"""Thousands of damaged headers: we reject what the official library rejects, and nothing else."""

import copy
import json
import struct

import pytest
import safetensors
from hypothesis import given, settings
from hypothesis import strategies as st

from tinyvllm_lab.errors import SafetensorsError
from tinyvllm_lab.model.safetensors import SafetensorsFile
from tinyvllm_lab.model.safetensors_header import DTYPE_BITS

NAMES = st.one_of(st.sampled_from(["a", "b", "w.0", "", "é", "__metadata__"]), st.text(max_size=3))
SIZES = st.one_of(st.integers(0, 4), st.sampled_from([8, 2**31, 2**32, 2**63, 2**64 - 1, 2**64]))
ODD_VALUES = st.one_of(
    SIZES,
    st.sampled_from(
        [None, True, -1, 0.0, 1.5, 1e300, "", "F32", [], [0], [0, 8], {}, {"F32": None}]
    ),
    st.lists(SIZES, max_size=3),
)
FIELDS = st.sampled_from(["dtype", "shape", "data_offsets", "new"])
ODD_BYTES = st.sampled_from(
    [b"0", b"1", b"9", b"-", b".", b"e5", b"e999", b'"', b"[", b"]", b"{", b"}", b",", b":", b" ",
     b"\n", b"\0", b"\t", b"\\", b"\\u", b"\\ud800", b"\\udc00", b"null", b"NaN", b"true",
     b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xf0\x9f\x98\x80", b"\xef\xbb\xbf", b'"a":1,', b"[[[["]
)  # fmt: skip


@st.composite
def valid_headers(draw):
    """A header that is right, and the number of data bytes it speaks of."""
    header, begin = {}, 0
    for name in draw(
        st.lists(NAMES.filter(lambda n: n != "__metadata__"), max_size=4, unique=True)
    ):
        dtype = draw(st.sampled_from(list(DTYPE_BITS)))
        shape = draw(st.lists(st.integers(0, 4), max_size=3))
        bits = DTYPE_BITS[dtype]
        for size in shape:
            bits *= size
        if bits % 8:
            shape, bits = [8], 8 * DTYPE_BITS[dtype]
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [begin, begin + bits // 8]}
        begin += bits // 8
    if draw(st.booleans()):
        header["__metadata__"] = draw(st.dictionaries(st.text(max_size=3), st.text(max_size=3)))
    order = draw(st.permutations(list(header)))
    return {name: header[name] for name in order}, begin


def mutate_structure(draw, header):
    """Change one entry: a field, a size in it, its name, its form."""
    header = copy.deepcopy(header)
    name = draw(st.sampled_from(list(header)) if header else NAMES)
    entry = header.get(name)
    kind = draw(st.sampled_from(["field", "number", "drop", "rename", "replace", "list", "add"]))
    if kind == "add":
        begin = draw(SIZES)
        header[draw(NAMES)] = {
            "dtype": "U8",
            "shape": [draw(SIZES)],
            "data_offsets": [begin, begin],
        }
    elif kind == "replace" or not isinstance(entry, dict) or "shape" not in entry:
        header[name] = draw(ODD_VALUES)
    elif kind == "field":
        entry[draw(FIELDS)] = draw(ODD_VALUES)
    elif kind == "number":
        numbers = entry[draw(st.sampled_from(["shape", "data_offsets"]))]
        if isinstance(numbers, list) and numbers:
            numbers[draw(st.integers(0, len(numbers) - 1))] = draw(ODD_VALUES)
    elif kind == "drop":
        entry.pop(draw(FIELDS), None)
    elif kind == "rename":
        header[draw(NAMES)] = header.pop(name)
    else:
        header[name] = list(entry.values())
    return header


def mutate_bytes(draw, text):
    """Insert, delete, overwrite or cut bytes."""
    place = draw(st.integers(0, len(text)))
    kind = draw(st.sampled_from(["insert", "delete", "overwrite", "cut"]))
    if kind == "insert":
        return text[:place] + draw(ODD_BYTES) + text[place:]
    if kind == "delete":
        return text[:place] + text[place + draw(st.integers(1, 4)) :]
    if kind == "overwrite":
        odd = draw(ODD_BYTES)
        return text[:place] + odd + text[place + len(odd) :]
    return text[:place]


@st.composite
def damaged_files(draw):
    header, num_bytes = draw(valid_headers())
    for _ in range(draw(st.integers(0, 2))):
        header = mutate_structure(draw, header)
    text = json.dumps(header, ensure_ascii=draw(st.booleans())).encode("utf-8")
    for _ in range(draw(st.integers(0, 2))):
        text = mutate_bytes(draw, text)
    length = len(text) + draw(st.sampled_from([0] * 12 + [-1, 1, 8, 10**9, 2**63]))
    data = bytes(i % 251 for i in range(num_bytes + draw(st.sampled_from([0] * 12 + [-1, 1]))))
    return struct.pack("<Q", max(length, 0)) + text + data


class _RepeatedKey(Exception):
    pass


def has_repeated_key(content):
    """The one difference we allow, found without our reader."""

    def check(pairs):
        if len(dict(pairs)) < len(pairs):
            raise _RepeatedKey
        return dict(pairs)

    length = int.from_bytes(content[:8], "little")
    try:
        json.loads(content[8 : 8 + length].decode(), object_pairs_hook=check)
    except _RepeatedKey:
        return True
    return False


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return tmp_path_factory.mktemp("fuzz") / "x.safetensors"


@settings(max_examples=2500)
@given(content=damaged_files())
def test_we_agree_with_the_library_on_damaged_headers(path, content):
    try:
        theirs = dict(safetensors.deserialize(content))
    except safetensors.SafetensorError:
        theirs = None
    path.write_bytes(content)
    if theirs is None or has_repeated_key(content):
        with pytest.raises(SafetensorsError, match=r"x\.safetensors"):
            SafetensorsFile(path)
        return
    with SafetensorsFile(path) as file:
        assert set(file) == set(theirs)
        for name, their in theirs.items():
            assert file.info(name).dtype == their["dtype"]
            assert list(file.info(name).shape) == their["shape"]
            assert bytes(file.raw(name)) == bytes(their["data"])
