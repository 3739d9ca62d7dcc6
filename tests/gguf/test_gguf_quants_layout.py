"""What is written: the packed form read back bit by bit, against exact weights."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from quant_blocks import (
    FOUR_BIT_FLOATS,
    HALVES,
    QUANTIZED,
    codes_of,
    info_of,
    magnitudes_of,
    random_blocks,
    set_halves,
    weights_of,
)

from akunu_py.gguf import dequantize, relayout
from akunu_py.gguf.quants.forms import SUPPORTED_TYPES, form_of

AFFINE = tuple(HALVES)
OWN_SCALES = ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "TQ1_0", "TQ2_0", "Q1_0", "Q2_0", "IQ4_NL")
ONLY_THE_SCALE_ROUNDS = ("Q3_K", "IQ4_XS", "IQ3_XXS", "IQ2_S", "IQ2_XS", "IQ2_XXS")

FORMS = {  # bits, group, planes, bits a weight
    "Q4_0": (4, 32, 0, 5),
    "Q4_1": (4, 32, 0, 5),
    "Q5_0": (5, 32, 0, 6),
    "Q5_1": (5, 32, 0, 6),
    "Q8_0": (8, 32, 0, 9),
    "Q2_K": (1, 32, 2, 4),
    "Q3_K": (2, 32, 2, 6),
    "Q4_K": (4, 32, 0, 5),
    "Q5_K": (5, 32, 0, 6),
    "Q6_K": (3, 32, 2, 8),
    "TQ1_0": (2, 128, 0, 2.25),
    "TQ2_0": (2, 128, 0, 2.25),
    "Q1_0": (1, 128, 0, 1.25),
    "Q2_0": (2, 64, 0, 2.5),
    "IQ4_NL": (8, 32, 0, 9),
    "IQ4_XS": (8, 32, 0, 9),
    "IQ3_S": (4, 32, 0, 5),
    "IQ3_XXS": (6, 32, 0, 7),
    "IQ2_S": (1, 64, 4, 6),
    "IQ2_XS": (1, 64, 4, 6),
    "IQ2_XXS": (1, 128, 4, 5),
    "IQ1_S": (2, 32, 0, 3),
    "IQ1_M": (2, 32, 2, 6),
}


@pytest.mark.parametrize("kind", AFFINE)
def test_forms_are_what_form_of_says(kind):
    bits, group, planes, per_weight = FORMS[kind]
    form = form_of(kind)
    assert (form.bits, form.group_size, form.mode) == (bits, group, "affine")
    assert (len(form.multipliers), form.bits_per_weight) == (planes, per_weight)
    matrix = relayout(*random_blocks(kind, 3, 512, 0))
    assert (matrix.bits, matrix.group_size, matrix.mode) == (bits, group, "affine")
    assert matrix.multipliers == form.multipliers
    stored = 512 * max(1, planes)
    assert (matrix.packed.dtype, matrix.packed.shape) == (np.uint32, (3, stored * bits // 32))
    for array in (matrix.scales, matrix.biases):
        assert (array.dtype, array.shape) == (np.float16, (3, stored // group))
    nbytes = matrix.packed.nbytes + matrix.scales.nbytes + matrix.biases.nbytes
    assert nbytes * 8 == per_weight * 3 * 512


@pytest.mark.parametrize("kind", FOUR_BIT_FLOATS)
def test_four_bit_floats_stay_what_they_are(kind):
    group, mode = (32, "mxfp4") if kind == "MXFP4" else (16, "nvfp4")
    form = form_of(kind)
    assert (form.bits, form.group_size, form.mode, form.multipliers) == (4, group, mode, ())
    assert form.bits_per_weight == 4 + 8 / group
    matrix = relayout(*random_blocks(kind, 3, 128, 0))
    assert (matrix.bits, matrix.group_size, matrix.mode) == (4, group, mode)
    assert (matrix.packed.dtype, matrix.packed.shape) == (np.uint32, (3, 16))
    assert (matrix.scales.dtype, matrix.scales.shape) == (np.uint8, (3, 128 // group))
    assert matrix.biases is None


@pytest.mark.parametrize(("kind", "bits"), [("F32", 32), ("F16", 16), ("BF16", 16)])
def test_dense_forms(kind, bits):
    form = form_of(kind)
    assert (form.mode, form.bits, form.bits_per_weight) == ("dense", bits, bits)


def test_form_of_knows_the_supported_types_alone():
    for kind in SUPPORTED_TYPES:
        form_of(kind)
    with pytest.raises(KeyError):
        form_of("Q8_K")


@pytest.mark.parametrize("kind", AFFINE)
@settings(max_examples=6)
@given(seed=st.integers(0, 2**32 - 1))
def test_float32_scales_keep_the_weights(kind, seed):
    info, raw = random_blocks(kind, 2, 256, seed)
    matrix = relayout(info, raw, scale_type="float32")
    assert matrix.scales.dtype == matrix.biases.dtype == np.float32
    exact = dequantize(info, raw).astype(np.float64)
    if kind in ("Q2_K", "Q6_K"):  # their biases are divided by 3 / 2 and 9 / 8
        assert np.all(np.abs(weights_of(matrix) - exact) <= 1e-7 * magnitudes_of(matrix))
        assert np.abs(weights_of(matrix) - exact).max() <= 1e-6 * np.abs(exact).max()
    else:
        assert np.array_equal(weights_of(matrix).astype(np.float32), exact.astype(np.float32))


@pytest.mark.parametrize("kind", AFFINE)
@settings(max_examples=6)
@given(seed=st.integers(0, 2**32 - 1))
def test_float16_scales_move_weights_by_their_rounding_alone(kind, seed):
    info, raw = random_blocks(kind, 2, 256, seed)
    matrix = relayout(info, raw)
    assert matrix.scales.dtype == matrix.biases.dtype == np.float16
    exact = dequantize(info, raw).astype(np.float64)
    error = np.abs(weights_of(matrix) - exact)
    # Half a unit in the last place is 2**-11 of a number, or 2**-25 of a subnormal one, which a
    # code of up to 8 bits and its zero point multiply.
    subnormal = 2.0**-25 * 2**8
    if kind in OWN_SCALES:
        assert not error.any()
    elif kind in ONLY_THE_SCALE_ROUNDS:
        assert np.all(error <= 2.0**-11 * np.abs(exact) + subnormal)
        assert not error[exact == 0].any()
    else:
        assert np.all(error <= 2.0**-10 * magnitudes_of(matrix) + subnormal)


@pytest.mark.parametrize("kind", AFFINE)
@settings(max_examples=4)
@given(seed=st.integers(0, 2**32 - 1))
@example(seed=0)
def test_extreme_scales(kind, seed):
    """Zero, negative and denormal scales, and those so large that float16 cannot hold them."""
    info, raw = random_blocks(kind, 2, 512, seed, [0.0, -0.0, -0.02, 6e-8, -6e-8, 5e-5, 3e-4])
    matrix = relayout(info, raw, scale_type="float32")
    exact = dequantize(info, raw).astype(np.float64)
    assert np.allclose(weights_of(matrix), exact, rtol=1e-6, atol=1e-7 * np.abs(exact).max())
    set_halves(kind, raw, [0.01] * 3 + [65504.0])
    matrix = relayout(info, raw)
    exact = dequantize(info, raw).astype(np.float64)
    assert np.isfinite(matrix.scales).all()
    assert np.isfinite(matrix.biases).all()
    if matrix.scales.dtype == np.float32:
        assert matrix.biases.dtype == np.float32
        assert np.all(np.abs(weights_of(matrix) - exact) <= 1e-7 * magnitudes_of(matrix))
    else:
        assert kind in ("Q4_1", "Q5_1", "TQ1_0", "TQ2_0", "Q2_0", "IQ1_S")


@pytest.mark.parametrize(
    ("kind", "limit"),
    [("Q8_0", 511.75), ("Q4_0", 8188.0), ("Q5_0", 4094.0), ("Q1_0", 32752.0), ("TQ2_0", 65504.0)],
)
def test_float32_begins_where_float16_ends(kind, limit):
    info, raw = random_blocks(kind, 2, 256, 0)
    set_halves(kind, raw, [limit])
    matrix = relayout(info, raw)
    assert matrix.scales.dtype == matrix.biases.dtype == np.float16
    assert np.array_equal(weights_of(matrix), dequantize(info, raw))
    if limit < 65504:
        set_halves(kind, raw, [0.01, 0.01, 0.01, limit * 1.01])
        matrix = relayout(info, raw)
        assert matrix.scales.dtype == matrix.biases.dtype == np.float32
        assert np.array_equal(weights_of(matrix), dequantize(info, raw))


@pytest.mark.parametrize("kind", ["Q2_K", "Q4_K", "Q5_K"])
@pytest.mark.parametrize("place", [0, 1])
def test_either_of_scale_and_bias_may_overflow(kind, place):
    info, raw = random_blocks(kind, 1, 256, 0)
    start = HALVES[kind][place]
    raw[0, start : start + 2] = np.float16([60000]).view(np.uint8)
    matrix = relayout(info, raw)
    assert matrix.scales.dtype == matrix.biases.dtype == np.float32
    large, small = (matrix.biases, matrix.scales) if place else (matrix.scales, matrix.biases)
    assert np.abs(large).max() > 65504 > np.abs(small).max()


def test_overflow_in_one_chunk_makes_the_whole_tensor_float32():
    info, raw = random_blocks("Q8_0", 3000, 1024, 0)
    set_halves("Q8_0", raw[-1:], [600.0])
    matrix = relayout(info, raw)
    assert matrix.scales.dtype == matrix.biases.dtype == np.float32
    assert np.array_equal(
        weights_of(relayout(info_of("Q8_0", 1, 1024), raw[-1:])), dequantize(info, raw)[-1:]
    )
    assert np.array_equal(matrix.biases, -128 * matrix.scales)


def test_nibbles_by_hand():
    """Byte j of a Q4_0 block holds elements j and j + 16; MLX wants 2 j and 2 j + 1."""
    block = np.concatenate([np.float16([1]).view(np.uint8), np.arange(16, dtype=np.uint8)])
    block[2:] |= (15 - np.arange(16, dtype=np.uint8)) << 4
    matrix = relayout(info_of("Q4_0", 1, 32), block[None])
    assert codes_of(matrix).tolist() == [[*range(16), *reversed(range(16))]]
    assert matrix.biases.tolist() == [[-8.0]]


@pytest.mark.parametrize("kind", FOUR_BIT_FLOATS)
def test_nibbles_of_four_bit_floats(kind):
    info, raw = random_blocks(kind, 2, 64, 3)
    size = 17 if kind == "MXFP4" else 36
    strip, scales = (16, 1) if kind == "MXFP4" else (8, 4)
    expected = []
    for block in raw.reshape(-1, size):
        for part in block[scales:].reshape(-1, strip):
            expected += [*(part & 15), *(part >> 4)]
    matrix = relayout(info, raw)
    assert codes_of(matrix).reshape(-1).tolist() == expected
    kept = raw.reshape(-1, size)[:, :scales]
    assert np.array_equal(
        matrix.scales.reshape(-1), (kept & 0x7F if scales == 4 else kept).reshape(-1)
    )


def test_planes_by_hand():
    """Of 16 codes the upper halves come first; the lower ones count 2**-h as much."""
    info, raw = random_blocks("Q6_K", 1, 256, 4)
    raw[0, 192:208] = 1
    set_halves("Q6_K", raw, [1.0])
    codes = dequantize(info, raw)[0].astype(int) + 32
    matrix = relayout(info, raw, scale_type="float32")
    stored = codes_of(matrix).reshape(16, 2, 16)
    assert np.array_equal(stored[:, 0].reshape(-1), codes >> 3)
    assert np.array_equal(stored[:, 1].reshape(-1), codes & 7)
    assert (matrix.scales == 8).all()
    assert np.allclose(matrix.biases, -32 / (1 + 1 / 8), rtol=1e-7)


@pytest.mark.parametrize(("kind", "width"), [("IQ2_XXS", 32), ("IQ2_XS", 16), ("IQ2_S", 16)])
def test_sign_planes_by_hand(kind, width):
    """The bits of +-17.5, +-16.5 and +-9, whose sum is the weight; the fourth plane is empty."""
    info, raw = random_blocks(kind, 1, 256, 4)
    matrix = relayout(info, raw, scale_type="float32")
    stored = codes_of(matrix).reshape(256 // width, 4, width)
    assert not stored[:, 3].any()
    signs = 2 * stored[:, :3] - 1
    sums = (signs * np.array([17.5, 16.5, 9])[:, None]).sum(axis=1)
    assert set(np.abs(sums).reshape(-1)) == {8, 25, 43}
    scales = matrix.scales.reshape(-1, 1) / 64
    assert np.array_equal((scales * sums).reshape(1, 256), dequantize(info, raw))
    assert np.array_equal(matrix.biases, -matrix.scales / 2)


def test_q6_k_in_8_bits():
    assert form_of("Q6_K", q6k="8bit").bits_per_weight == 9
    for values in (None, [0.01, -0.01, 0.0]):
        info, raw = random_blocks("Q6_K", 4, 512, 9, values)
        raw.reshape(-1, 210)[:, 192:196] = [0x80, 0x80, 0, 0]
        raw.reshape(-1, 210)[:, 196:198] = [0x7F, 0x81]
        matrix = relayout(info, raw, scale_type="float32", q6k="8bit")
        assert (matrix.bits, matrix.group_size, matrix.multipliers) == (8, 32, ())
        scales = np.abs(raw.reshape(-1, 210)[:, 192:208].view(np.int8).astype(float))
        halves = np.frombuffer(raw.reshape(-1, 210)[:, 208:].tobytes(), np.float16).astype(float)
        larger = (scales * np.abs(halves)[:, None]).reshape(-1, 2).max(axis=1)
        error = np.abs(weights_of(matrix) - dequantize(info, raw)).reshape(-1, 32)
        # The code 256 does not exist: a whole step off where the scales are opposite.
        assert (error.max(axis=1) <= larger / 4 * 1.0001).all()
        assert (np.sort(error, axis=1)[:, :16] <= 1e-6 * larger[:, None]).all()


@pytest.mark.parametrize("kind", QUANTIZED)
def test_nothing_is_written_to_the_file_s_bytes(kind):
    info, raw = random_blocks(kind, 2, 256, 0)
    before = raw.copy()
    relayout(info, raw)
    dequantize(info, raw)
    assert np.array_equal(raw, before)
