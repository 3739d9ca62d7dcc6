"""What is read from blocks: exact weights against gguf's dequantizer, and what is refused."""

import os
import sys
import threading

import gguf
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from programs import python
from quant_blocks import (
    FOUR_BIT_FLOATS,
    HALVES,
    QUANTIZED,
    TYPES,
    info_of,
    random_blocks,
    set_halves,
)

from akunu_py.gguf import QuantizedMatrix, dense, dequantize, relayout
from akunu_py.gguf.quants.forms import SUPPORTED_TYPES
from akunu_py.gguf.quants.matrix import release_threads
from akunu_py.gguf.quants.scratch import ReusedMemory
from akunu_py.system.errors import ModelFormatError, UnsupportedQuantizationError

BY_FORMULA = ("Q1_0", "Q2_0")  # which gguf does not dequantize
BY_GGUF = tuple(kind for kind in QUANTIZED if kind not in BY_FORMULA)

finite_halves = st.integers(0, 0xFFFF).filter(lambda bits: bits & 0x7C00 != 0x7C00)
scale_lists = st.lists(
    finite_halves.map(lambda bits: np.uint16(bits).view(np.float16)), min_size=1, max_size=12
)
EDGES = [0.0, -0.0, 6e-8, -6e-8, 5.96e-5, 6.1e-5, -0.01, 65504.0, -65504.0]


def reference(kind, raw):
    with np.errstate(over="ignore"):  # of MXFP4's largest scales
        return gguf.dequantize(raw, gguf.GGMLQuantizationType[kind])


@pytest.mark.fast_every(2)
@pytest.mark.parametrize("kind", BY_GGUF)
@settings(max_examples=15)
@given(seed=st.integers(0, 2**32 - 1), values=scale_lists)
@example(seed=0, values=EDGES)
def test_any_bytes_with_finite_scales_dequantize_as_gguf(kind, seed, values):
    info, raw = random_blocks(kind, 2, 512, seed, values)
    ours = dequantize(info, raw)
    assert ours.dtype == np.float32
    assert np.array_equal(ours, reference(kind, raw))


@pytest.mark.parametrize("kind", ["F32", "F16", "BF16"])
@pytest.mark.parametrize(("rows", "cols"), [(1, 32), (7, 96), (3, 4096)])
def test_dense_types_dequantize_exactly(kind, rows, cols):
    weights = np.random.default_rng(0).normal(0, 1, (rows, cols)).astype(np.float32)
    raw = gguf.quantize(weights, gguf.GGMLQuantizationType[kind]).view(np.uint8).reshape(rows, -1)
    expected = {
        "F32": lambda: weights,
        "F16": lambda: weights.astype(np.float16),
        "BF16": lambda: gguf.dequantize(raw, gguf.GGMLQuantizationType.BF16),
    }[kind]()
    ours = dequantize(info_of(kind, rows, cols), raw)
    assert ours.dtype == np.float32
    assert np.array_equal(ours, expected)


