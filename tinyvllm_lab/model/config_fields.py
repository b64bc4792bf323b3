"""Typed access to the fields of a JSON file, with errors that name the file and the field."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tinyvllm_lab.errors import ModelError

_REQUIRED: Any = object()


def read_json_object(path: Path) -> dict[str, Any]:
    """Parse a JSON file whose top level is an object.

    Raises:
        ModelError: the file is missing, unreadable, no JSON, or holds something else.
    """
    try:
        value = json.loads(path.read_bytes().decode("utf-8"))
    except OSError as error:
        raise ModelError(
            f"{path} cannot be read: {error.strerror or error}.",
            expected="a folder in Hugging Face's layout",
            fix="Check the path; `tinyvllm-lab models` lists the models on this machine.",
        ) from None
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{path} is no valid JSON: {error}.") from None
    if not isinstance(value, dict):
        raise ModelError(f"{path} holds a JSON {type(value).__name__}.", expected="an object")
    return value


class JsonFields:
    """One JSON object. Each method returns a field of one type.

    A field that is absent or null has the default; without a default it is required.
    """

    def __init__(self, values: Mapping[str, Any], where: str) -> None:
        self.values, self.where = values, where

    def error(self, name: str, expected: str) -> ModelError:
        """The error to raise about a field."""
        value = self.values.get(name)
        what = f"{name} is {value!r}" if name in self.values else f"{name} is missing"
        return ModelError(f"{self.where}: {what}.", expected=expected)

    def get(self, name: str) -> Any:
        """The raw value, or None."""
        return self.values.get(name)

    def integer(self, name: str, *, default: int = _REQUIRED, minimum: int) -> int:
        """A whole number of at least `minimum`."""
        value = self._value(name, default)
        if type(value) is not int or value < minimum:
            raise self.error(name, f"a whole number of at least {minimum}")
        return value

    def integers(self, name: str, *, default: list[int], minimum: int) -> list[int]:
        """A list of whole numbers; one alone stands for a list of one."""
        value = self._value(name, default)
        values = value if isinstance(value, list) else [value]
        if any(type(v) is not int or v < minimum for v in values):
            raise self.error(name, f"a whole number of at least {minimum}, or a list of them")
        return values

    def number(
        self,
        name: str,
        *,
        default: float = _REQUIRED,
        above: float = -math.inf,
        minimum: float = -math.inf,
    ) -> float:
        """A finite number greater than `above` and not less than `minimum`."""
        value = self._value(name, default)
        # Compared before the conversion: float() cannot hold every whole number of a JSON file.
        is_number = type(value) in (int, float) and abs(value) < 1e300
        if not is_number or value <= above or value < minimum:
            limit = f" above {above}" if above > -math.inf else f" of at least {minimum}"
            raise self.error(name, "a number" + limit)
        return float(value)

    def boolean(self, name: str, *, default: bool) -> bool:
        """True or false."""
        value = self._value(name, default)
        if type(value) is not bool:
            raise self.error(name, "true or false")
        return value

    def string(self, name: str, *, default: str) -> str:
        """Text."""
        value = self._value(name, default)
        if type(value) is not str:
            raise self.error(name, "a text")
        return value

    def strings(self, name: str, *, default: list[str]) -> list[str]:
        """A list of texts."""
        value = self._value(name, default)
        if not isinstance(value, list) or any(type(v) is not str for v in value):
            raise self.error(name, "a list of texts")
        return value

    def object(self, name: str, *, default: dict[str, Any]) -> "JsonFields":
        """A nested object."""
        value = self._value(name, default)
        if not isinstance(value, dict):
            raise self.error(name, "an object")
        return JsonFields(value, f"{self.where}: {name}")

    def _value(self, name: str, default: Any) -> Any:
        value = self.values.get(name)
        if value is not None:
            return value
        if default is _REQUIRED:
            raise self.error(name, "this field, for it has no default")
        return default
