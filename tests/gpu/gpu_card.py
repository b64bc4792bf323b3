"""The card, what it could do at most, and the software it is measured with."""

import platform
import re
import subprocess
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from gpu_timing import Stopwatch

from tinyvllm_lab.kernels.cuda.compiler import find_cuda_compiler
from tinyvllm_lab.simulate.hardware import Hardware, hardware_table

# The driver's name of a card -> its key in assets/hardware.json.
KEYS = {
    r"A10G": "a10g",
    r"\bL4\b": "l4",
    r"RTX 4090$": "rtx-4090",
    r"A100.SXM4.40GB": "a100-40gb",
    r"A100.SXM4.80GB": "a100-80gb",
    r"H100 80GB HBM3": "h100-sxm",
    r"H200$": "h200",
}
# What nvidia-smi is asked -> what the report calls it; clocks in MHz, power in watts.
QUESTIONS = {
    "clocks.current.sm": "sm_clock_mhz",
    "clocks.current.memory": "memory_clock_mhz",
    "clocks.max.sm": "max_sm_clock_mhz",
    "clocks.max.memory": "max_memory_clock_mhz",
    "power.limit": "power_limit_w",
    "power.draw": "power_draw_w",
    "temperature.gpu": "temperature_c",
}
DTYPES = {torch.float32: "float32", torch.bfloat16: "bfloat16"}


@dataclass(frozen=True)
class Peaks:
    """The roof: bytes/s, FLOP/s by dtype, and where the numbers come from."""

    source: str
    bandwidth: float
    flops: dict[str, float]

    def floor_us(self, num_bytes: float, flops: float, dtype: torch.dtype) -> float:
        """Microseconds that nothing on this card can beat: all bytes, or all operations."""
        seconds = max(num_bytes / self.bandwidth, flops / self.flops[DTYPES[dtype]])
        return 1e6 * seconds


def describe_card() -> dict[str, Any]:
    """Name, size and driver of the card that torch and PyCUDA use."""
    import pycuda.driver as driver

    from tinyvllm_lab.kernels.cuda.device import cuda_device

    device, attribute = driver.Device(cuda_device().index), driver.device_attribute
    return {
        "name": device.name(),
        "capability": cuda_device().capability,
        "multiprocessors": device.get_attribute(attribute.MULTIPROCESSOR_COUNT),
        "memory_bytes": device.total_memory(),
        "l2_bytes": device.get_attribute(attribute.L2_CACHE_SIZE),
        "driver": ask_nvidia_smi({"driver_version": "driver"})["driver"],
        "cuda_driver_api": driver.get_driver_version(),
    }


def describe_software() -> dict[str, Any]:
    """Versions of everything that has a part in the numbers."""
    import pycuda

    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "torch_cuda": torch.version.cuda,
        "pycuda": pycuda.VERSION_TEXT,
        "compiler": find_cuda_compiler().version,
    }


def clocks() -> dict[str, Any]:
    """Clocks, power and temperature at this moment; None where nvidia-smi does not say."""
    return ask_nvidia_smi(QUESTIONS)


def ask_nvidia_smi(questions: dict[str, str]) -> dict[str, Any]:
    """Question -> name, answered as name -> number or text."""
    command = ["nvidia-smi", f"--query-gpu={','.join(questions)}"]
    command += ["--format=csv,noheader,nounits", f"--id={_bus_id()}"]
    try:
        told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return dict.fromkeys(questions.values())
    answers = [_number(answer.strip()) for answer in told.splitlines()[0].split(",")]
    return dict(zip(questions.values(), answers, strict=True))


def _bus_id() -> str:
    import pycuda.driver as driver

    from tinyvllm_lab.kernels.cuda.device import cuda_device

    try:
        return driver.Device(cuda_device().index).pci_bus_id()
    except driver.Error:  # the fake driver has no bus
        return "0"


def _number(text: str) -> Any:
    if text.startswith("["):  # "[N/A]", "[Not Supported]"
        return None
    return float(text) if re.fullmatch(r"-?\d+(\.\d+)?", text) and "." in text else _whole(text)


def _whole(text: str) -> Any:
    return int(text) if text.isdigit() else text


def datasheet(name: str) -> Peaks | None:
    """The peaks of `assets/hardware.json`, if the card is one of its."""
    key = next((key for pattern, key in KEYS.items() if re.search(pattern, name)), None)
    if key is None:
        return None
    row: Hardware = next(row for row in hardware_table() if row.key == key)
    flops = {dtype: row.flops(dtype) for dtype in DTYPES.values()}
    return Peaks(f"assets/hardware.json, {row.name}", row.bandwidth, flops)


def measured_peaks(watch: Stopwatch, device: str, size: int) -> Peaks:
    """What a copy and square matrix products of `size` reach in this very run."""
    source = torch.empty(8 * size * size, dtype=torch.float32, device=device)
    target = torch.empty_like(source)
    copy_us = watch.time(lambda: target.copy_(source)).us
    flops = {
        name: 1e6 * 2 * size**3 / _gemm_us(watch, device, size, d) for d, name in DTYPES.items()
    }
    return Peaks("copy and torch.mm in this run", 1e6 * 2 * source.nbytes / copy_us, flops)


def _gemm_us(watch: Stopwatch, device: str, size: int, dtype: torch.dtype) -> float:
    a = torch.ones(size, size, dtype=dtype, device=device)
    return watch.time(partial(torch.mm, a, a, out=torch.empty_like(a))).us
