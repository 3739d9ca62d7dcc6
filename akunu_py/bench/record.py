"""Reading JSON objects of files that others may have written: every field is checked.

All methods raise ConfigError naming the file, the field and what it should be.
"""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from akunu_py.errors import ConfigError

_MAX_DEPTH = 32
_MAX_BYTES = 256 << 20
"""Of a file: larger than any result, smaller than what would fill a small machine's memory."""


class Record:
    """A JSON object whose fields are taken out one by one; `where` names it in errors."""

    def __init__(self, value: object, where: str) -> None:
        if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
            raise ConfigError(f"{where} is no JSON object")
        self._fields: dict[str, Any] = value
        self._left = set(value)
        self.where = where

    def _take(self, name: str) -> Any:
        if name not in self._fields:
            raise ConfigError(f"{self.where} has no field {name!r}")
        self._left.discard(name)
        return self._fields[name]

    def _wrong(self, name: str, wanted: str) -> NoReturn:
        value = self._fields[name]
        raise ConfigError(f"{self.where}: {name} is {value!r:.60}; it should be {wanted}")

    def is_null(self, name: str) -> bool:
        """Return whether a field is null."""
        return self._take(name) is None

    def text(self, name: str) -> str:
        """Return a text."""
        value = self._take(name)
        if not isinstance(value, str):
            self._wrong(name, "a text")
        return value

    def optional_text(self, name: str) -> str | None:
        """Return a text, or None for null."""
        return None if self.is_null(name) else self.text(name)

    def count(self, name: str) -> int:
        """Return a whole number, 0 or more."""
        value = self._take(name)
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            self._wrong(name, "a whole number, 0 or more")
        return value

    def number(self, name: str) -> float:
        """Return a finite number, 0 or more."""
        value = self._take(name)
        if not is_number(value) or value < 0:
            self._wrong(name, "a finite number, 0 or more")
        return float(value)

    def flag(self, name: str) -> bool:
        """Return true or false."""
        value = self._take(name)
        if not isinstance(value, bool):
            self._wrong(name, "true or false")
        return value

    def values(self, name: str) -> list[object]:
        """Return a list, its entries unchecked."""
        value = self._take(name)
        if not isinstance(value, list):
            self._wrong(name, "a list")
        return value

    def counts(self, name: str) -> tuple[int, ...]:
        """Return a list of whole numbers, 0 or more."""
        return self.counts_of(self.values(name), None)

    def counts_of(self, value: object, size: int | None) -> tuple[int, ...]:
        """Return a value that is such a list, of `size` numbers where that is given."""
        if not isinstance(value, list) or size not in {None, len(value)}:
            raise ConfigError(f"{self.where} holds {value!r:.60}; it should be a list of numbers")
        for entry in value:
            if not isinstance(entry, int) or isinstance(entry, bool) or entry < 0:
                raise ConfigError(f"{self.where} holds {entry!r:.60}; it should be a whole number")
        return tuple(value)

    def records(self, name: str) -> list["Record"]:
        """Return a list of objects."""
        return [
            Record(value, f"{self.where}: {name}[{index}]")
            for index, value in enumerate(self.values(name))
        ]

    def record(self, name: str) -> "Record":
        """Return an object."""
        return Record(self._take(name), f"{self.where}: {name}")

    def mapping(self, name: str) -> dict[str, object]:
        """Return an object with any fields, all of its values checked by `check_json`."""
        value = self._take(name)
        if not isinstance(value, dict):
            self._wrong(name, "an object")
        check_json(value, f"{self.where}: {name}")
        return dict(value)

    def end(self) -> None:
        """Refuse fields that nobody took."""
        if self._left:
            raise ConfigError(f"{self.where} has the unknown field {min(self._left)!r}")


def is_number(value: object) -> bool:
    """Return whether a value is a finite int or float; true and false are none."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def check_json(value: object, where: str, depth: int = 0) -> None:
    """Refuse what JSON cannot say: numbers that are not finite, keys that are no texts, arrays.

    Tuples count as lists.
    """
    if depth > _MAX_DEPTH:
        raise ConfigError(f"{where} is nested more than {_MAX_DEPTH} deep")
    if isinstance(value, Mapping):
        for key, entry in value.items():
            if not isinstance(key, str):
                raise ConfigError(f"{where} has the key {key!r}; keys are texts")
            check_json(entry, f"{where}.{key}", depth + 1)
    elif isinstance(value, list | tuple):
        for index, entry in enumerate(value):
            check_json(entry, f"{where}[{index}]", depth + 1)
    elif value is not None and not isinstance(value, str | bool) and not is_number(value):
        raise ConfigError(f"{where} is {value!r}; JSON has no such value")


def read_json(path: Path) -> object:
    """Return a file's JSON value."""
    try:
        # A device can be read without end.
        if path.exists() and not path.is_file():
            raise ConfigError(f"{path} is no file")
        size = path.stat().st_size
        if size > _MAX_BYTES:
            raise ConfigError(
                f"{path} has {size >> 20} MiB; a result file has {_MAX_BYTES >> 20} at most"
            )
        content = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror or error}") from error
    return parse_json(content, str(path))


def parse_json(content: bytes | str, where: str) -> object:
    """Return the value of a JSON text; NaN and Infinity, which Python's reader takes, are none."""

    def refuse(constant: str) -> NoReturn:
        raise ValueError(f"{constant} is no JSON")

    try:
        text = content.decode("utf-8") if isinstance(content, bytes) else content
        value: object = json.loads(text, parse_constant=refuse)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{where} is no JSON: {error}") from None
    return value
