"""Cached KV entries in a file: written, and read back with every number checked.

A safetensors file has the arrays. What else the caches hold, numbers and which field has which
array, is returned as a layout of JSON values, for the writer to keep.

Places that caches can go back to (`CachedRows.mark`) are in the file, too: the states of recurrent
layers there, and the windows of sliding ones. Caches that hold KV entries by length have theirs in
the KV entries anyway.
"""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx

from akunu_py.models.cached_rows import CachedRows
from akunu_py.models.rollback.caches import leaves
from akunu_py.models.weight_files import read_shapes

_ARRAY = "array"
_PLACES = frozenset({"offset", "_idx", "start_position"})
"""Fields that count KV entries; other numbers belong to the model and never change."""

_BY_LENGTH = frozenset({"KVCache", "QuantizedKVCache"})
"""Caches of which a marked place needs nothing but its length."""

_KINDS = _BY_LENGTH | {"RotatingKVCache", "SinkCache", "ChunkedKVCache", "ArraysCache"}
"""Caches whose arrays have the same types and shapes, but for the rows, once there are `_FEW`."""

_FEW = 16
"""More tokens than any convolution, or table of n-grams, looks back."""

_WITHOUT_ROWS = "ArraysCache"
"""Caches whose arrays keep all of their shape."""

Layout = dict[str, Any]
_Form = tuple[tuple[int, ...], mx.Dtype]
"""Shape and type of an array; the axis of the KV entries counts as 0."""


def describe_rows(rows: CachedRows) -> tuple[Layout, dict[str, mx.array]]:
    """Return the layout of rows and their arrays, which later passes over the rows do not change.

    Raises ValueError for caches that cannot be checked when they are read.
    """
    kinds = {type(leaf).__name__ for leaf in leaves(rows.caches)}
    if unknown := sorted(kinds - _KINDS):
        raise ValueError(f"a {unknown[0]} cannot be kept on disk")
    arrays: dict[str, mx.array] = {}
    places: dict[int, list[str]] = {}
    for name, held in rows.marks.items():
        places.setdefault(held, []).append(name)
    layout = {
        "caches": [
            _described_leaf(leaf, f"{number}.", arrays)
            for number, leaf in enumerate(leaves(rows.caches))
        ],
        "marks": [
            {
                "names": names,
                "held": held,
                "caches": [
                    None
                    if type(leaf).__name__ in _BY_LENGTH
                    else _described_leaf(leaf, f"{held}/{number}.", arrays)
                    for number, leaf in enumerate(leaves(rows.at_mark(names[0]).caches))
                ],
            }
            for held, names in places.items()
        ],
    }
    # Array objects of its own: a pass writes through those of a cache.
    arrays = {name: array[...] for name, array in arrays.items()}
    mx.eval(list(arrays.values()))
    return layout, arrays


def write_arrays(path: Path, arrays: dict[str, mx.array]) -> None:
    """Write evaluated arrays to a new file that only its owner can read, from any thread.

    Raises OSError if the file cannot be written.
    """
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "wb") as stream:
        mx.save_safetensors(stream, arrays)
        stream.flush()
        os.fsync(stream.fileno())


def read_rows(path: Path, layout: Layout, tokens: Sequence[int], rows: CachedRows) -> None:
    """Fill empty KV entries with those of a file, which are those of `tokens`.

    Raises ValueError, KeyError, TypeError, AttributeError or RecursionError for a file or a layout
    that does not belong to this model, OSError if the file cannot be read. The KV entries are then
    to be dropped.
    """
    forms = _forms(rows)
    shapes = read_shapes(path)
    arrays = mx.load(str(path))
    if not isinstance(arrays, dict) or arrays.keys() != shapes.keys():
        raise ValueError("the header names other arrays than the file has")
    for name, array in arrays.items():
        shape, kind = forms[name.rpartition("/")[2]]
        found = tuple(0 if size == 0 else own for size, own in zip(shape, array.shape, strict=True))
        if (found, array.dtype) != (shape, kind):
            raise ValueError(f"the array {name} has another shape or type than the model's")
    mx.eval(list(arrays.values()))
    marks: dict[str, CachedRows] = {}
    for mark in layout["marks"]:
        held = mark["held"]
        if type(held) is not int or not 0 < held <= len(tokens):
            raise ValueError(f"a marked place is {held}, of {len(tokens)} tokens")
        state = rows.empty()
        _fill(state, mark["caches"], f"{held}/", arrays, tokens[:held])
        marks |= dict.fromkeys(map(str, mark["names"]), state)
    with rows.changing():
        _fill(rows, layout["caches"], "", arrays, tokens)
        if arrays:
            raise ValueError("the file has arrays that no cache holds")
        rows.hold(tokens, marks)


