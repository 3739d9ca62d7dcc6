"""Keeps the rows of an accepted path after the verification of a tree, and drops the others."""

from collections.abc import Sequence
from typing import Any

import mlx.core as mx
from mlx.utils import tree_map
from mlx_lm.models.cache import KVCache, QuantizedKVCache, RotatingKVCache

from akunu_py.models.rollback.caches import leaves
from akunu_py.models.rollback.parts import SinkCache, next_row, put_rows
from akunu_py.system.errors import RollbackError


def keep_rows(caches: Sequence[Any], fed: int, kept: Sequence[int]) -> None:
    """Keep the rows `kept` of the last pass, over `fed` rows, in every cache.

    `kept` has increasing indices within the pass. There is at least one, since a sliding window
    cannot go back to before the pass. Afterwards the caches are as after a pass over only the kept
    rows.

    Raises RollbackError, with every cache unchanged, for other indices and for caches whose last
    rows are not a pass of `fed` rows.
    """
    numbers = list(kept)
    if not numbers or numbers != sorted(set(numbers)) or not 0 <= numbers[0] <= numbers[-1] < fed:
        raise RollbackError(f"a pass over {fed} rows cannot keep the rows {numbers}")
    parts = list(leaves(caches))
    for part in parts:
        _check(part, fed)
    in_front = numbers == list(range(len(numbers)))
    for part in parts:
        if type(part) in (RotatingKVCache, SinkCache):
            _keep_rotating(part, fed, numbers)
        elif in_front:
            part.offset -= fed - len(numbers)
        else:
            _keep_by_length(part, fed, numbers)


def _check(cache: Any, fed: int) -> None:
    kind = type(cache)
    if kind in (KVCache, QuantizedKVCache):
        known = int(cache.offset) >= fed
    elif kind in (RotatingKVCache, SinkCache):
        # Rows must be in temporal order, as after a pass over several: see rollback/parts.py.
        known = (
            fed > 1
            and cache.keys is not None
            and next_row(cache) == cache.keys.shape[2] >= fed
            and int(cache.offset) >= fed
        )
    else:
        known = False
    if not known:
        raise RollbackError(f"a {kind.__name__} cannot keep part of its last {fed} rows")


def _keep_by_length(cache: Any, fed: int, numbers: list[int]) -> None:
    start = int(cache.offset) - fed
    end = start + len(numbers)
    rows = mx.array([start + number for number in numbers])

    def compact(array: mx.array) -> mx.array:
        # Written in place, as the cache itself writes: the array includes room for later rows.
        array[..., start:end, :] = array[..., rows, :]
        return array

    cache.keys, cache.values = tree_map(compact, (cache.keys, cache.values))
    cache.offset = end


def _keep_rotating(cache: Any, fed: int, numbers: list[int]) -> None:
    before = cache.keys.shape[2] - fed
    size = before + len(numbers)
    rows: Any = slice(size)
    if numbers[-1] != len(numbers) - 1:
        rows = mx.array([*range(before), *(before + number for number in numbers)])
    keys, values = cache.keys[..., rows, :], cache.values[..., rows, :]
    put_rows(cache, keys, values, int(cache.offset) - fed + len(numbers), size)
