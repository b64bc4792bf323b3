"""From an instruction's address to the source line that it came from."""

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


def load_address(library: Path) -> int:
    """Where this process has mapped the start of a shared object (0: it has not)."""
    mapped = [line for line in _maps() if line.endswith(str(library))]
    return min((int(line.split("-")[0], 16) for line in mapped), default=0)


def mapped_ranges(library: Path) -> list[tuple[int, int, bool]]:
    """Each mapped piece of a shared object: begin, end, writable."""
    found = []
    for line in _maps():
        if line.endswith(str(library)):
            span, permissions = line.split()[:2]
            begin, end = (int(text, 16) for text in span.split("-"))
            found.append((begin, end, "w" in permissions))
    return found


def _maps() -> list[str]:
    return Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()


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
