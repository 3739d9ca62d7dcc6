"""Typed rows, and how they are written as JSON and read: the one form of all bench files.

msgspec does both. This module adds checks that its types cannot express, in both directions:
numbers are finite and fit into 64 bits, and nesting is bounded. Every error is a ConfigError that
names the place.
"""

import json
import math
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Self, TypeVar

import msgspec

from akunu_py.system.errors import ConfigError

T = TypeVar("T")

Count = Annotated[int, msgspec.Meta(ge=0)]
Number = Annotated[float, msgspec.Meta(ge=0)]
"""Finite, 0 or more."""

_MAX_DEPTH = 32
_MAX_BYTES = 256 << 20
"""Limit of a file: more than any result needs, and less than the memory of a small machine."""

_PLACE = re.compile(r" - at `(?:key` in `)?\$\.?(.*)`$")


class Row(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A value of a file: a JSON object with the fields of the class and no others.

    A subclass is a frozen dataclass of msgspec's; its numbers are finite and fit into 64 bits.
    """

    def plain(self) -> dict[str, Any]:
        """Return the fields in JSON types; raises ConfigError for a value that JSON lacks."""
        found: dict[str, Any] = plain(self)
        return found

    @classmethod
    def from_json(cls, content: bytes | str, where: str) -> Self:
        """Return the value of a JSON text; a ConfigError names the field, and its file `where`."""
        return typed(parse(content, where), cls, where)

    @classmethod
    def from_line(cls, line: bytes) -> Self:
        """Return the value of a line of JSON in UTF-8, which names no field twice.

        Raises ConfigError, whose text begins with "field NAME: " where a field is at fault.
        """
        return convert(read_record(line), cls)


def plain(value: object, where: str = "the value") -> Any:
    """Return a value in JSON types: objects and arrays of texts, numbers, booleans and null.

    Half surrogate pairs, as in names of files that are not UTF-8, are replaced. Raises ConfigError
    for a value that JSON does not have.
    """
    try:
        return _plain(msgspec.to_builtins(value, str_keys=True), where, 0)
    except TypeError as error:
        raise ConfigError(f"{where} cannot be written as JSON: {error}") from None


def _plain(value: object, where: str, depth: int) -> Any:
    if depth > _MAX_DEPTH:
        raise ConfigError(f"{where} is nested more than {_MAX_DEPTH} levels deep")
    if isinstance(value, Mapping):
        return {
            _text(str(key)): _plain(entry, f"{where}.{key}", depth + 1)
            for key, entry in value.items()
        }
    if isinstance(value, list | tuple):
        return [_plain(entry, f"{where}[{index}]", depth + 1) for index, entry in enumerate(value)]
    if isinstance(value, str):
        return _text(value)
    if value is not None and not isinstance(value, bool) and not is_number(value):
        raise ConfigError(f"{where} is {value!r:.60}; JSON has no such value")
    return value


def _text(text: str) -> str:
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def is_number(value: object) -> bool:
    """Return whether a value is a number that JSON and 64 bits can hold; true and false are not."""
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**64


def encode(value: object, where: str = "the value", *, indent: int = 0) -> str:
    """Return a value as JSON text, on one line unless it is indented; raises as `plain` does."""
    content = msgspec.json.encode(plain(value, where))
    return (msgspec.json.format(content, indent=indent) if indent else content).decode()


def parse(content: bytes | str, where: str) -> Any:
    """Return the value of a JSON text; `where` names its place in a ConfigError."""
    try:
        return _plain(msgspec.json.decode(content), where, 0)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{where} is not valid JSON: {error}") from None


class FieldError(ConfigError):
    """A field is wrong; callers add the file and the line."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"field {field}: {message}" if field else message)


def convert(value: object, kind: type[T]) -> T:
    """Return a parsed value as a row, or as any other type that msgspec knows.

    Raises FieldError with the place of a field that does not fit, and the errors of the row itself.
    """
    try:
        return msgspec.convert(value, kind, str_keys=True)
    except msgspec.ValidationError as error:
        said = str(error)
        place = _PLACE.search(said)
        message = _PLACE.sub("", said).replace("`", "")
        raise FieldError("" if place is None else place[1], message) from None


def read_record(line: bytes) -> dict[str, Any]:
    """Return the JSON object of a line; raise FieldError for other values and repeated fields."""
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise FieldError("", f"not UTF-8 text (byte {error.start} of the line)") from None
    try:
        record = json.loads(
            text, object_pairs_hook=_unique, parse_float=_finite, parse_constant=_finite
        )
    except FieldError:
        raise
    except json.JSONDecodeError as error:
        raise FieldError("", f"not JSON: {error.msg} (column {error.colno})") from None
    except (RecursionError, ValueError):
        reason = "not JSON that can be read: nested too deep, or a number too large"
        raise FieldError("", reason) from None
    if not isinstance(record, dict):
        raise FieldError("", f"an item is a JSON object, not {record!r:.60}")
    return record


def _unique(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    record: dict[str, Any] = {}
    for key, value in pairs:
        if key in record:
            raise FieldError(key, "given twice")
        record[key] = value
    return record


def _finite(text: str) -> float:
    if not math.isfinite(float(text)):
        raise ValueError(text)
    return float(text)


def typed(value: object, kind: type[T], where: str) -> T:
    """Return a parsed value as `convert` does; `where` names its place in a ConfigError."""
    try:
        return convert(value, kind)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None


def read_file(path: Path) -> bytes:
    """Return a file's content; raises ConfigError for one that is too large or cannot be read."""
    try:
        # Reading a device may never end.
        if path.exists() and not path.is_file():
            raise ConfigError(f"{path} is not a file")
        size = path.stat().st_size
        if size > _MAX_BYTES:
            raise ConfigError(
                f"{path} has {size >> 20} MiB; a result file has {_MAX_BYTES >> 20} at most"
            )
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror or error}") from error
