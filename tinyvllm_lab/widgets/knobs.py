"""Sliders from metadata: one control for each field of `EngineConfig` and of the workload."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any

import ipywidgets

from tinyvllm_lab.engine.config import FieldSpec, field_specs
from tinyvllm_lab.simulate.hardware import hardware_table
from tinyvllm_lab.simulate.models import model_names
from tinyvllm_lab.widgets.playground_settings import ENGINES, PlaygroundSettings
from tinyvllm_lab.widgets.workload_knobs import WorkloadKnobs

LABEL_WIDTH = "200px"
_LONGEST = 24  # letters that fit it

Turned = Callable[[str, Any], None]

GROUPS: dict[str, tuple[str, ...]] = {
    "Scheduler": (
        "max_num_seqs", "max_num_batched_tokens", "policy", "order", "enable_chunked_prefill",
        "long_prefill_token_threshold", "skip_blocked_head", "batching",
    ),
    "Memory": (
        "num_blocks", "block_size", "enable_prefix_caching", "allocator", "compaction",
        "preemption", "victim", "num_host_blocks", "reserve_full_isl", "watermark", "max_model_len",
        "use_kv_cache",
    ),
}  # fmt: skip
"""Which knobs stand together, in this order."""

_REACH = {"max_num_seqs": 64, "long_prefill_token_threshold": 512}
"""Where a slider ends, if the field allows far more than one wants to look at."""

_STEPS: dict[str, tuple[int, ...]] = {
    "max_num_batched_tokens": (16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192),
    "block_size": (1, 2, 4, 8, 16, 32, 64, 128),
    "num_blocks": (33, 65, 97, 129, 193, 257, 385, 513, 1025, 2049, 4097),
    "max_model_len": (256, 512, 1024, 1536, 2048, 4096),
    "num_host_blocks": (0, 16, 32, 64, 128, 256, 512, 1024),
}
"""Fields on a scale of doublings."""


def run_knobs(settings: PlaygroundSettings, turned: Turned) -> Iterator[ipywidgets.Widget]:
    """What runs, and on what; arguments as in `engine_knobs`."""
    choices: dict[str, tuple[Sequence[str], str]] = {
        "engine": (ENGINES, "Simulated time on a GPU, or the shipped model on this machine."),
        "hardware": ([h.name for h in hardware_table()], "The simulated accelerator."),
        "model": (model_names(), "The simulated model."),
    }
    for name, (options, help) in choices.items():
        value = getattr(settings, name)
        control = ipywidgets.Dropdown(options=options, value=value, description=name)
        yield _finish(control, name, help, True, turned)


def engine_knobs(group: str, values: Any, turned: Turned) -> Iterator[ipywidgets.Widget]:
    """The controls of one group.

    Args:
        group: a name in `GROUPS`.
        values: the config that they show first.
        turned: called with name and value when one is turned.
    """
    specs = {spec.name: spec for spec in field_specs()}
    for name in GROUPS[group]:
        control = _control(specs[name], getattr(values, name))
        yield _finish(control, name, specs[name].help, specs[name].live, turned)


def workload_knobs(values: WorkloadKnobs, turned: Turned) -> Iterator[ipywidgets.Widget]:
    """The controls of the workload."""
    for f in fields(values):
        control = _workload_control(f.name, f.metadata, getattr(values, f.name))
        yield _finish(control, f.name, f.metadata["help"], True, turned)


def _workload_control(name: str, limits: Mapping[str, Any], value: Any) -> ipywidgets.Widget:
    label = _label(name, limits["unit"])
    if "choices" in limits:
        return ipywidgets.Dropdown(options=limits["choices"], value=value, description=label)
    kind = ipywidgets.FloatSlider if isinstance(value, float) else ipywidgets.IntSlider
    return kind(
        value=value, min=limits["minimum"], max=limits["maximum"],
        step=0.5 if isinstance(value, float) else 1, description=label,
    )  # fmt: skip


def _control(spec: FieldSpec, value: Any) -> ipywidgets.Widget:
    label = _label(spec.name, spec.unit)
    if spec.choices is not None:
        return ipywidgets.Dropdown(options=spec.choices, value=value, description=label)
    if spec.type is bool:
        return ipywidgets.Checkbox(value=value, description=label, indent=False)
    if spec.name in _STEPS:
        options = sorted({*_STEPS[spec.name], value})
        return ipywidgets.SelectionSlider(options=options, value=value, description=label)
    assert spec.minimum is not None
    assert spec.maximum is not None
    if spec.type is float:
        return ipywidgets.FloatSlider(
            value=value, min=spec.minimum, max=spec.maximum, step=0.01, description=label
        )
    most = max(_REACH.get(spec.name, int(spec.maximum)), value)
    return ipywidgets.IntSlider(value=value, min=int(spec.minimum), max=most, description=label)


def _label(name: str, unit: str) -> str:
    """The name with its unit, if there is room for both."""
    return f"{name} ({unit})" if unit and len(name) + len(unit) < _LONGEST else name


def _finish(
    control: ipywidgets.Widget, name: str, help: str, live: bool, turned: Turned
) -> ipywidgets.Widget:
    """Tooltip, width and callback. Knobs that restart the run say so, and wait for the release."""
    control.tooltip = help if live else f"{help} (restarts the run)"
    control.style.description_width = LABEL_WIDTH
    control.layout.width = "auto"
    control.knob = name
    if not live and hasattr(control, "continuous_update"):
        control.continuous_update = False
    control.observe(lambda change: turned(name, change["new"]), names="value")
    return control
