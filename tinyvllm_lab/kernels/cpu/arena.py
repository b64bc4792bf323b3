"""Memory for a checked launch: copies of the arguments, far apart, shared with a forked child."""

import ctypes
from collections.abc import Sequence
from types import TracebackType
from typing import Any

from tinyvllm_lab.errors import KernelError
from tinyvllm_lab.kernels.cpu.arrays import Span

_PAGE = 4096
_SMALLEST_GAP = 1 << 20


def _pages(nbytes: int) -> int:
    return -(-nbytes // _PAGE) * _PAGE


class Arena:
    """A mapping that holds one area for each span, and plain areas for the runtime's structs.

    Between two areas lies a gap as long as the area before it (at least 1 MiB), so that an index
    that runs past an array's end lands in no other array. Gaps cost address space, not memory.
    """

    def __init__(self, runtime: ctypes.CDLL, spans: Sequence[Span], plain: Sequence[int]) -> None:
        self._runtime, self._spans = runtime, spans
        sizes = [_pages(nbytes) for nbytes in plain]
        for span in spans:
            # The copy lies as its original does within a page, so that alignment stays what it is.
            used = _pages(span.end - span.begin + span.begin % _PAGE)
            sizes.append(used + max(_SMALLEST_GAP, used))
        self._nbytes = sum(sizes) + _SMALLEST_GAP
        runtime.simt_map_shared.restype = ctypes.c_void_p
        self._base = runtime.simt_map_shared(ctypes.c_size_t(self._nbytes))
        if not self._base:
            raise KernelError(f"No memory for a checked launch ({self._nbytes} bytes).")
        starts = [self._base + sum(sizes[:i]) for i in range(len(sizes))]
        self.plain = starts[: len(plain)]
        self.copies = [
            start + _SMALLEST_GAP // 2 + span.begin % _PAGE
            for start, span in zip(starts[len(plain) :], spans, strict=True)
        ]

    def __enter__(self) -> "Arena":
        for span, copy in zip(self._spans, self.copies, strict=True):
            ctypes.memmove(copy, span.begin, span.end - span.begin)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._runtime.simt_unmap_shared(ctypes.c_void_p(self._base), ctypes.c_size_t(self._nbytes))

    def write_back(self) -> None:
        """Copy what the kernel may have written to the arguments."""
        for span, copy in zip(self._spans, self.copies, strict=True):
            if span.writable:
                ctypes.memmove(span.begin, copy, span.end - span.begin)

    def moved(self, address: int) -> int:
        """Where the copy of an argument's byte is."""
        for span, copy in zip(self._spans, self.copies, strict=True):
            if span.begin <= address < span.end:
                return copy + address - span.begin
        return address

    def struct(self, index: int, kind: Any) -> Any:
        """A ctypes struct (or array) at the start of a plain area."""
        return kind.from_address(self.plain[index])
