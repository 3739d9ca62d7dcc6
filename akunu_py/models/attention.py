"""Attention to a cache in parts, a few of a pass's rows at a time, for kernels that take no more.

MLX's kernel for few rows on Metal takes 8 of them, and with the heads that share keys 32
(`has_fused_kernel` in its scaled_dot_product_attention.cpp). Others wait for all their scores to be
in memory, or are left to the kernel for prompts. Whether parts are faster is raced on each Mac (see
`metal`); elsewhere nothing has won, and all rows are one part.
"""

import functools
from collections.abc import Callable, Collection
from typing import Any

import mlx.core as mx
from mlx.utils import tree_map
from mlx_lm.models.base import scaled_dot_product_attention

from akunu_py.models.device import has_kernels, may_choose_products, on_cpu

Attend = Callable[..., mx.array]
"""mlx-lm's attention function."""

RACED = 4096
"""Keys behind which parts raced. Attention to fewer takes too little of a pass to matter."""


Shape = tuple[int, int, int, int, mx.Dtype]
"""Heads of queries and of keys, widths of keys and of values, type."""

won: dict[Shape, Collection[int]] = {}
"""The numbers of rows that are faster in parts."""

met: dict[Shape, None] = {}
"""Shapes of passes over several rows, in order."""


def largest_part(shape: Shape) -> int:
    """Return the most rows that MLX's kernel for few takes, 0 for none."""
    return min(8, 32 * shape[1] // shape[0])


may_race = functools.cache(may_choose_products)
"""Whether parts may be raced here, asked once."""


def attend_few(attend: Attend, queries: mx.array, keys: Any, values: Any, *rest: Any) -> mx.array:
    """Attend in parts where they won."""
    count = queries.shape[2]
    if count > 1 and may_race():
        shape = (queries.shape[1], *keys.shape[1::2], values.shape[3], queries.dtype)
        met[shape] = None
        if keys.shape[2] >= RACED and count in won.get(shape, ()):
            return in_parts(attend, largest_part(shape), queries, keys, values, *rest)
    return attend(queries, keys, values, *rest)


def in_parts(  # noqa: PLR0917 - those of mlx-lm's function
    attend: Attend, most: int, queries: mx.array, keys: Any, values: Any, cache: Any, scale: float,
    mask: Any, sinks: mx.array | None = None,
) -> mx.array:  # fmt: skip
    """Attend with at most so many rows at a time; keys and values may be quantized."""
    count = queries.shape[2]
    if count <= most:
        return attend(queries, keys, values, cache, scale, mask, sinks)
    found = []
    for first in range(0, count, most):
        rows = slice(first, min(first + most, count))
        # In order, the rows of a part see none of the keys behind its last.
        seen = slice(None, (rows.stop - count or None) if mask == "causal" else None)
        own = mask[..., rows, :] if isinstance(mask, mx.array) else mask
        held = tree_map(lambda part, seen=seen: part[..., seen, :], (keys, values))
        found.append(attend(queries[..., rows, :], *held, cache, scale, own, sinks))
    return mx.concatenate(found, axis=2)


_MOST_DRAFTED = 65
"""Rows that attend to quantized keys and values at once, as drafts do. akunu's kernels take more
rows in such parts, so that a row of any pass has the bits of a row alone. Elsewhere more rows make
them dense for a moment: that is faster."""


def attend_quantized(
    queries: mx.array, keys: Any, values: Any, cache: Any, *, scale: float, mask: Any
) -> mx.array:
    """Attend to quantized keys and values as mlx-lm does but for many rows."""
    if queries.shape[2] > _MOST_DRAFTED and not (on_cpu() and has_kernels()):
        form = {"group_size": cache.group_size, "bits": cache.bits}
        dense = (mx.dequantize(*packed, **form) for packed in (keys, values))
        return mx.fast.scaled_dot_product_attention(queries, *dense, scale=scale, mask=mask)
    attend = scaled_dot_product_attention
    return in_parts(attend, _MOST_DRAFTED, queries, keys, values, cache, scale, mask)
