"""Launch a built file under the checker, in a forked child if the kernel is not to be trusted."""

import ctypes
import functools
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from tinyvllm_lab.errors import KernelError
from tinyvllm_lab.kernels.arguments import Argument, Geometry
from tinyvllm_lab.kernels.cpu.arena import Arena
from tinyvllm_lab.kernels.cpu.arrays import SPACES, Array, Symbols, argument_spans
from tinyvllm_lab.kernels.cpu.build import Build, load_runtime
from tinyvllm_lab.kernels.cpu.launch import check_cpu_array, kernel_info, load_library, pack
from tinyvllm_lab.kernels.cpu.lines import LineTable, mapping_of
from tinyvllm_lab.kernels.cpu.reports import Context, raise_findings, read_reports
from tinyvllm_lab.kernels.cpu.structs import (
    EVENT_BYTES,
    CheckRequest,
    Region,
    Report,
    ReportLog,
    launch_request,
)
from tinyvllm_lab.kernels.findings import Finding
from tinyvllm_lab.kernels.signatures import Signature

_MAX_REPORTS = 64


@dataclass(frozen=True)
class CheckOptions:
    """How to run a checked launch.

    Attributes:
        isolate: in a forked child, so that no crash ends this process.
        time_limit: seconds until a kernel counts as endless.
        races: look for races and uninitialised reads, not for bounds alone.
        max_events: keep up to this many memory accesses, barriers, ... for the x-ray.
        blocks: first and one past the last block (linear index) whose events are kept.
    """

    isolate: bool = True
    time_limit: float = 10.0
    races: bool = True
    max_events: int = 0
    blocks: tuple[int, int] = (0, 2**63)


@dataclass(frozen=True)
class CheckedRun:
    """What a checked launch gave.

    Attributes:
        findings: the bugs, in the order they showed.
        completed: whether the kernel ran to its end; else the arrays were left as they were.
        num_accesses: loads, stores and atomics on arrays.
        seconds: wall time of the launch.
        events: the raw event log (24-byte records), empty unless asked for.
        events_dropped: how many more there were than `max_events`.
        context: names and lines to read the events with.
    """

    findings: list[Finding]
    completed: bool
    num_accesses: int
    seconds: float
    events: bytes
    events_dropped: int
    context: Context


class CheckedLauncher:
    """Runs one built file under the checker and raises what it finds."""

    backend = "cpu"

    def __init__(self, build: Build, options: CheckOptions = CheckOptions()) -> None:
        self.build, self.options = build, options
        self._library, self._runtime = load_library(build), load_runtime()
        self._symbols, self._lines = Symbols(build, self._library), LineTable(build.library)
        self._mapping = mapping_of(build.library)

    def check_device(self, where: str, array: Any) -> None:
        """Raise `KernelError` unless the array lies in the CPU's memory."""
        check_cpu_array(where, array)

    def launch(
        self, signature: Signature, arguments: list[Argument], launch: Geometry, stream: Any
    ) -> None:
        """Run all blocks, one after the other.

        Raises:
            KernelError: with one paragraph for each finding.
        """
        raise_findings(self.run(signature, arguments, launch, self.options).findings)

    def run(
        self,
        signature: Signature,
        arguments: Sequence[Argument],
        launch: Geometry,
        options: CheckOptions,
    ) -> CheckedRun:
        """Run all blocks and tell what was found."""
        spans = argument_spans(arguments)
        log_bytes = ctypes.sizeof(ReportLog) + _MAX_REPORTS * ctypes.sizeof(Report)
        plain = [log_bytes, ctypes.sizeof(CheckRequest), options.max_events * EVENT_BYTES]
        with Arena(self._runtime, spans, plain) as arena:
            moved = [
                replace(a, value=arena.moved(int(a.value))) if a.parameter.pointer else a
                for a in arguments
            ]
            arrays = [
                Array(s.names, copy, copy + s.end - s.begin, "global", s.writable)
                for s, copy in zip(spans, arena.copies, strict=True)
            ]
            arrays += self._symbols.shared_arrays(signature.name, launch.shared)
            arrays += self._symbols.variables
            return self._run(signature, moved, launch, options, arrays, arena)

    def _run(
        self,
        signature: Signature,
        arguments: Sequence[Argument],
        launch: Geometry,
        options: CheckOptions,
        arrays: list[Array],
        arena: Arena,
    ) -> CheckedRun:
        log, check = _empty_log(arena), self._check_request(arrays, options, arena)
        start = time.perf_counter()
        completed = self._start(signature, arguments, launch, log, check, options.isolate)
        seconds = time.perf_counter() - start
        if completed:
            arena.write_back()
        where = self._lines, self._mapping.begin
        context = Context(signature.name, launch, *where, arrays, options.time_limit)
        findings = read_reports(log.entries(), context)
        events = ctypes.string_at(arena.plain[2], check.event_count * EVENT_BYTES)
        counts = check.num_accesses, seconds
        return CheckedRun(findings, completed, *counts, events, check.events_dropped, context)

    def _start(
        self,
        signature: Signature,
        arguments: Sequence[Argument],
        launch: Geometry,
        log: ReportLog,
        check: CheckRequest,
        isolate: bool,
    ) -> bool:
        """Run the kernel; whether it came to its end."""
        params, values = pack(list(arguments))
        info = kernel_info(self._library, signature.name)
        request = launch_request(info, params, launch.grid, launch.block, 1, log)
        code = self._runtime.simt_launch_checked(
            ctypes.byref(request), ctypes.byref(check), ctypes.c_int(isolate)
        )
        del values  # lived until here
        if code == 2:
            raise KernelError("No child process can be started for the checked launch.")
        return bool(code == 0)

    def _check_request(
        self, arrays: list[Array], options: CheckOptions, arena: Arena
    ) -> CheckRequest:
        rows = [Region(a.begin, a.end, SPACES.index(a.space), a.writable) for a in arrays]
        regions = (Region * len(rows))(*rows)
        check = arena.struct(1, CheckRequest)
        check.regions = regions
        check.num_regions, check.check_races = len(arrays), options.races
        check.code_begin, check.code_end = self._mapping.begin, self._mapping.end
        check.time_limit_s = options.time_limit
        check.events = arena.plain[2] if options.max_events else None
        check.event_capacity = options.max_events
        check.first_logged_block, check.end_logged_block = options.blocks
        return check


@functools.cache
def checked_launcher(build: Build) -> CheckedLauncher:
    """The launcher of a checked build, loaded once in a process."""
    return CheckedLauncher(build)


def _empty_log(arena: Arena) -> ReportLog:
    log = arena.struct(0, ReportLog)
    log.capacity, log.count = _MAX_REPORTS, 0
    address = arena.plain[0] + ctypes.sizeof(ReportLog)
    log.reports = ctypes.cast(address, ctypes.POINTER(Report))
    return log