def _fill(
    rows: CachedRows,
    found: Sequence[Mapping[str, Any] | None],
    prefix: str,
    arrays: dict[str, mx.array],
    tokens: Sequence[int],
) -> None:
    """Fill empty entries as they are described; their arrays, by name with a prefix, are taken out.

    Caches by length without a description are those of a marked place.
    """
    for number, (leaf, one) in enumerate(zip(leaves(rows.caches), found, strict=True)):
        if one is None and prefix and type(leaf).__name__ in _BY_LENGTH:
            leaf.offset = len(tokens)
            continue
        if one is None or one["kind"] != type(leaf).__name__:
            raise ValueError("a cache is of another kind than the model's")
        if one["fields"].keys() != vars(leaf).keys():
            raise ValueError("a cache has other fields than the model's")
        values = {
            name: _restore(value, f"{prefix}{number}.{name}", arrays)
            for name, value in one["fields"].items()
        }
        _check_numbers(values, leaf, len(tokens))
        vars(leaf).update(values)
    rows.tokens = list(tokens)


def _described_leaf(leaf: Any, prefix: str, arrays: dict[str, mx.array]) -> dict[str, Any]:
    """Return a cache as JSON; its arrays are added by name."""
    return {
        "kind": type(leaf).__name__,
        "fields": {
            name: _describe(value, prefix + name, arrays) for name, value in vars(leaf).items()
        },
    }


def _describe(value: Any, name: str, arrays: dict[str, mx.array]) -> Any:
    """Return a field as JSON; its arrays are added by name."""
    if isinstance(value, mx.array):
        arrays[name] = value
        return _ARRAY
    if isinstance(value, list | tuple):
        return [_describe(part, f"{name}.{place}", arrays) for place, part in enumerate(value)]
    if value is None or type(value) is int:
        return value
    raise ValueError(f"a cache holds {type(value).__name__} in {name}")


def _restore(value: Any, name: str, arrays: dict[str, mx.array]) -> Any:
    """Return a described field, and take its arrays out."""
    if value == _ARRAY:
        return arrays.pop(name)
    if isinstance(value, list):
        return [_restore(part, f"{name}.{place}", arrays) for place, part in enumerate(value)]
    if value is None or type(value) is int:
        return value
    raise ValueError(f"{name} is {json.dumps(value)[:40]}")


def _check_numbers(values: Mapping[str, Any], empty: Any, num_tokens: int) -> None:
    """Raise ValueError for numbers that a cache, given `empty`, cannot have after `num_tokens`."""
    fresh = vars(empty)
    for name, value in values.items():
        if name in _PLACES:
            if type(value) is not int or not 0 <= value <= num_tokens:
                raise ValueError(f"{name} is {value}, after {num_tokens} tokens")
        elif int in (type(value), type(fresh[name])) and value != fresh[name]:
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


def _forms(rows: CachedRows) -> dict[str, _Form]:
    """Return the forms of the arrays that the caches hold, by name.

    They are read off a pass over a few tokens, which is not evaluated.
    """
    probe = rows.empty()
    probe.feed(mx.zeros((min(_FEW, probe.room),), dtype=mx.int32))
    forms: dict[str, _Form] = {}
    for number, leaf in enumerate(leaves(probe.caches)):
        arrays: dict[str, mx.array] = {}
        _described_leaf(leaf, f"{number}.", arrays)
        for name, array in arrays.items():
            shape = list(array.shape)
            if type(leaf).__name__ != _WITHOUT_ROWS:
                shape[-2] = 0
            forms[name] = tuple(shape), array.dtype
    return forms
