"""What caches take of the memory, from their shapes after one row."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
from mlx import nn
from mlx.utils import tree_flatten, tree_map
from mlx_lm.models.cache import ChunkedKVCache, KVCache, RotatingKVCache

from akunu_py.values.load_options import KVBits

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
    late = 0 if kv_bits is None else _grown(max(0, tokens - kv_bits.start))
    early = _grown(tokens if kv_bits is None else min(tokens, kv_bits.start))
    # A group has a scale and a bias.
    packed = 0 if kv_bits is None else kv_bits.bits / 8 + 2 * number_bytes / _QUANTIZED_GROUP
    total = 0.0
    for cache in caches:
        kept = early if cache.window is None else min(early, cache.window)
        total += cache.per_token * (kept * number_bytes + late * packed) + cache.fixed_bytes
    return round(total)


def _grown(rows: int) -> int:
    return -(-rows // _STEP) * _STEP