def test_q1_0_by_its_formula():
    """Bit i of byte i / 8 is the sign: d where it is set, else -d."""
    info, raw = random_blocks("Q1_0", 3, 384, 1)
    ours = dequantize(info, raw)
    for row in range(3):
        for index in range(384):
            block = raw[row, index // 128 * 18 :][:18]
            d = float(block[:2].view(np.float16)[0])
            bit = block[2 + index % 128 // 8] >> index % 8 & 1
            assert ours[row, index] == (d if bit else -d)


def test_q2_0_by_its_formula():
    """Two bits a weight, the first in the lowest ones: d * (q - 1)."""
    info, raw = random_blocks("Q2_0", 3, 192, 1)
    ours = dequantize(info, raw)
    for row in range(3):
        for index in range(192):
            block = raw[row, index // 64 * 18 :][:18]
            d = float(block[:2].view(np.float16)[0])
            q = int(block[2 + index % 64 // 4] >> 2 * (index % 4) & 3)
            assert ours[row, index] == d * (q - 1)


@pytest.mark.parametrize("scale", [0, 1, 2, 126, 127, 128, 250, 251, 252])
def test_every_mxfp4_scale_byte_is_ggml_s(scale):
    info, raw = random_blocks("MXFP4", 2, 256, scale)
    raw[:, ::17] = scale
    assert np.array_equal(dequantize(info, raw), reference("MXFP4", raw))


def test_every_nvfp4_scale_byte_is_ggml_s():
    info, raw = random_blocks("NVFP4", 64, 64, 1)
    raw[:, :4] = np.arange(256, dtype=np.uint8).reshape(64, 4)
    raw[:, :4][raw[:, :4] & 0x7F == 0x7F] = 0x80
    assert np.array_equal(dequantize(info, raw), reference("NVFP4", raw))


@pytest.mark.parametrize("kind", ["Q4_K", "Q6_K", "Q8_0", "IQ2_S", "NVFP4"])
def test_many_rows_cross_chunks_and_threads(kind):
    info, raw = random_blocks(kind, 4001, 2048, 5)
    weights = dequantize(info, raw)
    assert info.nbytes > 1 << 21
    part = slice(3990, 4001)
    assert np.array_equal(weights[part], reference(kind, raw[part]))
    assert np.array_equal(weights[:5], reference(kind, raw[:5]))
    matrix, tail = relayout(info, raw), relayout(info_of(kind, 11, 2048), raw[part])
    assert np.array_equal(matrix.packed[part], tail.packed)
    assert np.array_equal(matrix.scales[part], tail.scales)
    assert (matrix.biases is None) == (tail.biases is None)
    assert tail.biases is None or np.array_equal(matrix.biases[part], tail.biases)


def test_rows_picked_from_a_file_and_strided_ones():
    info, raw = random_blocks("Q5_K", 6, 256, 5)
    raw.flags.writeable = False
    expected = reference("Q5_K", raw)
    part = info_of("Q5_K", 3, 256)
    assert np.array_equal(dequantize(part, raw[[4, 0, 4]]), expected[[4, 0, 4]])
    assert np.array_equal(dequantize(part, raw[::2]), expected[::2])
    wide = np.zeros((6, 2 * info.row_bytes), np.uint8)
    wide[:, 1 : 1 + info.row_bytes] = raw  # not aligned either
    assert np.array_equal(dequantize(info, wide[:, 1 : 1 + info.row_bytes]), expected)


@pytest.mark.parametrize("kind", HALVES)
@pytest.mark.parametrize("scale", [np.nan, np.inf, -np.inf])
def test_scales_that_are_not_finite_are_refused(kind, scale):
    for place in HALVES[kind]:
        info, raw = random_blocks(kind, 2, 512, 0)
        last = raw.reshape(-1, info.type.block_bytes)[-1:]
        if place < 0:
            set_halves(kind, last, [scale])
        else:
            last[0, place : place + 2] = np.float16([scale]).view(np.uint8)
        for function in (relayout, dequantize):
            with pytest.raises(ModelFormatError, match=r"blk\.0\.attn_q\.weight.*not finite"):
                function(info, raw)


@pytest.mark.parametrize(
    ("kind", "byte"),
    [("MXFP4", 253), ("MXFP4", 254), ("MXFP4", 255), ("NVFP4", 0x7F), ("NVFP4", 0xFF)],
)
def test_scale_bytes_without_a_common_meaning_are_refused(kind, byte):
    info, raw = random_blocks(kind, 3, 64, 0)
    raw[1, 0 if kind == "MXFP4" else 3] = byte
    for function in (relayout, dequantize):
        with pytest.raises(ModelFormatError, match=r"blk\.0\.attn_q\.weight.*not finite"):
            function(info, raw)


def test_what_is_supported():
    left = {"Q8_1", "Q8_K", "I8", "I16", "I32", "I64", "F64"}
    assert set(SUPPORTED_TYPES) == set(TYPES) - left
    assert set(QUANTIZED) == set(SUPPORTED_TYPES) - {"F32", "F16", "BF16"}


@pytest.mark.parametrize("kind", sorted(set(TYPES) - set(SUPPORTED_TYPES)))
def test_other_types_are_named(kind):
    info = info_of(kind, 1, 256)
    raw = np.zeros((1, info.row_bytes), np.uint8)
    for function in (relayout, dense, dequantize):
        with pytest.raises(UnsupportedQuantizationError, match=f"attn_q.* {kind},.*Q8_0.*NVFP4"):
            function(info, raw)


def test_dense_is_a_view_where_it_can_be():
    info = info_of("F32", 2, 32)
    raw = np.random.default_rng(0).normal(0, 1, (2, 32)).astype(np.float32).view(np.uint8)
    assert np.shares_memory(dense(info, raw), raw)
    shifted = np.empty(raw.size + 1, np.uint8)[1:].reshape(raw.shape)
    shifted[:] = raw
    assert np.array_equal(dense(info, shifted), dense(info, raw))


@pytest.mark.parametrize("kind", ["Q4_K", "F16", *FOUR_BIT_FLOATS])
def test_bytes_of_another_shape_are_refused(kind):
    info = info_of(kind, 2, 256)
    raw = np.zeros((2, info.row_bytes), np.uint8)
    for wrong in (raw[:1], raw[:, :-1], raw.view(np.int8)):
        for function in (relayout, dequantize):
            with pytest.raises(ModelFormatError, match="needs bytes"):
                function(info, wrong)


def test_defaults_give_float16_scales():
    matrix = relayout(*random_blocks("Q8_0", 5, 128, 0))
    assert isinstance(matrix, QuantizedMatrix)
    form = (matrix.bits, matrix.group_size, matrix.mode, matrix.multipliers)
    assert form == (8, 32, "affine", ())
    assert (matrix.packed.dtype, matrix.packed.shape) == (np.uint32, (5, 32))
    assert (matrix.scales.dtype, matrix.scales.shape) == (np.float16, (5, 4))
    assert (matrix.biases.dtype, matrix.biases.shape) == (np.float16, (5, 4))


@pytest.mark.parametrize("kind", ["Q4_K", "Q6_K", "MXFP4"])
def test_results_in_memory_used_again(kind):
    memory = ReusedMemory(1 << 20)
    info, raw = random_blocks(kind, 64, 512, seed=1)
    expected = relayout(info, raw)
    other, bytes_ = random_blocks("Q8_0", 64, 512, seed=2)
    # The third does not fit any more and gets memory of its own.
    for rows in (64, 64, 2048):
        memory.begin()
        relayout(other, bytes_, memory=memory)
        memory.begin()
        info, raw = random_blocks(kind, rows, 512, seed=1)
        found = relayout(info, raw, memory=memory)
        expected = relayout(info, raw)
        np.testing.assert_array_equal(found.packed, expected.packed)
        np.testing.assert_array_equal(found.scales, expected.scales)
        if expected.biases is not None:
            np.testing.assert_array_equal(found.biases, expected.biases)


def test_threads_are_made_anew_after_they_were_released():
    info, raw = random_blocks("Q4_K", 4096, 2048, seed=1)
    expected = relayout(info, raw)
    release_threads()
    release_threads()
    np.testing.assert_array_equal(relayout(info, raw).packed, expected.packed)
    release_threads()
    assert not [thread for thread in threading.enumerate() if "akunu-relayout" in thread.name]


def test_a_forked_process_has_threads_of_its_own():
    script = """
import os, sys, warnings
warnings.simplefilter("ignore")
from quant_blocks import random_blocks
from akunu_py.gguf import relayout
relayout(*random_blocks("Q4_K", 4096, 2048, seed=1))
child = os.fork()
if child == 0:
    relayout(*random_blocks("Q4_K", 4096, 2048, seed=1))
    os._exit(7)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    python("-c", script, code=7, variables={"PYTHONPATH": os.pathsep.join(sys.path)}, timeout=300)
