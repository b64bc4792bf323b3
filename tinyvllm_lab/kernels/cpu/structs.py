"""The C structs that Python and the runtime share (runtime/report.h, launch.h, check.h)."""

import ctypes
from typing import Any


class KernelInfo(ctypes.Structure):
    """Mirrors `simt::KernelInfo`."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("call", ctypes.c_void_p),
        ("num_params", ctypes.c_int),
        ("param_sizes", ctypes.POINTER(ctypes.c_int)),
    )


class Report(ctypes.Structure):
    """Mirrors `simt::Report`: one thing that went wrong, in numbers."""

    _fields_ = (
        ("kind", ctypes.c_int32),
        ("access", ctypes.c_int32),
        ("other_access", ctypes.c_int32),
        ("region", ctypes.c_int32),
        ("size", ctypes.c_int32),
        ("count", ctypes.c_int32),
        ("thread", ctypes.c_int32),
        ("other_thread", ctypes.c_int32),
        ("block", ctypes.c_uint64),
        ("other_block", ctypes.c_uint64),
        ("address", ctypes.c_uint64),
        ("pc", ctypes.c_uint64),
        ("other_pc", ctypes.c_uint64),
        ("value", ctypes.c_int64),
        ("text", ctypes.c_char * 160),
    )


class ReportLog(ctypes.Structure):
    """Mirrors `simt::ReportLog`."""

    _fields_ = (
        ("capacity", ctypes.c_int32),
        ("count", ctypes.c_int32),
        ("reports", ctypes.POINTER(Report)),
    )

    @classmethod
    def with_capacity(cls, capacity: int) -> "ReportLog":
        """An empty log."""
        return cls(capacity, 0, (Report * capacity)())

    def entries(self) -> list[Report]:
        """The reports made so far."""
        return [self.reports[i] for i in range(self.count)]


class LaunchRequest(ctypes.Structure):
    """Mirrors `simt::LaunchRequest`."""

    _fields_ = (
        ("kernel", ctypes.POINTER(KernelInfo)),
        ("params", ctypes.POINTER(ctypes.c_void_p)),
        ("grid", ctypes.c_uint32 * 3),
        ("block", ctypes.c_uint32 * 3),
        ("num_os_threads", ctypes.c_int32),
        ("log", ctypes.POINTER(ReportLog)),
    )


def launch_request(
    info: KernelInfo, params: Any, grid: Any, block: Any, threads: int, log: ReportLog
) -> LaunchRequest:
    """Fill a `LaunchRequest`; the caller keeps `params` and `log` alive."""
    return LaunchRequest(
        ctypes.pointer(info),
        ctypes.cast(params, ctypes.POINTER(ctypes.c_void_p)),
        grid,
        block,
        threads,
        ctypes.pointer(log),
    )


class Region(ctypes.Structure):
    """Mirrors `simt::Region`: memory that a kernel may touch."""

    _fields_ = (
        ("begin", ctypes.c_uint64),
        ("end", ctypes.c_uint64),
        ("space", ctypes.c_int32),
        ("writable", ctypes.c_int32),
    )


class CheckRequest(ctypes.Structure):
    """Mirrors `simt::CheckRequest`."""

    _fields_ = (
        ("regions", ctypes.POINTER(Region)),
        ("num_regions", ctypes.c_int32),
        ("check_races", ctypes.c_int32),
        ("code_begin", ctypes.c_uint64),
        ("code_end", ctypes.c_uint64),
        ("time_limit_s", ctypes.c_double),
        ("events", ctypes.c_void_p),
        ("event_capacity", ctypes.c_uint64),
        ("event_count", ctypes.c_uint64),
        ("events_dropped", ctypes.c_uint64),
        ("num_accesses", ctypes.c_uint64),
        ("first_logged_block", ctypes.c_uint64),
        ("end_logged_block", ctypes.c_uint64),
    )


EVENT_BYTES = 24  # sizeof(simt::Event)
