"""Arguments of calls, from the text that a model wrote to JSON values."""

import ast
import contextlib
import json
import math
import re
import sys
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from akunu_py.tool_calls.format import Kind

KINDS: tuple[Kind, ...] = ("string", "number", "boolean", "null", "array", "object")

_ESCAPE = re.compile(r"\\(?:x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.)", re.DOTALL)
_ESCAPES = {
    "n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "a": "\a", "v": "\v", "0": "\0",
    "\\": "\\", "'": "'", '"': '"', "/": "/", "\n": "",
}  # fmt: skip

_MOST_PYTHON = 1 << 16
"""Characters of a value in Python's notation; deeper or longer ones stay text."""


def read_json(text: str) -> Any:
    """Return a JSON value; raise ValueError for any other text.

    A number beyond the range of floats becomes the largest one, and half a surrogate pair becomes
    U+FFFD, since such values could not be passed on as JSON.
    """
    try:
        return _plain(json.loads(text, parse_float=_float, parse_int=_int, parse_constant=_refuse))
    except RecursionError:
        raise ValueError("nested too deep") from None


def read_text(text: str, kinds: Collection[Kind], *, python: bool) -> Any:
    """Return the value of an argument that is written without quotes where it is a text.

    `kinds` are the types that its schema allows. A text that could be of several types is a text
    only if nothing else fits. Raises ValueError if the value has none of the types.
    """
    if "string" in kinds and len(kinds) == 1:
        return text
    for value in _readings(text.strip(), python=python):
        if kind_of(value) in kinds and not isinstance(value, str):
            return value
    if "string" in kinds:
        return text
    raise ValueError(f"{text!r:.60} is none of {', '.join(kinds)}")


def read_python_text(inside: str) -> str:
    """Return the text that stands between quotes in Python's notation, or in JSON's."""
    return str(_plain(_ESCAPE.sub(_unescape, inside)))


def _unescape(escape: re.Match[str]) -> str:
    code = escape.group()[1:]
    if code in _ESCAPES:
        return _ESCAPES[code]
    if code[0] in "xuU" and len(code) > 1:
        number = int(code[1:], 16)
        return chr(number) if number <= sys.maxunicode else "\ufffd"
    return escape.group()


def kind_of(value: object) -> Kind:
    """Return the type of a JSON value."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, str):
        return "string"
    return "object" if isinstance(value, Mapping) else "array"


def _readings(text: str, *, python: bool) -> Iterator[Any]:
    """Yield the value that a text has as JSON, then in Python's notation."""
    with contextlib.suppress(ValueError):
        yield read_json(text)
    if python and len(text) <= _MOST_PYTHON:
        with contextlib.suppress(ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
            yield _plain(ast.literal_eval(text))


def _plain(value: Any) -> Any:
    """Return a value with only what JSON has."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if isinstance(value, dict):
        return {_key(key): _plain(part) for key, part in value.items()}
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    raise ValueError(f"a {type(value).__name__} is not a JSON value")


def _key(key: object) -> str:
    if not isinstance(key, str):
        raise ValueError("keys are texts")  # noqa: TRY004 - as for any text that is not a value
    return str(_plain(key))


def _float(text: str) -> float:
    value = float(text)
    return math.copysign(sys.float_info.max, value) if math.isinf(value) else value


def _int(text: str) -> int | float:
    try:
        return int(text)
    except ValueError:  # more digits than Python converts
        return _float(text)


def _refuse(word: str) -> None:
    raise ValueError(f"{word} is not JSON")
