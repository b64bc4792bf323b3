"""Signatures are read right, and a call that does not fit one is refused with a clear sentence."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tinyvllm_lab.errors import KernelError
from tinyvllm_lab.kernels.arguments import bind, geometry
from tinyvllm_lab.kernels.cpu.arrays import argument_spans
from tinyvllm_lab.kernels.cpu.launch import check_cpu_array
from tinyvllm_lab.kernels.signatures import Declarations, Parameter, parse_declarations

SCALARS = {"int": "int32", "float": "float32", "unsigned long long": "uint64", "bool": "bool"}
POINTED = {**SCALARS, "__nv_bfloat16": "bfloat16", "__half": "float16", "unsigned char": "uint8"}
names = st.from_regex(r"[a-z][a-z0-9_]{0,8}x", fullmatch=True)


@st.composite
def parameters(draw):
    """A parameter, and one of the many ways to write it."""
    name = draw(names)
    if draw(st.booleans()):
        c_type = draw(st.sampled_from(sorted(SCALARS)))
        const = draw(st.sampled_from(["", "const "]))
        return Parameter(name, SCALARS[c_type]), f"{const}{c_type} {name}"
    c_type = draw(st.sampled_from(sorted(POINTED)))
    const = draw(st.booleans())
    before = draw(st.booleans())
    restrict = draw(st.sampled_from(["", " __restrict__", " const", " const __restrict__"]))
    star = draw(st.sampled_from(["*", " *", "* ", "\n*\t"]))
    qualified = f"const {c_type}" if before else f"{c_type} const"
    text = f"{qualified if const else c_type}{star}{restrict} {name}"
    nbytes = {"bool": 1, "uint8": 1, "bfloat16": 2, "float16": 2, "uint64": 8}
    return Parameter(name, POINTED[c_type], True, not const, nbytes.get(POINTED[c_type], 4)), text


BOUNDS = {"": 1024, "__simt_launch_bounds__(256, 2) ": 256, "__simt_launch_bounds__(MOST) ": 96}


@given(st.lists(parameters(), max_size=6), st.sampled_from(sorted(BOUNDS)), st.integers(0, 2))
def test_a_declaration_is_read_as_it_was_meant(written, bounds, place):
    expected = tuple(parameter for parameter, _ in written)
    inside = ", ".join(text for _, text in written)
    words = ["__simt_global__ ", "void ", f"kernel({inside}) {{ int a; }}"]
    words.insert(place, bounds)
    source = f'#line 3 "x.cu"\nextern "C" {"".join(words)}'
    constants = "constexpr int WARPS = 3, MOST = 96;"
    declared = parse_declarations(f"{constants}\n{source}\nvoid other(double z);")
    assert [k.name for k in declared.kernels] == ["kernel"]
    assert declared.kernels[0].parameters == expected
    assert declared.kernels[0].max_threads == BOUNDS[bounds]
    assert Declarations.from_json(declared.to_json()) == declared


def test_dynamic_shared_arrays_are_found():
    text = "{ extern __simt_shared__ __attribute__((aligned(16))) unsigned char raw[]; }"
    assert parse_declarations(text).dynamic_shared == (("raw", "unsigned char"),)
    assert parse_declarations("__simt_shared__ float s[32];").dynamic_shared == ()


@pytest.mark.parametrize("text", ["Config c", "float** x", "__half h", "void* p, float4 v"])
def test_types_that_cannot_be_passed_are_named(text):
    with pytest.raises(KernelError, match=r"Kernel 'k': parameter .* cannot pass"):
        parse_declarations(f'extern "C" __simt_global__ void k({text})')


@pytest.mark.parametrize("before", ["", "static ", "template <int N>\n"])
def test_kernels_without_c_names_are_refused(before):
    with pytest.raises(KernelError, match=r"'k' has a C\+\+ name.*\nExpected: extern \"C\""):
        parse_declarations(before + "__simt_global__ void k(int n) {}")
    assert parse_declarations('extern "C" {\n__simt_global__ void k(int n) {}\n}').kernels


def signature_of(parameters):
    (kernel,) = parse_declarations(f'extern "C" __simt_global__ void k({parameters})').kernels
    return kernel


SIGNATURE = signature_of(
    "float* out, const __nv_bfloat16* x, const float4* v, int n, float e,"
    " unsigned char flag, bool yes"
)


def good():
    out, x = torch.zeros(4), torch.zeros(8, dtype=torch.bfloat16)
    return [out, x, torch.zeros(16), 3, 1e-5, 255, True]


def bound(**changes):
    args = good()
    for name, value in changes.items():
        args[[p.name for p in SIGNATURE.parameters].index(name)] = value
    return bind(SIGNATURE, args, check_cpu_array)


def test_good_arguments_are_bound():
    args = good()
    found = bind(SIGNATURE, args, check_cpu_array)
    assert [a.value for a in found[:3]] == [t.data_ptr() for t in args[:3]]
    assert [a.nbytes for a in found] == [16, 16, 64, 0, 0, 0, 0]
    assert [a.value for a in found[3:]] == [3, 1e-5, 255, 1]
    assert bound(out=None)[0].value == 0
    assert bound(n=np.int64(7), e=np.float64(2), yes=0)[3].value == 7
    assert bound(e=3)[4].value == 3.0
    assert bound(out=np.zeros((2, 2), np.float32))[0].nbytes == 16


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            {"out": torch.zeros(4, dtype=torch.float64)},
            "'out': dtype is float64.\nExpected: float32",
        ),
        ({"x": torch.zeros(4)}, "'x': dtype is float32.\nExpected: bfloat16"),
        ({"out": torch.zeros(4, 4).T[:2]}, r"'out': the array is not contiguous \(shape \(2, 4\)"),
        ({"out": np.zeros((4, 4), np.float32)[:, :2]}, "'out': the array is not contiguous"),
        ({"out": 17}, "'out': got int.\nExpected: a tensor or array of float32, or None"),
        ({"out": [1.0]}, "'out': got list"),
        ({"v": torch.zeros(17)[1:]}, r"'v': the address 0x\w+ is not aligned"),
        ({"n": 2.0}, r"'n': got 2.0 \(float\).\nExpected: a whole number"),
        ({"n": 2**31}, "'n': 2147483648 does not fit.\nExpected: int32"),
        ({"n": torch.tensor(2)}, r"'n': got tensor\(2\)"),
        ({"n": "3"}, "'n': got '3'"),
        ({"e": torch.tensor(2.0)}, "'e': got tensor"),
        ({"e": None}, r"'e': got None \(NoneType\).\nExpected: a number"),
        ({"flag": 256}, "'flag': 256 does not fit"),
        ({"flag": -1}, "'flag': -1 does not fit"),
        ({"yes": 2}, "'yes': 2 does not fit"),
        ({"out": torch.zeros(4, device="meta")}, "'out': the array is not in the CPU's memory"),
    ],
)
def test_bad_arguments_are_refused(change, words):
    with pytest.raises(KernelError, match=rf"(?s)^k, argument {words}"):
        bound(**change)


def test_read_only_arrays_may_be_read_but_not_written():
    array = np.zeros(4, np.float32)
    array.flags.writeable = False
    with pytest.raises(KernelError, match="read-only"):
        bound(out=array)
    assert bound(v=array)[2].nbytes == 16


def test_a_wrong_count_shows_the_signature():
    with pytest.raises(KernelError, match=r"k got 1 arguments.\nExpected: 7: k\(float32\* out, c"):
        bind(SIGNATURE, [None], check_cpu_array)


def test_integers_do_not_care_for_signedness():
    kernel = signature_of("unsigned* x, unsigned char* y")
    bind(
        kernel,
        [torch.zeros(1, dtype=torch.int32), torch.zeros(1, dtype=torch.bool)],
        check_cpu_array,
    )


def test_geometry_is_filled_up():
    launch = geometry(5, (4, 2), 100)
    assert (launch.grid, launch.block) == ((5, 1, 1), (4, 2, 1))
    assert (launch.num_blocks, launch.threads_per_block, launch.shared) == (5, 8, 100)
    with pytest.raises(KernelError, match="shared=300000"):
        geometry(1, 1, 300_000)
    with pytest.raises(KernelError, match=r"block=\(1, 1, 1, 1\) is no size"):
        geometry(1, (1, 1, 1, 1), 0)


def test_overlapping_arguments_are_one_piece_of_memory():
    kernel = signature_of("float* out, const float* x, const float* w")
    both, w = torch.zeros(10), torch.zeros(4)
    spans = argument_spans(bind(kernel, [both[2:8], both[:6], w], check_cpu_array))
    by_name = {span.names: span for span in spans}
    merged = by_name["x/out"]
    assert merged.end - merged.begin == 32
    assert merged.writable
    assert not by_name["w"].writable
    apart = argument_spans(bind(kernel, [both[5:], both[:5], w], check_cpu_array))
    assert {span.names for span in apart} == {"out", "x", "w"}
