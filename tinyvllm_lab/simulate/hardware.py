"""What the simulator knows of GPUs: a table with sources, and a measurement of this machine.

The numbers of `assets/hardware.json` are datasheet peaks. How much of a peak real kernels reach is
no datasheet's business: those fractions are assumptions, they stand in `Efficiency`, and a
calibration against real steps may replace them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import date
from functools import cache
from time import perf_counter
from typing import Any

from tinyvllm_lab.errors import ConfigError
from tinyvllm_lab.paths import assets_dir

MEASURES = ("peak_flops", "memory_bytes", "bandwidth", "link_bandwidth")
"""The fields of `Hardware` that are numbers with a source."""


@dataclass(frozen=True, slots=True)
class Source:
    """Where a number comes from, and of which date it is."""

    document: str
    date: str
    url: str


@dataclass(frozen=True, slots=True)
class Efficiency:
    """Fractions of the peaks that kernels reach, between 0 and 1. Assumptions, not measurements.

    Attributes:
        gemm: of peak FLOP/s, in the linear layers. Large square GEMMs reach 0.8 to 0.95; the
            narrower ones of a transformer layer, with the element-wise work between them, reach
            0.4 to 0.7 in published prefill rates.
        attention: of peak FLOP/s, in attention; softmax keeps the tensor cores waiting.
        bandwidth: of memory bandwidth. Copy benchmarks reach 0.8 to 0.9; published single-request
            decode rates come out at 0.6 to 0.8 of bandwidth.
        link: of the PCIe bandwidth, for copies of many separate blocks.

    Raises:
        ConfigError: a fraction is not in (0, 1].
    """

    gemm: float = 0.6
    attention: float = 0.4
    bandwidth: float = 0.75
    link: float = 0.8

    def __post_init__(self) -> None:
        for name in ("gemm", "attention", "bandwidth", "link"):
            if not 0.0 < getattr(self, name) <= 1.0:
                raise ConfigError(
                    f"Efficiency.{name} is {getattr(self, name)!r}.", "a fraction in (0, 1]"
                )


@dataclass(frozen=True)
class Hardware:
    """One accelerator.

    Attributes:
        peak_flops: dense FLOP/s by dtype name; "float32" is the rate outside the tensor cores.
        memory_bytes: device memory.
        bandwidth: device memory bandwidth in bytes/s.
        link_bandwidth: host link in bytes/s, one direction.
        sources: where each of the four comes from, by its name.
        efficiency: fractions of the peaks that the cost model counts with.
    """

    key: str
    name: str
    peak_flops: Mapping[str, float]
    memory_bytes: int
    bandwidth: float
    link_bandwidth: float
    sources: Mapping[str, Source] = field(default_factory=dict)
    efficiency: Efficiency = field(default_factory=Efficiency)
    note: str = ""

    def flops(self, dtype: str) -> float:
        """Peak FLOP/s of a dtype.

        Raises:
            ConfigError: the table has no number for it.
        """
        if dtype not in self.peak_flops:
            raise ConfigError(
                f"No peak FLOP/s of {self.name} for {dtype!r} is known.",
                expected="one of " + ", ".join(self.peak_flops),
            )
        return self.peak_flops[dtype]

    def ridge_point(self, dtype: str = "bfloat16") -> float:
        """FLOPs per byte at which peak compute and peak bandwidth take equally long."""
        return self.flops(dtype) / self.bandwidth


def find_hardware(name: str | Hardware) -> Hardware:
    """Look up an accelerator by key or name, in any case ("A10G", "rtx 4090", "this machine").

    The beginning of a key is enough where it is unique ("h100").

    Raises:
        ConfigError: there is none of that name, or more than one.
    """
    if isinstance(name, Hardware):
        return name
    key = name.strip().lower().replace(" ", "-").replace("_", "-")
    if key == "this-machine":
        return this_machine()
    found = [row for row in hardware_table() if _matches(key, row)]
    if len(found) == 1:
        return found[0]
    raise ConfigError(
        f"Hardware {name!r} is ambiguous." if found else f"No hardware {name!r} is known.",
        expected="this-machine, or one of " + ", ".join(h.key for h in hardware_table()),
        fix="Pass a Hardware with numbers of your own.",
    )


def _matches(key: str, row: Hardware) -> bool:
    return row.key.startswith(key) or row.name.lower().replace(" ", "-") == key


@cache
def hardware_table() -> tuple[Hardware, ...]:
    """All rows of `assets/hardware.json`."""
    text = (assets_dir() / "hardware.json").read_text(encoding="utf-8")
    return tuple(_from_json(row) for row in json.loads(text)["hardware"])


def _from_json(row: dict[str, Any]) -> Hardware:
    sources = {name: Source(**source) for name, source in row["sources"].items()}
    return Hardware(**{**row, "sources": sources})


@cache
def this_machine(device: str = "cpu") -> Hardware:
    """Measure this machine: GEMM FLOP/s and copy bandwidth, in about 0.3 s after torch is loaded.

    The best of several runs counts, with as many threads as torch uses now. What was measured was
    also reached, so its efficiencies are 1. Measured once per process and device.

    Args:
        device: a torch device, "cpu" or "cuda".
    """
    import torch

    peaks = {
        name: _gemm_flops(torch, device, getattr(torch, name)) for name in ("float32", "bfloat16")
    }
    copy, memory_bytes = _copy_bandwidth(torch, device), _memory_bytes(torch, device)
    source = Source(
        f"measured here with torch {torch.__version__} on {device}", date.today().isoformat(), ""
    )
    return Hardware(
        key="this-machine",
        name=f"this machine ({device}, {torch.get_num_threads()} threads)",
        peak_flops=peaks,
        memory_bytes=memory_bytes,
        bandwidth=copy,
        link_bandwidth=copy,
        sources=dict.fromkeys(
            ("peak_flops", "memory_bytes", "bandwidth", "link_bandwidth"), source
        ),
        efficiency=Efficiency(1.0, 1.0, 1.0, 1.0),
        note="Swapping on a CPU is a copy in the same memory, so the link is as fast as memory.",
    )


def _gemm_flops(torch: Any, device: str, dtype: Any) -> float:
    size = 4096 if device.startswith("cuda") else 512
    a = torch.ones(size, size, device=device, dtype=dtype)  # [size, size]
    out = torch.empty_like(a)
    with torch.no_grad():
        seconds = _best_time(lambda: torch.mm(a, a, out=out), _synchronize(torch, device))
    return 2 * size**3 / seconds


def _copy_bandwidth(torch: Any, device: str) -> float:
    """Bytes read plus bytes written per second; the arrays are larger than any cache."""
    source = torch.ones(1 << 24, device=device)  # [2**24] float32: 64 MiB
    target = torch.empty_like(source)
    seconds = _best_time(lambda: target.copy_(source), _synchronize(torch, device))
    return 2 * source.numel() * source.element_size() / seconds


def _synchronize(torch: Any, device: str) -> Callable[[], object]:
    return torch.cuda.synchronize if device.startswith("cuda") else lambda: None


def _best_time(
    work: Callable[[], object], wait: Callable[[], object], budget: float = 0.1
) -> float:
    work()
    wait()
    best, start = float("inf"), perf_counter()
    while perf_counter() - start < budget:
        begin = perf_counter()
        work()
        wait()
        best = min(best, perf_counter() - begin)
    return best


def _memory_bytes(torch: Any, device: str) -> int:
    if device.startswith("cuda"):
        return torch.cuda.get_device_properties(device).total_memory
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
