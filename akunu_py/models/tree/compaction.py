"""After the verification of a tree: the accepted path's rows stay, in order, the others go."""

from collections.abc import Sequence
from typing import Any

import mlx.core as mx
from mlx.utils import tree_map
from mlx_lm.models.cache import KVCache, QuantizedKVCache, RotatingKVCache

from akunu_py.errors import RollbackError
from akunu_py.models.rollback import leaves
from akunu_py.models.rollback.rotating import SinkCache


def keep_rows(caches: Sequence[Any], fed: int, kept: Sequence[int]) -> None:
    """Of the last `fed` rows of every cache, those of one pass, keep those numbered in `kept`.

    The numbers count within the pass and increase; there is at least one, since a sliding window
    cannot go back to before the pass. Afterwards the caches are those of a pass over the kept rows
    alone.

    Raises RollbackError, with every cache as it was, for other numbers and for caches whose last
    rows are not a pass of `fed` rows.
    """
    numbers = list(kept)
    if not numbers or numbers != sorted(set(numbers)) or not 0 <= numbers[0] <= numbers[-1] < fed:
        raise RollbackError(f"of a pass over {fed} rows, {numbers} were to be kept")
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
        # Rows in temporal order, which a pass over several leaves behind: see rollback/rotating.py.
        known = (
            fed > 1
            and cache.keys is not None
            and int(cache._idx) == cache.keys.shape[2] >= fed  # noqa: SLF001
            and int(cache.offset) >= fed
        )
    else:
        known = False
    if not known:
        raise RollbackError(f"a {kind.__name__} cannot keep some of its last {fed} rows")


def _keep_by_length(cache: Any, fed: int, numbers: list[int]) -> None:
    start = int(cache.offset) - fed
    end = start + len(numbers)
    rows = mx.array([start + number for number in numbers])

    def compact(array: mx.array) -> mx.array:
        # Written in place, as the cache itself writes: the array is as long as its buffer.
        array[..., start:end, :] = array[..., rows, :]
        return array

    cache.keys, cache.values = tree_map(compact, (cache.keys, cache.values))
    cache.offset = end


def _keep_rotating(cache: Any, fed: int, numbers: list[int]) -> None:
    before = cache.keys.shape[2] - fed
    size = before + len(numbers)
    if numbers[-1] == len(numbers) - 1:
        cache.keys, cache.values = cache.keys[..., :size, :], cache.values[..., :size, :]
    else:
        rows = mx.array([*range(before), *(before + number for number in numbers)])
        cache.keys, cache.values = cache.keys[..., rows, :], cache.values[..., rows, :]
    cache.offset -= fed - len(numbers)
    cache._idx = size  # noqa: SLF001
