"""Every array a kernel may touch, by name: its arguments, `__shared__` arrays, global variables."""

import ctypes
import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

from tinyvllm_lab.kernels.arguments import Argument
from tinyvllm_lab.kernels.cpu.build import Build
from tinyvllm_lab.kernels.cpu.lines import mapping_of

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
    offset: int  # in the file, or for "TLS" in each thread's copy of the variables
    size: int
    kind: str  # "TLS" or "OBJECT"


class Symbols:
    """The variables in a built and loaded file, read with binutils' nm."""

    def __init__(self, build: Build, library: ctypes.CDLL) -> None:
        self._build, self._library = build, library
        command = ["nm", "-C", "-f", "sysv", "--defined-only", str(build.library)]
        result = subprocess.run(command, capture_output=True, text=True, check=True)
        self._all = [s for line in result.stdout.splitlines() if (s := _parse_symbol(line))]
        (self._anchor,) = (s.offset for s in self._all if s.name == "simt_tls_anchor")
        library.simt_anchor.restype = ctypes.c_void_p
        self.variables = self._variables()

    def shared_arrays(self, kernel: str, dynamic_bytes: int) -> list[Array]:
        """`__shared__` arrays of one kernel, as they lie for the calling OS thread.

        Args:
            kernel: arrays of the file's other kernels are left out.
            dynamic_bytes: length of the `extern __shared__` arrays.
        """
        base = self._library.simt_anchor() - self._anchor
        dynamic = [name for name, _ in self._build.declarations.dynamic_shared]
        other_kernels = {k.name for k in self._build.declarations.kernels} - {kernel}
        static = [
            Array(s.name, base + s.offset, base + s.offset + s.size, "shared")
            for s in self._all
            if s.kind == "TLS" and s.owner not in other_kernels
            if s.name != "simt_tls_anchor" and (s.owner or s.name not in dynamic)
        ]
        return static + [self._dynamic_array(name, dynamic_bytes) for name in dynamic]

    def _dynamic_array(self, name: str, nbytes: int) -> Array:
        address_of = getattr(self._library, f"simt_dynamic_{name}")
        address_of.restype = ctypes.c_void_p
        begin = address_of()
        return Array(name, begin, begin + nbytes, "shared")

    def _variables(self) -> list[Array]:
        """`__device__` and `__constant__` variables, then the rest of the file: constants."""
        mapping = mapping_of(self._build.library)
        named = []
        for s in self._all:
            begin = mapping.begin + s.offset
            own = _COMPILERS_OWN.search(s.name) or s.owner.startswith("simt::")
            if s.kind == "OBJECT" and not own:
                may_write = mapping.writable(begin)
                named.append(Array(s.name, begin, begin + s.size, "global", may_write))
        rest = [Array("constants", begin, end, "module", False) for begin, end, _ in mapping.pieces]
        return named + rest


_COMPILERS_OWN = re.compile(r"^simt|^_|\.|^guard variable")


def _parse_symbol(line: str) -> _Symbol | None:
    fields = [field.strip() for field in line.split("|")]
    if len(fields) < 7 or fields[3] not in ("TLS", "OBJECT") or not fields[4]:
        return None
    owner, _, name = fields[0].rpartition("::")
    owner = re.sub(r"\(.*", "", owner)
    return _Symbol(owner, name, int(fields[1], 16), int(fields[4], 16), fields[3])
