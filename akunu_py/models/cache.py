"""Fresh caches for a model, and what they take of the memory."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
from mlx import nn
from mlx.utils import tree_flatten, tree_map
from mlx_lm.models.cache import (
    ChunkedKVCache,
    KVCache,
    QuantizedKVCache,
    RotatingKVCache,
    make_prompt_cache,
)
from mlx_lm.models.mla import MultiLinear, QuantizedMultiLinear

from akunu_py.models.layers import PlanesMultiLinear
from akunu_py.models.rollback.caches import with_exact_sinks
from akunu_py.system.errors import ConfigError
from akunu_py.values.load_options import KVBits

_KV_GROUP_SIZES = (64, 32)
LATENT_LAYERS = (MultiLinear, QuantizedMultiLinear, PlanesMultiLinear)
"""Layers that only latent attention has; its scores need unquantized numbers in the cache."""

Cache = Any
"""One of mlx-lm's cache objects; mlx-lm has no common type that says what they can do."""


def make_caches(model: nn.Module, kv_bits: KVBits | None = None) -> list[Cache]:
    """Return fresh caches for the model, quantized to `kv_bits` where given.

    Raises ConfigError where a cache of the model cannot be quantized.
    """
    caches: list[Cache] = [with_exact_sinks(cache) for cache in make_prompt_cache(model)]
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
    if any(isinstance(part, LATENT_LAYERS) for part in model.modules()):
        raise ConfigError(
            "this model keeps one small vector per token for all heads, which cannot be quantized; "
            "leave kv_bits out"
        )
    group_size = next((size for size in _KV_GROUP_SIZES if _head_widths_fit(model, size)), None)
    if group_size is None:
        raise ConfigError(
            "this model's heads are too narrow for a quantized cache; leave kv_bits out"
        )
    return [QuantizedKVCache(group_size=group_size, bits=kv_bits) for _ in caches]


def _head_widths_fit(model: nn.Module, group_size: int) -> bool:
    """Return whether keys and values split into whole groups, found by a pass over one position."""
    caches = make_prompt_cache(model)
    model(mx.zeros((1, 1), dtype=mx.int32), cache=caches)
    # Shapes are known without evaluation: nothing is computed.
    return all(
        array.shape[-1] % group_size == 0
        for cache in caches
        for array in (cache.keys, cache.values)
    )


_QUANTIZED_GROUP = 64
_STEP = int(KVCache.step)
"""Rows by which caches grow."""


@dataclass(frozen=True, slots=True)
class CacheNeeds:
    """Sizes of one cache."""

    per_token: int
    """Numbers per token."""

    window: int | None
    """The most tokens it keeps; None for all."""

    fixed_bytes: int
    """Size of a state that does not grow."""

    head_width: int = 0
    """Width of a key; 0 without keys."""


def cache_needs(cache: Any) -> CacheNeeds:
    """Return the sizes of a cache that holds one row, which need not be evaluated."""
    if isinstance(cache, KVCache | RotatingKVCache | ChunkedKVCache):
        arrays: Sequence[mx.array] = (cache.keys, cache.values)
        per_token = sum(array.size // array.shape[2] for array in arrays if array.size)
        window = getattr(cache, "max_size", None) or getattr(cache, "chunk_size", None)
        return CacheNeeds(per_token, window, 0, cache.keys.shape[-1])
    state = [array for _, array in tree_flatten(cache.state) if isinstance(array, mx.array)]
    return CacheNeeds(0, None, sum(array.nbytes for array in state))


def drop_numbers(model: nn.Module) -> None:
    """Give parameters numbers that take no memory, in case a class evaluates something."""
    model.update(
        tree_map(
            lambda array: mx.broadcast_to(mx.zeros((), array.dtype), array.shape),
            model.parameters(),
        )
    )


def cached_bytes(
    caches: Iterable[CacheNeeds], tokens: int, number_bytes: int, *, kv_bits: KVBits | None = None
) -> int:
    """Return the bytes of caches after `tokens`.

    A number takes `number_bytes`, or the bits of `kv_bits` and a share of its group's scale.
    """
    grown = -(-tokens // _STEP) * _STEP
    # A group has a scale and a bias.
    of_group = 2 * number_bytes / _QUANTIZED_GROUP
    size = number_bytes if kv_bits is None else kv_bits / 8 + of_group
    total = 0.0
    for cache in caches:
        kept = grown if cache.window is None else min(grown, cache.window)
        total += cache.per_token * kept * size + cache.fixed_bytes
    return round(total)
