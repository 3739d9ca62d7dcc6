"""Attention to quantized keys and values, in parts of few rows or with dense copies of them."""

from typing import Any

import mlx.core as mx
from mlx_lm.models.base import quantized_scaled_dot_product_attention

from akunu_py.models.device import has_kernels, on_cpu

_MOST_DRAFTED = 65
"""Rows that attend to quantized keys and values at once, as drafts do. akunu's kernels take more
rows in such parts, so that a row of any pass has the bits of a row alone. Elsewhere more rows make
them dense for a moment: that is faster."""


def attend_quantized(
    queries: mx.array, keys: Any, values: Any, cache: Any, *, scale: float, mask: Any
) -> mx.array:
    """Attend as mlx-lm does but for many rows."""
    form = {"group_size": cache.group_size, "bits": cache.bits}
    count, length = queries.shape[2], keys[0].shape[2]
    if count > _MOST_DRAFTED and not (on_cpu() and has_kernels()):
        dense = (mx.dequantize(*packed, **form) for packed in (keys, values))
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
                **form,
            )
        )
    return mx.concatenate(parts, axis=2) if len(parts) > 1 else parts[0]
