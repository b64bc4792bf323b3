"""Metrics as pandas frames. pandas is imported when a frame is asked for."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

from tinyvllm_lab.engine.metrics_steps import StepColumns
from tinyvllm_lab.engine.metrics_types import RequestMetrics, RunMetrics

if TYPE_CHECKING:
    import pandas as pd

_DERIVED = (
    "queue_time", "ttft", "tpot", "e2e", "prefill_time", "decode_time", "inference_time",
)  # fmt: skip


def request_frame(run: RunMetrics) -> pd.DataFrame:
    """One row a request, indexed by its number; times in seconds, missing ones nan.

    Columns: the fields of `RequestMetrics` (`reason` by name), then `queue_time`, `ttft`, `tpot`,
    `e2e`, `prefill_time`, `decode_time`, `inference_time`.
    """
    import pandas as pd

    names = [f.name for f in fields(RequestMetrics)] + list(_DERIVED)
    rows = [[_cell(getattr(request, name)) for name in names] for request in run.requests]
    frame = pd.DataFrame(rows, columns=names)
    times = ["arrival", "admitted", "first_token", "last_token", "finish", *_DERIVED]
    return frame.astype(dict.fromkeys(times, "float64")).set_index("number")


def step_frame(run: RunMetrics) -> pd.DataFrame:
    """One row a step, indexed by its number.

    Columns: those of `StepColumns` and `duration_us`, then KV memory in token slots: `kv_reserved`,
    `kv_used`, `kv_internal`, `kv_external`, `kv_wasted`.
    """
    import pandas as pd

    steps, kv = run.steps, run.kv.columns
    columns = {f.name: getattr(steps, f.name) for f in fields(StepColumns)}
    columns["duration_us"] = steps.duration_us
    for name in ("reserved", "used", "internal", "external", "wasted"):
        columns[f"kv_{name}"] = getattr(kv, name)
    return pd.DataFrame(columns).set_index("number")


def _cell(value: Any) -> Any:
    return value.name.lower() if hasattr(value, "name") else value
