"""Lazy package attributes: a name is imported when it is first used, not with the package."""

import importlib
from collections.abc import Callable
from typing import Any


def lazy_attributes(package: str, names: dict[str, str]) -> tuple[Callable[[str], Any], list[str]]:
    """Make `__getattr__` and `__all__` of a package from a map of name -> module.

    Keeps `import tinyvllm_lab` light: no torch, no plotly, no widget until somebody asks for it.
    """

    def __getattr__(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(names[name]), name)

    return __getattr__, sorted(names)
