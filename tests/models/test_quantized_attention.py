"""Attention to quantized keys and values."""

from itertools import product

import mlx.core as mx
import numpy as np
import pytest
from mlx_lm.models.cache import QuantizedKVCache
from whole_numbers import as_read

from akunu_py.models.attention import attend_quantized
from akunu_py.models.device import has_kernels

HEADS, SHARED, WIDTH, GROUP = 4, 2, 64, 32


def drawn(heads, rows, seed=0):
    return mx.random.normal((1, heads, rows, WIDTH), key=mx.random.key(seed))


def stored(array, bits):
    """Rows as a cache holds them, in float64."""
    return np.array(mx.dequantize(*mx.quantize(array, GROUP, bits), GROUP, bits), np.float64)


def attended(queries, keys, values, scale):
    """Causal attention of the last rows in float64, with heads that share keys."""
    keys, values = (np.repeat(part, HEADS // SHARED, axis=1) for part in (keys, values))
    scores = scale * np.array(queries, np.float64) @ keys.swapaxes(-1, -2)
    rows, columns = scores.shape[-2:]
    seen = np.arange(columns) <= np.arange(columns - rows, columns)[:, None]
    weights = np.exp(np.where(seen, scores, -np.inf) - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ values


@pytest.mark.parametrize(
    ("held", "fed"),
    [(0, 2), (4, 1), (0, 5), (66, 4), (66, 9), (0, 72), (110, 90), (71, 1), (69, 66)],
)
def test_attention_is_that_over_the_stored_rows(held, fed):
    """Passes of few rows and of many."""
    # Numbers that products read as they are.
    queries = mx.array(as_read(drawn(HEADS, fed)).astype(np.float32))
    keys, values = (drawn(SHARED, held + fed, seed) for seed in (1, 2))
    for bits, masked in product((4, 8), (False, True)):
        cache = QuantizedKVCache(group_size=GROUP, bits=bits)
        if held:
            cache.update_and_fetch(keys[:, :, :held], values[:, :, :held])
        mask = cache.make_mask(fed, return_array=masked, window_size=None)
        rows = cache.update_and_fetch(keys[:, :, held:], values[:, :, held:])
        found = attend_quantized(queries[...], *rows, cache, scale=0.3, mask=mask)
        expected = attended(queries, *(stored(part, bits) for part in (keys, values)), 0.3)
        np.testing.assert_allclose(found, expected, atol=5e-6)


@pytest.mark.skipif(not has_kernels(), reason="MLX's own sums depend on the number of rows")
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("bits", [4, 8])
def test_rows_of_a_long_pass_have_the_bits_of_rows_alone(bits, masked):
    held, fed = 40, 150
    queries = drawn(HEADS, fed)
    keys, values = (drawn(SHARED, held + fed, seed) for seed in (1, 2))
    cache = QuantizedKVCache(group_size=GROUP, bits=bits)
    cache.update_and_fetch(keys[:, :, :held], values[:, :, :held])
    mask = cache.make_mask(fed, return_array=masked, window_size=None)
    rows = cache.update_and_fetch(keys[:, :, held:], values[:, :, held:])
    found = attend_quantized(queries * 1, *rows, cache, scale=0.3, mask=mask)
    for row in range(fed):
        seen = [tuple(part[..., : held + row + 1, :] for part in packed) for packed in rows]
        query = queries[:, :, row : row + 1] * 1
        alone = attend_quantized(query, *seen, cache, scale=0.3, mask=None)
        assert np.array_equal(alone[:, :, 0], found[:, :, row])
