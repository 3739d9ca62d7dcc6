"""Fresh caches for a model; `akunu_py.models.rollback` rolls them back."""

from typing import Any

import mlx.core as mx
from mlx import nn
from mlx_lm.models.cache import KVCache, QuantizedKVCache, make_prompt_cache
from mlx_lm.models.mla import MultiLinear, QuantizedMultiLinear

from akunu_py.models.late_quantization import LateQuantizedCache
from akunu_py.models.layers import PlanesMultiLinear
from akunu_py.models.rollback import with_exact_sinks
from akunu_py.system.errors import ConfigError
from akunu_py.values.load_options import KVBits

_KV_GROUP_SIZES = (64, 32)
LATENT_LAYERS = (MultiLinear, QuantizedMultiLinear, PlanesMultiLinear)
"""Layers that only latent attention has; its scores need unquantized numbers in the cache."""

Cache = Any
"""One of mlx-lm's cache objects; mlx-lm has no common type that says what they can do."""


def make_caches(model: nn.Module, kv_bits: KVBits | None = None) -> list[Cache]:
    """Return fresh caches for the model, quantized as `kv_bits` says where given.

    Raises ConfigError where a cache of the model cannot be quantized.
    """
    caches: list[Cache] = [with_exact_sinks(cache) for cache in make_prompt_cache(model)]
    if kv_bits is None:
        return caches
    bits, start = kv_bits
    if bits not in (4, 8):
        raise ConfigError(f"kv_bits is {bits!r}; give 4 or 8")
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
    if start == 0:
        return [QuantizedKVCache(group_size=group_size, bits=bits) for _ in caches]
    return [LateQuantizedCache(start, group_size=group_size, bits=bits) for _ in caches]


def _head_widths_fit(model: nn.Module, group_size: int) -> bool:
    """Return whether keys and values split into whole groups, found by a pass over one row."""
    caches = make_prompt_cache(model)
    model(mx.zeros((1, 1), dtype=mx.int32), cache=caches)
    # Shapes are known without evaluation: nothing is computed.
    return all(
        array.shape[-1] % group_size == 0
        for cache in caches
        for array in (cache.keys, cache.values)
    )
