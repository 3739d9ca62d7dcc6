"""Whole models in every GGML type: quantized weights compute what the expanded ones do."""

import numpy as np
import pytest
from quant_blocks import QUANTIZED
from random_block_models import write_model
from whole_numbers import LEEWAY

from akunu_py import Engine

IDS = [5, 9, 80, 81, 82, 5, 9, 80, 33, 34, 120, 7]


def logits(path, **options):
    with Engine.load(path, compute_type="float32", **options) as engine:
        return engine.logits(IDS)


@pytest.mark.fast_every(2)
@pytest.mark.parametrize("kind", QUANTIZED)
def test_logits_of_quantized_and_expanded_weights_agree(tmp_path, kind):
    path = write_model(tmp_path / "m.gguf", kind)
    dense = logits(path, weights="dense")
    quantized = logits(path, weights="quantized")
    assert np.isfinite(dense).all()
    assert dense.std() > 1e-3
    # Sums in float32 and in another order: those of dense weights are the less exact ones.
    assert np.abs(quantized - dense).max() < 4e-5 * LEEWAY * np.abs(dense).max()
