"""Caches whose first rows keep full precision while later ones are quantized.

The first tokens of a text get much of all attention, and later rows build on theirs; so errors
there cost most. A row is quantized by itself, in groups along its width: which rows a pass feeds
together changes none of them.

Attention runs over both parts, and the two results are weighed by how much of the softmax each part
holds. A row before the first quantized one never looks at that part: it is computed as without
quantization, also in a pass that goes on beyond it.
"""

import sys
from collections.abc import Sequence
from typing import Any

import mlx.core as mx
from mlx_lm.models.base import quantized_scaled_dot_product_attention
from mlx_lm.models.cache import CacheList, KVCache, QuantizedKVCache, create_attention_mask

from akunu_py.models.device import has_kernels, on_cpu

_MOST_DRAFTED = 65
"""Rows that attend to quantized keys and values at once, as drafts do. akunu's kernels take more
rows in such parts, so that a row of any pass has the bits of a row alone. Elsewhere, and beside
rows that keep full precision, more rows make them dense for a moment: that is faster."""


class EarlyRows(KVCache):  # type: ignore[misc]
    """The rows before `start`. As in `LateRows`, `offset` counts the rows of the whole text."""

    def __init__(self, start: int) -> None:
        super().__init__()
        self.start = start

    def keys_and_values(self) -> tuple[mx.array, mx.array]:
        held = own_rows(self, self.offset)
        return self.keys[..., :held, :], self.values[..., :held, :]


class LateRows(QuantizedKVCache):  # type: ignore[misc]
    """The rows from `start` on, quantized."""

    def __init__(self, start: int, *, group_size: int, bits: int) -> None:
        super().__init__(group_size=group_size, bits=bits)
        self.start = start

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[Any, Any]:
        """Add rows behind `offset`, which is `start` or more."""
        self.offset -= self.start
        held: tuple[Any, Any] = super().update_and_fetch(keys, values)
        self.offset += self.start
        return held


class LateQuantizedCache(CacheList):  # type: ignore[misc]
    """One layer's cache: `EarlyRows` and `LateRows`."""

    def __init__(self, start: int, *, group_size: int, bits: int) -> None:
        super().__init__(EarlyRows(start), LateRows(start, group_size=group_size, bits=bits))

    @property
    def offset(self) -> int:
        return int(self.caches[0].offset)

    def make_mask(self, *of: Any, **options: Any) -> Any:
        return create_attention_mask(*of, offset=self.offset, **options)

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[list[Any], list[Any]]:
        """Add rows; return keys and values of both parts, None for a part without rows."""
        early, late = self.caches
        count = keys.shape[2]
        before = min(max(0, early.start - early.offset), count)
        if before:
            early.update_and_fetch(keys[..., :before, :], values[..., :before, :])
        early.offset += count - before
        late.offset += before
        found = [early.keys_and_values(), (None, None)]
        if before < count:
            found[1] = late.update_and_fetch(keys[..., before:, :], values[..., before:, :])
        return [part[0] for part in found], [part[1] for part in found]

    def attend(
        self, queries: mx.array, keys: Sequence[Any], values: Sequence[Any], scale: float, mask: Any
    ) -> mx.array:
        """Return the attention [1, heads, rows, width] of the last rows that were added."""
        early, late = self.caches
        count = queries.shape[2]
        seen = own_rows(early, early.offset)
        before = min(max(0, early.start - (early.offset - count)), count)
        given = isinstance(mask, mx.array)
        found = []
        if before:
            own = mask[..., :before, :seen] if given else mask
            found.append(
                mx.fast.scaled_dot_product_attention(
                    queries[..., :before, :], keys[0], values[0], scale=scale, mask=own
                )
            )
        if before < count:
            own = mask[..., before:, :] if given else mask
            attend = _attend_both if count - before <= _MOST_DRAFTED else _attend_dense
            later = queries[..., before:, :]
            found.append(attend(later, keys, values, late, scale=scale, mask=own))
        return mx.concatenate(found, axis=2) if len(found) > 1 else found[0]


def span_of(cache: Any) -> range:
    """Return which rows of a text a cache by length holds."""
    if type(cache) is EarlyRows:
        return range(cache.start)
    return range(cache.start if type(cache) is LateRows else 0, sys.maxsize)


def own_rows(cache: Any, length: int) -> int:
    """Return how many rows a cache by length holds itself of a text of `length` rows."""
    span = span_of(cache)
    return min(max(length, span.start), span.stop) - span.start


