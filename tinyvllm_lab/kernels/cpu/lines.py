"""From an instruction's address to the source line that it came from."""

import functools
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tinyvllm_lab.kernels.cpu.build import INCLUDE_DIR


@dataclass(frozen=True)
class Line:
    """A line of a source file: its path, number (from 1), text, and the function it is in."""

    path: str
    number: int
    text: str
    function: str

    def __str__(self) -> str:
        return f"{Path(self.path).name}:{self.number}"


UNKNOWN = Line("?", 0, "", "?")


@dataclass(frozen=True)
class Mapping:
    """Where this process has mapped a shared object: each piece as begin, end, writable."""

    pieces: tuple[tuple[int, int, bool], ...]

    @property
    def begin(self) -> int:
        """The load address, which addresses in the file are counted from."""
        return min(begin for begin, _, _ in self.pieces)

    @property
    def end(self) -> int:
        """One past the last address."""
        return max(end for _, end, _ in self.pieces)

    def writable(self, address: int) -> bool:
        """Whether the program may write there."""
        return any(begin <= address < end and may for begin, end, may in self.pieces)


@functools.cache
def mapping_of(library: Path) -> Mapping:
    """The mapping of a shared object that is loaded (and, as all of ours, never unloaded)."""
    pieces = []
    for line in Path("/proc/self/maps").read_text(encoding="utf-8").splitlines():
        if line.endswith(str(library)):
            span, permissions = line.split()[:2]
            begin, end = (int(text, 16) for text in span.split("-"))
            pieces.append((begin, end, "w" in permissions))
    return Mapping(tuple(pieces))


class LineTable:
    """Source lines of one built file, looked up with binutils' addr2line (it comes with g++)."""

    def __init__(self, library: Path) -> None:
        self._library = library
        self._known: dict[int, tuple[Line, ...]] = {0: (UNKNOWN,)}

    def chain(self, offset: int) -> tuple[Line, ...]:
        """The line a return address belongs to, then the lines that (inlined) calls came from.

        Args:
            offset: the address minus the library's load address.
        """
        self.look_up([offset])
        return self._known[offset]

    def look_up(self, offsets: list[int]) -> None:
        """Find many at once: one addr2line for all."""
        new = sorted(set(offsets) - self._known.keys())
        if not new:
            return
        # A return address is the instruction after the call: one byte back is inside it.
        addresses = [hex(offset - 1) for offset in new]
        command = ["addr2line", "-a", "-i", "-f", "-C", "-e", str(self._library), *addresses]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        answers = result.stdout.split("0x")[1:]
        for offset, answer in zip(new, answers, strict=False):
            self._known[offset] = _parse_chain(answer.splitlines()[1:])
        for offset in new:
            self._known.setdefault(offset, (UNKNOWN,))


def _parse_chain(lines: list[str]) -> tuple[Line, ...]:
    frames = []
    for function, place in zip(lines[::2], lines[1::2], strict=False):
        path, _, number = place.partition(" (")[0].rpartition(":")
        if number.isdigit() and not _is_ours(path):
            frames.append(Line(path, int(number), _source_text(path, int(number)), function))
    return tuple(frames) or (UNKNOWN,)


def _is_ours(path: str) -> bool:
    """Whether a frame is in the headers that stand in for CUDA's, not in the kernel's code."""
    return path.startswith((str(INCLUDE_DIR), "/usr/include/")) or path.endswith("unit.cpp")


def _source_text(path: str, number: int) -> str:
    try:
        lines = Path(path).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    return lines[number - 1].strip() if number <= len(lines) else ""
