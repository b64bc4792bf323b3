"""Every array a kernel may touch, by name: its arguments, `__shared__` arrays, global variables."""

import ctypes
import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tinyvllm_lab.kernels.arguments import Argument
from tinyvllm_lab.kernels.cpu.build import Build
from tinyvllm_lab.kernels.cpu.lines import load_address, mapped_ranges

SPACES = ("global", "shared", "module")  # the order of `enum class Space` in runtime/shadow.h


@dataclass(frozen=True)
class Array:
    """A named piece of memory.

    Attributes:
        name: of the parameter (several joined by "/" when they overlap) or variable.
        begin: first address.
        end: one past the last.
        space: "global" (arguments, `__device__` variables), "shared", or "module" (constants).
        writable: whether the kernel may write to it.
    """

    name: str
    begin: int
    end: int
    space: str
    writable: bool = True


@dataclass(frozen=True)
class Span:
    """Memory of one or several overlapping arguments."""

    names: str
    begin: int
    end: int
    writable: bool


def argument_spans(arguments: Sequence[Argument]) -> list[Span]:
    """The arguments' memory, overlapping ones (an update in place) merged into one."""
    spans: list[Span] = []
    pointers = [a for a in arguments if a.parameter.pointer and a.nbytes]
    for a in sorted(pointers, key=lambda a: int(a.value)):
        begin, end = int(a.value), int(a.value) + a.nbytes
        name, writable = a.parameter.name, a.parameter.writable
        if spans and begin < spans[-1].end:
            last = spans.pop()
            name, begin, end = f"{last.names}/{name}", last.begin, max(last.end, end)
            writable = writable or last.writable
        spans.append(Span(name, begin, end, writable))
    return spans


@dataclass(frozen=True)
class _Symbol:
    owner: str  # the function a static variable belongs to; "" at file scope
    name: str
    value: int
    size: int
    kind: str  # "TLS" or "OBJECT"


class Symbols:
    """The variables in a built file, read with binutils' nm."""

    def __init__(self, build: Build) -> None:
        self._build = build
        command = ["nm", "-C", "-f", "sysv", "--defined-only", str(build.library)]
        result = subprocess.run(command, capture_output=True, text=True, check=True)
        self._all = [s for line in result.stdout.splitlines() if (s := _parse_symbol(line))]

    def shared_arrays(self, library: ctypes.CDLL, kernel: str, dynamic_bytes: int) -> list[Array]:
        """`__shared__` arrays of one kernel (on the calling OS thread), the dynamic ones last."""
        library.simt_anchor.restype = ctypes.c_void_p
        anchor = next(s.value for s in self._all if s.name == "simt_tls_anchor")
        base = library.simt_anchor() - anchor
        dynamic = [name for name, _ in self._build.declarations.dynamic_shared]
        other_kernels = {k.name for k in self._build.declarations.kernels} - {kernel}
        static = [
            Array(s.name, base + s.value, base + s.value + s.size, "shared")
            for s in self._all
            if s.kind == "TLS" and s.size and s.owner not in other_kernels
            if (s.owner or s.name not in dynamic) and s.name != "simt_tls_anchor"
        ]
        return static + [_dynamic_array(library, name, dynamic_bytes) for name in dynamic]

    def variables(self) -> list[Array]:
        """`__device__` and `__constant__` variables, then the rest of the file: constants."""
        base = load_address(self._build.library)
        pieces = mapped_ranges(self._build.library)
        named = [
            Array(
                s.name,
                base + s.value,
                base + s.value + s.size,
                "global",
                _writable(s, pieces, base),
            )
            for s in self._all
            if s.kind == "OBJECT" and s.size and not re.search(r"^simt|^_|\.|guard", s.name)
        ]
        return named + [Array("constants", begin, end, "module", False) for begin, end, _ in pieces]


def _dynamic_array(library: ctypes.CDLL, name: str, nbytes: int) -> Array:
    address_of = getattr(library, f"simt_dynamic_{name}")
    address_of.restype = ctypes.c_void_p
    begin = address_of()
    return Array(name, begin, begin + nbytes, "shared")


def _writable(symbol: _Symbol, pieces: list[tuple[int, int, bool]], base: int) -> bool:
    address = base + symbol.value
    return any(begin <= address < end and writable for begin, end, writable in pieces)


def _parse_symbol(line: str) -> _Symbol | None:
    fields = [field.strip() for field in line.split("|")]
    if len(fields) < 7 or fields[3] not in ("TLS", "OBJECT") or not fields[4]:
        return None
    owner, _, name = fields[0].rpartition("::")
    owner = re.sub(r"\(.*", "", owner)
    return _Symbol(owner, name, int(fields[1], 16), int(fields[4], 16), fields[3])


def code_range(library: Path) -> tuple[int, int]:
    """First and one past the last address of the built file in this process."""
    pieces = mapped_ranges(library)
    return min(begin for begin, _, _ in pieces), max(end for _, end, _ in pieces)
