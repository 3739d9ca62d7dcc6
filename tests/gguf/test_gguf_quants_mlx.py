"""MLX takes every form: `dequantize` and `quantized_matmul` against the dense product."""

import mlx.core as mx
import numpy as np
import pytest
from quant_blocks import FOUR_BIT_FLOATS, HALVES, joined_planes, random_blocks, weights_of
from whole_numbers import LEEWAY

from akunu_py.gguf import dequantize, relayout

ROWS, COLS = 24, 512


def arrays_of(matrix):
    biases = None if matrix.biases is None else mx.array(matrix.biases)
    return mx.array(matrix.packed), mx.array(matrix.scales), biases


def options_of(matrix):
    return {"group_size": matrix.group_size, "bits": matrix.bits, "mode": matrix.mode}


def widened(x, matrix):
    """The columns of each group, times each multiplier of the matrix in turn."""
    factors = np.array(matrix.multipliers, np.float32)[:, None]
    width = matrix.group_size // len(factors)
    return (x.reshape(*x.shape[:-1], -1, 1, width) * factors).reshape(*x.shape[:-1], -1)


@pytest.fixture(autouse=True)
def on_the_cpu():
    previous = mx.default_device()
    mx.set_default_device(mx.cpu)
    yield
    mx.set_default_device(previous)


@pytest.mark.parametrize("kind", HALVES)
def test_affine_forms(kind):
    info, raw = random_blocks(kind, ROWS, COLS, 2)
    matrix = relayout(info, raw, scale_type="float32")
    weights = weights_of(matrix)
    assert np.allclose(weights, dequantize(info, raw), rtol=1e-6, atol=1e-7 * np.abs(weights).max())
    packed, scales, biases = arrays_of(matrix)
    stored = np.array(mx.dequantize(packed, scales, biases, **options_of(matrix)))
    stored = joined_planes(matrix, stored)
    assert np.allclose(stored, weights, rtol=1e-6, atol=1e-6 * np.abs(weights).max())
    for count in (1, 3, 40):
        x = np.random.default_rng(3).normal(0, 1, (count, COLS)).astype(np.float32)
        seen = widened(x, matrix) if matrix.multipliers else x
        product = np.array(
            mx.quantized_matmul(
                mx.array(seen), packed, scales, biases, transpose=True, **options_of(matrix)
            )
        )
        expected = x.astype(np.float64) @ weights.T
        assert np.abs(product - expected).max() <= 1e-5 * LEEWAY * np.abs(expected).max()


def test_q6_k_in_8_bits():
    info, raw = random_blocks("Q6_K", ROWS, COLS, 2)
    matrix = relayout(info, raw, scale_type="float32", q6k="8bit")
    packed, scales, biases = arrays_of(matrix)
    stored = np.array(mx.dequantize(packed, scales, biases, **options_of(matrix)))
    assert np.allclose(stored, weights_of(matrix), rtol=1e-6, atol=1e-6 * np.abs(stored).max())


@pytest.mark.parametrize("kind", FOUR_BIT_FLOATS)
def test_four_bit_floats(kind):
    info, raw = random_blocks(kind, ROWS, COLS, 2)
    weights = dequantize(info, raw)
    matrix = relayout(info, raw)
    packed, scales, _ = arrays_of(matrix)
    stored = mx.dequantize(packed, scales, dtype=mx.float32, **options_of(matrix))
    assert np.array_equal(np.array(stored), weights)
    x = np.random.default_rng(3).normal(0, 1, (3, COLS)).astype(np.float32)
    product = np.array(
        mx.quantized_matmul(mx.array(x), packed, scales, transpose=True, **options_of(matrix))
    )
    expected = x.astype(np.float64) @ weights.T.astype(np.float64)
    assert np.abs(product - expected).max() <= 1e-5 * LEEWAY * np.abs(expected).max()


@pytest.mark.parametrize("kind", FOUR_BIT_FLOATS)
def test_every_scale_byte_means_the_same(kind):
    """MLX's own numbers for the scale bytes, the smallest and largest among them."""
    sound = [*range(253)] if kind == "MXFP4" else [*range(0x7F), *range(0x80, 0xFF)]
    info, raw = random_blocks(kind, len(sound), 64, 2)
    blocks = raw.reshape(len(sound), -1, info.type.block_bytes)
    blocks[..., : 1 if kind == "MXFP4" else 4] = np.array(sound, np.uint8)[:, None, None]
    matrix = relayout(info, raw)
    packed, scales, _ = arrays_of(matrix)
    stored = np.array(mx.dequantize(packed, scales, dtype=mx.float32, **options_of(matrix)))
    assert np.array_equal(stored, dequantize(info, raw))
