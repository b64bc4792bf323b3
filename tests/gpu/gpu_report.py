"""The report of `make gpu-check`: its fields, its file, its table."""

import json
import re
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from tinyvllm_lab.paths import assets_dir

VERSION = 1
NUMBER = (int, float)
MAYBE = (int, float, str, type(None))
PEAKS = {"source": str, "bandwidth": NUMBER, "flops": {"float32": NUMBER, "bfloat16": NUMBER}}
CLOCKS = dict.fromkeys(
    (
        "sm_clock_mhz",
        "memory_clock_mhz",
        "max_sm_clock_mhz",
        "max_memory_clock_mhz",
        "power_limit_w",
        "power_draw_w",
        "temperature_c",
    ),
    MAYBE,
)
PER_ROUTE = ("torch", "own kernels", "own kernels, CUDA graphs")
# Field -> its type, a dict of fields, or [what every item of a list is].
SCHEMA: dict[str, Any] = {
    "version": int,
    "date": str,
    "dry_run": bool,
    "problems": [str],
    "card": {
        "name": str,
        "capability": int,
        "multiprocessors": int,
        "memory_bytes": int,
        "l2_bytes": int,
        "driver": MAYBE,
        "cuda_driver_api": int,
    },
    "software": {
        "python": str,
        "torch": str,
        "torch_cuda": MAYBE,
        "pycuda": str,
        "compiler": str,
    },
    "clocks": {"before": CLOCKS, "after": CLOCKS},
    "peaks": {"used": PEAKS, "measured": PEAKS},
    "builds": [
        {
            "file": str,
            "target": str,
            "seconds": NUMBER,
            "kernels": int,
            "most_registers": int,
            "spilled_bytes": int,
        }
    ],
    "suites": [{"file": str, "passed": int, "failed": [str], "skipped": int, "seconds": NUMBER}],
    "empty_us": NUMBER,
    "kernels": [
        {
            "op": str,
            "version": str,
            "dtype": str,
            "sizes": dict,
            "error": NUMBER,
            "us": NUMBER,
            "samples": int,
            "late": int,
            "bytes": NUMBER,
            "flops": NUMBER,
            "floor_us": NUMBER,
            "torch": str,
            "torch_us": NUMBER,
        }
    ],
    "engine": {
        "tokens": {name: {"count": int, "as_torch": bool} for name in PER_ROUTE},
        "replays": dict.fromkeys(PER_ROUTE, int),
        "bf16_error": dict.fromkeys(PER_ROUTE, NUMBER),
        "left_bytes": int,
        "left_streams": int,
        "steps": [
            {
                "model": str,
                "dtype": str,
                "route": str,
                "batch": int,
                "decode_ms": NUMBER,
                "decode_of_torch": NUMBER,
                "prefill_ms": NUMBER,
            }
        ],
    },
}


def check_schema(value: Any, schema: Any = None, where: str = "report") -> None:
    """Raise `ValueError` that names the field which is missing, unknown or of another type."""
    schema = SCHEMA if schema is None else schema
    if isinstance(schema, dict):
        if not isinstance(value, dict) or set(value) != set(schema):
            raise ValueError(f"{where} has {value!r:.200}, not the fields {sorted(schema)}")
        for name, inner in schema.items():
            check_schema(value[name], inner, f"{where}.{name}")
    elif isinstance(schema, list):
        if not isinstance(value, list):
            raise ValueError(f"{where} is {value!r:.200}, not a list")
        for i, item in enumerate(value):
            check_schema(item, schema[0], f"{where}[{i}]")
    elif not isinstance(value, schema) or (isinstance(value, bool) and schema is not bool):
        raise ValueError(f"{where} is {value!r:.200}, not {schema}")


def default_path(card: str) -> Path:
    """`assets/measured/<card>.json`, where `<card>` is the driver's name in small letters."""
    slug = re.sub(r"[^a-z0-9]+", "-", card.lower()).strip("-")
    return assets_dir() / "measured" / f"{slug}.json"


def write(report: dict[str, Any], path: Path) -> None:
    """Check and write."""
    check_schema(report)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


def show(report: dict[str, Any]) -> None:
    """Print the tables, and the problems last."""
    console = Console(width=110)
    console.print(_kernel_table(report), _step_table(report))
    for suite in report["suites"]:
        failed = len(suite["failed"])
        console.print(
            f"{suite['file']}: {suite['passed']} passed, {failed} failed", highlight=False
        )
    console.print("\n".join(report["problems"]) or "Everything is equal.", markup=False)


def _kernel_table(report: dict[str, Any]) -> Table:
    card, peaks = report["card"]["name"], report["peaks"]["used"]["source"]
    table = Table(
        title=f"{card}; floor by {peaks}; an empty measurement: {report['empty_us']:.1f} us"
    )
    for name in ("kernel", "type", "sizes", "error", "us", "floor", "x floor", "torch", "torch us"):
        table.add_column(name, justify="right" if name in ("us", "floor", "x floor") else "left")
    for row in report["kernels"]:
        table.add_row(
            f"{row['op']} {row['version']}",
            row["dtype"],
            " ".join(map(str, row["sizes"].values())),
            f"{row['error']:.2f}",
            f"{row['us']:.1f}",
            f"{row['floor_us']:.1f}",
            f"{row['us'] / row['floor_us']:.1f}",
            row["torch"],
            f"{row['torch_us']:.1f}",
        )
    return table


def _step_table(report: dict[str, Any]) -> Table:
    table = Table(title="A step, wall time")
    for name in ("model", "type", "route", "batch", "decode ms", "of torch's", "prefill ms"):
        table.add_column(name)
    for row in report["engine"]["steps"]:
        share, prefill = f"{row['decode_of_torch']:.2f}", f"{row['prefill_ms']:.3f}"
        step = (str(row["batch"]), f"{row['decode_ms']:.3f}", share, prefill)
        table.add_row(row["model"], row["dtype"], row["route"], *step)
    return table
