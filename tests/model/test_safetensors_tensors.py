"""Tensors of our Safetensors files against the official library, and the memory behind them."""

import gc
import json
import os
import struct
import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file, save, save_file
from safetensors_files import a_with, file_bytes, written

from tinyvllm_lab.errors import SafetensorsError
from tinyvllm_lab.model.safetensors import SafetensorsFile, open_checkpoint
from tinyvllm_lab.model.safetensors_header import read_header
from tinyvllm_lab.model.safetensors_writer import save_safetensors
from tinyvllm_lab.paths import assets_dir


def tensors_of_all_kinds():
    torch.manual_seed(0)
    wide = torch.randn(6, 4)
    return {
        "b.weight": wide,
        "a.weight": wide.to(torch.bfloat16),
        "half": wide.half(),
        "not contiguous": wide.T,
        "é": wide.double(),
        "f8": wide.to(torch.float8_e4m3fn),
        "complex": torch.randn(3, dtype=torch.complex64),
        "ids": torch.arange(5),
        "u16": torch.arange(3).to(torch.uint16),
        "u64": torch.arange(3).to(torch.uint64),
        "mask": torch.tensor([True, False]),
        "scalar": torch.tensor(2.5),
        "none": torch.zeros(0, 3),
    }


def test_files_of_the_library_read_the_same(tmp_path):
    tensors = {k: v.contiguous() for k, v in tensors_of_all_kinds().items()}
    save_file(tensors, tmp_path / "x.safetensors", {"format": "pt"})
    file = SafetensorsFile(tmp_path / "x.safetensors")
    assert file.metadata == {"format": "pt"}
    assert set(file) == set(tensors)
    for name, tensor in tensors.items():
        assert file.tensor(name).dtype == tensor.dtype
        assert torch.equal(file.tensor(name), tensor)


def test_our_files_are_the_librarys_byte_for_byte(tmp_path):
    tensors = tensors_of_all_kinds()
    save_safetensors(tmp_path / "x.safetensors", tensors, {"format": 'p"\n\1é'})
    contiguous = {k: v.contiguous() for k, v in tensors.items()}
    assert (tmp_path / "x.safetensors").read_bytes() == save(contiguous, {"format": 'p"\n\1é'})
    for name, tensor in load_file(tmp_path / "x.safetensors").items():
        assert torch.equal(tensor, tensors[name])


def test_writing_packs_4_bit_numbers_in_pairs(tmp_path):
    packed = torch.arange(6, dtype=torch.uint8).view(3, 2).view(torch.float4_e2m1fn_x2)
    save_safetensors(tmp_path / "x.safetensors", {"t": packed})
    file = SafetensorsFile(tmp_path / "x.safetensors")
    assert file.info("t").shape == (3, 4)
    assert torch.equal(file.tensor("t").view(torch.uint8), packed.view(torch.uint8))


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "x.safetensors"
    save_safetensors(path, {"a": torch.zeros(2)})
    before = path.read_bytes()
    for bad in ({"__metadata__": torch.zeros(1)}, {"a": torch.zeros(1, dtype=torch.complex128)}):
        with pytest.raises(SafetensorsError, match="cannot be saved"):
            save_safetensors(path, bad)
    with pytest.raises(NotImplementedError):  # a tensor without data fails while being written
        save_safetensors(path, {"a": torch.zeros(2, device="meta")})
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["x.safetensors"]


def test_tensors_share_the_mapping_and_never_the_file(tmp_path):
    path = written(tmp_path, file_bytes(json.dumps(a_with()).encode().ljust(64)))
    file = SafetensorsFile(path)
    one, other = file.tensor("a"), file.tensor("a")
    assert one.data_ptr() == other.data_ptr()
    one[0] = 42.0
    assert other[0] == 42.0
    assert path.read_bytes()[-8:] == b"\1\2\3\4\5\6\7\10"
    with pytest.raises(TypeError):
        file.raw("a")[0] = 1


def test_unaligned_data_is_copied(tmp_path):
    text = json.dumps(a_with()).encode()
    text = text.ljust(len(text) + 4 - len(text) % 4 + 1)
    file = SafetensorsFile(written(tmp_path, file_bytes(text, struct.pack("<2f", 1.5, -2.0))))
    tensor = file.tensor("a")
    assert tensor.tolist() == [1.5, -2.0]
    assert tensor.data_ptr() % 4 == 0


def mappings_of(path):
    with open("/proc/self/maps") as maps:
        return sum(str(path) in line for line in maps)


def handles_of(path):
    links = (f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd"))
    return sum(os.path.realpath(link) == str(path) for link in links)


needs_proc = pytest.mark.skipif(not os.path.exists("/proc/self/maps"), reason="reads /proc")


@needs_proc
def test_tensors_outlive_close_and_take_the_mapping_with_them(tmp_path):
    path = written(tmp_path, file_bytes(a_with()))
    with SafetensorsFile(path) as file:
        tensor, raw = file.tensor("a"), file.raw("a")
    assert bytes(raw) == b"\1\2\3\4\5\6\7\10"
    assert tensor.view(torch.uint8).tolist() == [1, 2, 3, 4, 5, 6, 7, 8]
    assert mappings_of(path) == 1
    for read in (file.tensor, file.raw):
        with pytest.raises(SafetensorsError, match="is closed"):
            read("a")
    del tensor, raw
    gc.collect()
    assert mappings_of(path) == handles_of(path) == 0


@needs_proc
@pytest.mark.parametrize("header", [b"{", a_with(dtype="F31"), a_with(shape=[1]), b"\xff"])
def test_a_damaged_file_leaves_no_mapping_and_no_handle(header, tmp_path):
    path = written(tmp_path, file_bytes(header))
    with pytest.raises(SafetensorsError) as caught:
        SafetensorsFile(path)
    assert mappings_of(path) == handles_of(path) == 0
    assert caught.value.__traceback__ is not None  # its frames hold the mapping, already closed


def test_an_unknown_name_is_our_error(tmp_path):
    file = SafetensorsFile(written(tmp_path, file_bytes(a_with())))
    with pytest.raises(SafetensorsError, match="no tensor 'b'"):
        file.tensor("b")


def test_parsing_imports_no_torch():
    code = (
        "import sys; from tinyvllm_lab.model.safetensors import open_checkpoint;"
        f"c = open_checkpoint({str(assets_dir() / 'models' / 'tiny')!r});"
        "assert len(c) == 74 and len(c.raw('model.norm.weight')) == 512;"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_read_header_works_on_bytes():
    header = read_header(file_bytes(a_with()), "here")
    assert header.tensors["a"].num_bytes == 8
    assert header.data_start == 8 + len(json.dumps(a_with()))


def test_shipped_model_equals_the_librarys_reading():
    folder = assets_dir() / "models" / "tiny"
    with open_checkpoint(folder) as checkpoint:
        theirs = load_file(folder / "model.safetensors")
        assert set(checkpoint) == set(theirs)
        assert all(torch.equal(checkpoint[name], theirs[name]) for name in theirs)
        assert checkpoint.num_bytes == 2 * 6_820_096
