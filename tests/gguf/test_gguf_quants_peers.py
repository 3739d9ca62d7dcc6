"""Codebooks against gguf's tables, blocks that ggml made against what it reads in them."""

import gguf.quants
import numpy as np
import pytest
from quant_blocks import QUANTIZED, info_of, weights_of
from quantized_references import recorded

from akunu_py.gguf import dequantize, relayout
from akunu_py.gguf.quants.forms import form_of
from akunu_py.gguf.quants.iq_blocks import (
    IQ2_MAGNITUDES,
    IQ3_XXS_MAGNITUDES,
    IQ4_VALUES,
    grid,
    sign_bytes,
)


@pytest.mark.parametrize(
    ("name", "magnitudes"),
    [
        ("IQ2_XXS", IQ2_MAGNITUDES),
        ("IQ2_XS", IQ2_MAGNITUDES),
        ("IQ2_S", IQ2_MAGNITUDES),
        ("IQ3_XXS", IQ3_XXS_MAGNITUDES),
        ("IQ3_S", range(1, 16, 2)),
        ("IQ1_S", (-1, 0, 1)),
    ],
)
def test_grids_are_ggml_s(name, magnitudes):
    theirs = getattr(gguf.quants, name)
    theirs.init_grid()
    ours = np.array(magnitudes)[grid(name)]
    assert np.array_equal(ours, theirs.grid.reshape(theirs.grid_shape))


def test_signs_and_values_are_ggml_s():
    assert sign_bytes().tobytes() == gguf.quants.IQ2_XXS.ksigns
    assert gguf.quants.IQ4_NL.kvalues == IQ4_VALUES


def test_tables_are_read_only():
    for table in (grid("IQ1_S"), sign_bytes()):
        with pytest.raises(ValueError, match="read-only"):
            table[0] = 0


@pytest.mark.parametrize("kind", QUANTIZED)
def test_blocks_ggml_made(kind):
    """The same numbers as ggml reads, and hardly more quantization error by float16 scales."""
    originals, theirs = recorded("common")["weights"], recorded(kind)["weights"]
    info = info_of(kind, *originals.shape)
    raw = recorded(kind)["blocks"][: len(originals)]
    assert np.array_equal(dequantize(info, raw), theirs)
    if form_of(kind).mode == "affine":
        own = np.sqrt(np.mean((theirs - originals) ** 2.0))
        kept = np.sqrt(np.mean((weights_of(relayout(info, raw)) - originals) ** 2.0))
        assert kept <= own * 1.001
