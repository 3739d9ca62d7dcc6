"""Fresh caches for a model. How they are rolled back: `akunu_py.models.rollback`."""

from typing import Any

import mlx.core as mx
from mlx import nn
from mlx_lm.models.cache import KVCache, QuantizedKVCache, make_prompt_cache
from mlx_lm.models.mla import MultiLinear, QuantizedMultiLinear

from akunu_py.errors import ConfigError
from akunu_py.models.layers import PlanesMultiLinear
from akunu_py.models.rollback import with_exact_sinks

_KV_GROUP_SIZES = (64, 32)
LATENT_LAYERS = (MultiLinear, QuantizedMultiLinear, PlanesMultiLinear)
"""Layers that only attention over a latent vector has; its scores need the cache's own numbers."""

Cache = Any
"""One of mlx-lm's cache objects; mlx-lm gives them no common type that says what they can do."""


def make_caches(model: nn.Module, kv_bits: int | None = None) -> list[Cache]:
    """Return fresh caches for the model, with `kv_bits` quantized ones.

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
            "this model keeps one small vector a token for all heads, which cannot be quantized; "
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