def _attend_dense(
    queries: mx.array,
    keys: Sequence[Any],
    values: Sequence[Any],
    late: LateRows,
    *,
    scale: float,
    mask: Any,
) -> mx.array:
    """Return attention to both parts, with the later one made dense."""
    whole = [
        mx.concatenate([early, _dense(packed, late.group_size, late.bits)], axis=2)
        for early, packed in (keys, values)
    ]
    return mx.fast.scaled_dot_product_attention(queries, *whole, scale=scale, mask=mask)


def _dense(packed: Any, group_size: int, bits: int) -> mx.array:
    codes, scales, biases = packed
    return mx.dequantize(codes, scales, biases, group_size=group_size, bits=bits)


def _attend_both(
    queries: mx.array,
    keys: Sequence[Any],
    values: Sequence[Any],
    late: LateRows,
    *,
    scale: float,
    mask: Any,
) -> mx.array:
    """Return attention to both parts, without changing either; every row sees all early rows.

    With s the logarithm of a part's sum of exponentials, its share is sigmoid(s - s of the other).
    """
    _, heads, count, _ = queries.shape
    early = keys[0].shape[2]
    first = last = None
    if isinstance(mask, mx.array):
        if mask.dtype == mx.bool_:
            # Finite, since a row may see nothing of a part.
            mask = mx.where(mask, 0, mx.finfo(queries.dtype).min / 2).astype(queries.dtype)
        first, last = mask[..., :early], mask[..., early:]
    elif mask is not None:
        rows, columns = mx.arange(count), mx.arange(keys[1][0].shape[2])
        hidden = columns[None] > rows[:, None] + (columns.size - count)
        last = mx.where(hidden, mx.finfo(queries.dtype).min / 2, 0).astype(queries.dtype)
    # Row by row: how a product sums may depend on its number of rows, and a row is to get the same
    # bits whatever is drafted behind it. Heads that share keys are one axis.
    shared = keys[0].shape[1]
    grouped = (1, shared, heads // shared, count, -1)
    split = queries.reshape(grouped) * scale
    turned = keys[0][:, :, None].swapaxes(-1, -2)
    scores = mx.concatenate([row @ turned for row in mx.split(split, count, axis=3)], axis=3)
    scores = scores.reshape(1, heads, count, early)
    later = _product(split, keys[1], late, transpose=True).reshape(1, heads, count, -1)
    if first is not None:
        scores += first
    if last is not None:
        later += last
    wide = (part.astype(mx.float32) for part in (scores, later))
    sums, other = (mx.logsumexp(part, axis=-1, keepdims=True) for part in wide)
    weights = mx.softmax(later, axis=-1, precise=True).reshape(grouped)
    width = values[0].shape[3]
    of_late = _product(weights, values[1], late, transpose=False).reshape(1, heads, count, width)
    of_early = mx.fast.scaled_dot_product_attention(
        queries, keys[0], values[0], scale=scale, mask=first
    )
    both = mx.sigmoid(sums - other) * of_early + mx.sigmoid(other - sums) * of_late
    return both.astype(queries.dtype)


def _product(x: mx.array, packed: Any, late: LateRows, *, transpose: bool) -> mx.array:
    codes, scales, biases = (part[:, :, None] for part in packed)
    return mx.quantized_matmul(
        x, codes, scales, biases, transpose=transpose, group_size=late.group_size, bits=late.bits
    )


def attend_quantized(
    queries: mx.array, keys: Any, values: Any, cache: Any, *, scale: float, mask: Any
) -> mx.array:
    """Attend as a cache of two parts does itself, or as mlx-lm does but for many rows."""
    if isinstance(cache, LateQuantizedCache):
        return cache.attend(queries, keys, values, scale, mask)
    count, length = queries.shape[2], keys[0].shape[2]
    if count > _MOST_DRAFTED and not (on_cpu() and has_kernels()):
        dense = (_dense(packed, cache.group_size, cache.bits) for packed in (keys, values))
        return mx.fast.scaled_dot_product_attention(queries, *dense, scale=scale, mask=mask)
    parts: list[mx.array] = []
    for first in range(0, count, _MOST_DRAFTED):
        past = min(first + _MOST_DRAFTED, count)
        # The rows of a part see none of the keys behind its last.
        seen = length - count + past if mask == "causal" else length
        parts.append(
            quantized_scaled_dot_product_attention(
                queries[..., first:past, :],
                *(tuple(part[..., :seen, :] for part in packed) for packed in (keys, values)),
                scale=scale,
                mask=mask[..., first:past, :] if isinstance(mask, mx.array) else mask,
                group_size=cache.group_size,
                bits=cache.bits,
            )
        )
    return mx.concatenate(parts, axis=2) if len(parts) > 1 else parts[0]
