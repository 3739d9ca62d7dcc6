"""KV caches that can be rolled back by length, and how far.

A cache kind that is not known here is taken to be unable to roll back: then nothing is drafted, and
decoding is plain and right instead of fast and wrong.
"""

from typing import Any

import mlx.core as mx
from mlx import nn
from mlx_lm.models.cache import (
    CacheList,
    KVCache,
    QuantizedKVCache,
    RotatingKVCache,
    make_prompt_cache,
)

from akunu_py.errors import ConfigError, RollbackError

UNLIMITED = 2**31
_KV_GROUP_SIZES = (64, 32)

Cache = Any
"""One of mlx-lm's cache objects; mlx-lm gives them no common type that says what they can do."""


def make_caches(model: nn.Module, kv_bits: int | None = None) -> list[Cache]:
    """Return fresh caches for the model, with `kv_bits` quantized ones.

    Raises ConfigError where a cache of the model cannot be quantized.
    """
    caches: list[Cache] = make_prompt_cache(model)
    if kv_bits is None:
        return caches
    if kv_bits not in (4, 8):
        raise ConfigError(f"kv_bits is {kv_bits!r}; give 4 or 8")
    kinds = sorted({type(cache).__name__ for cache in caches if type(cache) is not KVCache})
    if kinds:
        raise ConfigError(
            f"this model keeps its context in {', '.join(kinds)}, which cannot be quantized; "
            "leave kv_bits out"
        )
    group_size = next((size for size in _KV_GROUP_SIZES if _head_widths_fit(model, size)), None)
    if group_size is None:
        raise ConfigError(
            "this model's heads are too narrow for a quantized cache; leave kv_bits out"
        )
    return [QuantizedKVCache(group_size=group_size, bits=kv_bits) for _ in caches]


def _head_widths_fit(model: nn.Module, group_size: int) -> bool:
    """Whether keys and values of a model split into whole groups, found by one row's pass."""
    caches = make_prompt_cache(model)
    model(mx.zeros((1, 1), dtype=mx.int32), cache=caches)
    # Shapes are known without evaluation; nothing is computed here.
    return all(
        array.shape[-1] % group_size == 0
        for cache in caches
        for array in (cache.keys, cache.values)
    )


def rollback_room(cache: Cache) -> int:
    """Return how many rows can be fed now and all be dropped again.

    A rotating cache overwrites its oldest rows once it is full, and then has nothing to go back
    to; mlx-lm's own `trim` drops nothing there and says nothing.
    """
    kind = type(cache)
    if kind is KVCache or kind is QuantizedKVCache:
        return UNLIMITED
    if kind is RotatingKVCache:
        return max(0, int(cache.max_size) - int(cache.offset) - 1)
    if kind is CacheList:
        return min((rollback_room(part) for part in cache.caches), default=0)
    return 0


def drop_rows(caches: list[Cache], count: int) -> None:
    """Drop the last `count` rows of every cache.

    Raises RollbackError when a cache did not.
    """
    if count == 0:
        return
    for cache in caches:
        dropped = cache.trim(count) if cache.is_trimmable() else 0
        if dropped != count:
            raise RollbackError(
                f"a {type(cache).__name__} dropped {dropped} of {count} rows; "
                "generate with drafter='none' and report this model"
            )
