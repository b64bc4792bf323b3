"""The recorded runs that come with the course: a first picture without waiting for one.

    Airport(recorded_run("eight_prompts"))

Each is a stored event log in `assets/runs`, as `assets/runs/make_runs.py` made it.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from tinyvllm_lab.engine.log import EventLog
from tinyvllm_lab.engine.storage import load
from tinyvllm_lab.errors import LogError
from tinyvllm_lab.paths import assets_dir


def recorded_runs() -> dict[str, str]:
    """What there is: name -> a line that says what the run shows."""
    return {name: _about(path) for name, path in _files().items()}


def recorded_run(name: str) -> EventLog:
    """The event log of a recorded run; `info["time"]` says whether it is measured or simulated.

    Args:
        name: one of `recorded_runs()`.

    Raises:
        LogError: there is no run of this name.
    """
    files = _files()
    if name not in files:
        raise LogError(f"No recorded run is named {name!r}.", "one of " + ", ".join(files))
    return load(files[name])


@cache
def _about(path: Path) -> str:
    return str(load(path).info["about"])


def _files() -> dict[str, Path]:
    return {path.stem: path for path in sorted((assets_dir() / "runs").glob("*.tvt"))}
