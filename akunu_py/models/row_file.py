"""Cached rows in a file: written, and read back with every number checked.

A safetensors file has the arrays. What else the caches hold, numbers and which field has which
array, is returned as a layout of JSON values, for the writer to keep.
"""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx

from akunu_py.models.cached_rows import CachedRows
from akunu_py.models.rollback import leaves
from akunu_py.models.weight_files import read_shapes

_ARRAY = "array"
_PLACES = frozenset({"offset", "_idx", "start_position"})
"""Fields that count rows; other numbers belong to the model and never change."""

_KINDS = frozenset(
    {"KVCache", "QuantizedKVCache", "RotatingKVCache", "SinkCache", "ChunkedKVCache", "ArraysCache"}
)
"""Caches whose arrays after one token have the shapes and types of later ones, but for the rows."""

Layout = list[dict[str, Any]]


def write_rows(path: Path, rows: CachedRows) -> Layout:
    """Write the rows to a new file that only its owner can read; return their layout.

    Raises ValueError for caches that cannot be checked when they are read, OSError if the file
    cannot be written.
    """
    kinds = {type(leaf).__name__ for leaf in leaves(rows.caches)}
    if unknown := sorted(kinds - _KINDS):
        raise ValueError(f"a {unknown[0]} cannot be kept on disk")
    arrays: dict[str, mx.array] = {}
    layout = [
        {
            "kind": type(leaf).__name__,
            "fields": {
                name: _described(value, f"{number}.{name}", arrays)
                for name, value in vars(leaf).items()
            },
        }
        for number, leaf in enumerate(leaves(rows.caches))
    ]
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "wb") as stream:
        mx.save_safetensors(stream, arrays)
        stream.flush()
        os.fsync(stream.fileno())
    return layout


def read_rows(path: Path, layout: Layout, tokens: Sequence[int], rows: CachedRows) -> None:
    """Fill empty rows with those of a file, which are those of `tokens`.

    Raises ValueError, KeyError, TypeError, AttributeError or RecursionError for a file or a layout
    that does not belong to this model, OSError if the file cannot be read. The rows are then to be
    dropped.
    """
    expected = _arrays_of_one_token(rows)
    shapes = read_shapes(path)
    arrays = mx.load(str(path))
    if not isinstance(arrays, dict) or arrays.keys() != shapes.keys():
        raise ValueError("the header names other arrays than the file has")
    for name, array in arrays.items():
        one = expected[name]
        same = [size for axis, size in enumerate(array.shape) if axis != array.ndim - 2]
        other = [size for axis, size in enumerate(one.shape) if axis != one.ndim - 2]
        if array.dtype != one.dtype or same != other:
            raise ValueError(f"the array {name} has another shape or type than the model's")
    fresh = list(leaves(rows.caches))
    if len(layout) != len(fresh):
        raise ValueError("the model has another number of caches")
    with rows.changing():
        for number, (leaf, found) in enumerate(zip(fresh, layout, strict=True)):
            if found["kind"] != type(leaf).__name__ or found["fields"].keys() != vars(leaf).keys():
                raise ValueError("a cache is of another kind than the model's")
            values = {
                name: _restored(value, f"{number}.{name}", arrays)
                for name, value in found["fields"].items()
            }
            _check_numbers(values, vars(leaf), len(tokens))
            vars(leaf).update(values)
        if arrays:
            raise ValueError("the file has arrays that no cache holds")
        mx.eval([leaf.state for leaf in fresh])
        rows.hold(tokens)


def _described(value: Any, name: str, arrays: dict[str, mx.array]) -> Any:
    """Return a field as JSON; its arrays are added by name."""
    if isinstance(value, mx.array):
        arrays[name] = value
        return _ARRAY
    if isinstance(value, list | tuple):
        return [_described(part, f"{name}.{place}", arrays) for place, part in enumerate(value)]
    if value is None or type(value) is int:
        return value
    raise ValueError(f"a cache holds {type(value).__name__} in {name}")


def _restored(value: Any, name: str, arrays: dict[str, mx.array]) -> Any:
    """Return a described field, and take its arrays out."""
    if value == _ARRAY:
        return arrays.pop(name)
    if isinstance(value, list):
        return [_restored(part, f"{name}.{place}", arrays) for place, part in enumerate(value)]
    if value is None or type(value) is int:
        return value
    raise ValueError(f"{name} is {json.dumps(value)[:40]}")


def _check_numbers(values: Mapping[str, Any], fresh: Mapping[str, Any], num_tokens: int) -> None:
    """Raise ValueError for numbers that these caches cannot have after so many tokens."""
    for name, value in values.items():
        if name in _PLACES:
            if type(value) is not int or not 0 <= value <= num_tokens:
                raise ValueError(f"{name} is {value}, after {num_tokens} tokens")
        elif type(value) is int and value != fresh[name]:
            raise ValueError(f"{name} is {value}; the model has {fresh[name]}")
    if values.get("offset", num_tokens) != num_tokens:
        raise ValueError("a cache holds another number of rows")
    keys = values.get("keys")
    if keys is not None:
        arrays = [*keys, *values["values"]] if isinstance(keys, list) else [keys, values["values"]]
        first = values.get("start_position", 0)
        needed = min(num_tokens - first, values.get("max_size", num_tokens))
        held = {array.shape[-2] for array in arrays}
        if len(held) != 1 or min(held) < max(needed, values.get("_idx", 0)):
            raise ValueError("a cache has fewer rows than it counts")


def _arrays_of_one_token(rows: CachedRows) -> dict[str, mx.array]:
    """Return what the caches hold after one token, by name: shapes and types, not evaluated."""
    probe = rows.empty()
    probe.feed(mx.zeros((1,), dtype=mx.int32))
    arrays: dict[str, mx.array] = {}
    for number, leaf in enumerate(leaves(probe.caches)):
        for name, value in vars(leaf).items():
            _described(value, f"{number}.{name}", arrays)
    return arrays
