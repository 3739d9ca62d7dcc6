"""Re-layouts against gguf's own dequantizer, and MLX's packing by hand."""

import gguf
import numpy as np
import pytest

from akunu_py.errors import ModelFormatError, UnsupportedQuantizationError
from akunu_py.gguf import BLOCK_TYPES, QuantizedMatrix, TensorInfo, dense, dequantize, relayout

TYPES = {block.name: block for block in BLOCK_TYPES.values()}


def info_of(kind, rows, cols):
    block = TYPES[kind]
    nbytes = rows * cols // block.block_elements * block.block_bytes
    return TensorInfo("blk.0.attn_q.weight", block, (cols, rows), 0, nbytes)


def quantized(kind, rows, cols, seed=0, scale=1.0):
    weights = np.random.default_rng(seed).normal(0, scale, (rows, cols)).astype(np.float32)
    raw = gguf.quantize(weights, gguf.GGMLQuantizationType[kind]).view(np.uint8)
    return info_of(kind, rows, cols), raw.reshape(rows, -1)


def unpack(matrix, cols):
    """Codes as MLX reads them: `bits` at a time from the low end of each uint32."""
    per_word = 32 // matrix.bits
    shifts = np.arange(per_word, dtype=np.uint32) * matrix.bits
    codes = (matrix.packed[..., None] >> shifts) & (2**matrix.bits - 1)
    return codes.reshape(-1, cols)


@pytest.mark.parametrize("kind", ["F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1"])
@pytest.mark.parametrize(("rows", "cols"), [(1, 32), (7, 96), (3, 4096)])
def test_dequantizes_exactly_as_gguf(kind, rows, cols):
    info, raw = quantized(kind, rows, cols)
    expected = gguf.dequantize(
        raw.view(np.float32) if kind == "F32" else raw.view(np.float16) if kind == "F16" else raw,
        gguf.GGMLQuantizationType[kind],
    )
    ours = dequantize(info, raw)
    assert ours.dtype == np.float32
    assert np.array_equal(ours, expected.reshape(rows, cols))


@pytest.mark.parametrize("kind", ["Q8_0", "Q4_0", "Q4_1"])
def test_random_bytes_dequantize_exactly(kind):
    """Any bytes with finite scales, not only those a quantizer makes."""
    info = info_of(kind, 8, 256)
    raw = np.random.default_rng(1).integers(0, 256, (8, info.row_bytes), np.uint8)
    blocks = raw.reshape(8, -1, info.type.block_bytes)
    blocks[..., 1] &= 0x3F  # float16 exponents of at most 1
    if kind == "Q4_1":
        blocks[..., 3] &= 0x3F
    expected = gguf.dequantize(raw, gguf.GGMLQuantizationType[kind])
    assert np.array_equal(dequantize(info, raw), expected)


@pytest.mark.parametrize(("kind", "bits"), [("Q8_0", 8), ("Q4_0", 4), ("Q4_1", 4)])
def test_layout_is_mlx_s(kind, bits):
    info, raw = quantized(kind, 5, 128)
    matrix = relayout(info, raw)
    assert isinstance(matrix, QuantizedMatrix)
    assert (matrix.bits, matrix.group_size) == (bits, 32)
    assert (matrix.packed.dtype, matrix.packed.shape) == (np.uint32, (5, 128 * bits // 32))
    assert (matrix.scales.dtype, matrix.scales.shape) == (np.float16, (5, 4))
    assert (matrix.biases.dtype, matrix.biases.shape) == (np.float16, (5, 4))
    scales = np.repeat(matrix.scales.astype(np.float32), 32, axis=1)
    biases = np.repeat(matrix.biases.astype(np.float32), 32, axis=1)
    weights = unpack(matrix, 128) * scales + biases
    assert np.array_equal(weights, gguf.dequantize(raw, gguf.GGMLQuantizationType[kind]))


def test_nibbles_by_hand():
    """Byte j of a Q4_0 block holds elements j and j + 16; MLX wants 2 j and 2 j + 1."""
    block = np.concatenate([np.float16([1]).view(np.uint8), np.arange(16, dtype=np.uint8)])
    block[2:] |= (15 - np.arange(16, dtype=np.uint8)) << 4
    matrix = relayout(info_of("Q4_0", 1, 32), block[None])
    assert unpack(matrix, 32).tolist() == [[*range(16), *reversed(range(16))]]
    assert matrix.biases.tolist() == [[-8.0]]


def test_many_rows_cross_the_chunks():
    info, raw = quantized("Q8_0", 3000, 2048)
    assert np.array_equal(
        dequantize(info, raw), gguf.dequantize(raw, gguf.GGMLQuantizationType.Q8_0)
    )


@pytest.mark.parametrize(("kind", "limit"), [("Q8_0", 511.75), ("Q4_0", 8188.0)])
def test_scales_beyond_float16_become_float32(kind, limit):
    info, raw = quantized(kind, 2, 32)
    raw = raw.copy()
    for scale, dtype in ((limit, np.float16), (limit * 1.01, np.float32)):
        raw[1, :2] = np.float16([scale]).view(np.uint8)
        matrix = relayout(info, raw)
        assert matrix.scales.dtype == matrix.biases.dtype == dtype
        expected = gguf.dequantize(raw, gguf.GGMLQuantizationType[kind])
        assert np.array_equal(dequantize(info, raw), expected)


@pytest.mark.parametrize("kind", ["Q8_0", "Q4_0", "Q4_1"])
@pytest.mark.parametrize("scale", [np.nan, np.inf, -np.inf])
def test_scales_that_are_not_finite_are_refused(kind, scale):
    info, raw = quantized(kind, 2, 64)
    raw = raw.copy()
    raw[1, :2] = np.float16([scale]).view(np.uint8)
    with pytest.raises(ModelFormatError, match=r"blk\.0\.attn_q\.weight.*not finite"):
        relayout(info, raw)


@pytest.mark.parametrize(
    "kind", sorted(set(TYPES) - {"F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1"})
)
def test_other_types_are_named(kind):
    info = info_of(kind, 1, 256)
    raw = np.zeros((1, info.row_bytes), np.uint8)
    for function in (relayout, dense, dequantize):
        with pytest.raises(UnsupportedQuantizationError, match=f"attn_q.* {kind},.*Q8_0"):
            function(info, raw)


def test_dense_is_a_view_where_it_can_be():
    info, raw = quantized("F32", 2, 32)
    assert np.shares_memory(dense(info, raw), raw)
    shifted = np.empty(raw.size + 1, np.uint8)[1:].reshape(raw.shape)
    shifted[:] = raw
    assert np.array_equal(dense(info, shifted), dense(info, raw))


def test_bytes_of_another_shape_are_refused():
    info, raw = quantized("Q8_0", 2, 32)
    with pytest.raises(ModelFormatError, match="needs bytes"):
        relayout(info, raw[:1])
