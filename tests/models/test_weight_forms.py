"""The forms of quantized types in memory: what they need, compute, and are called."""

import logging

import numpy as np
import pytest
from mlx.utils import tree_flatten
from random_block_models import write_model
from whole_numbers import LEEWAY

from akunu_py import Engine
from akunu_py.models.load import LoadOptions, convert_model, load_model
from akunu_py.models.requirements import requirements

IDS = [5, 9, 80, 81, 82, 5, 9, 80, 33, 34]
KINDS = ["IQ4_NL", "IQ3_XXS", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ1_M", "Q6_K"]


@pytest.mark.parametrize("q6k", ["planes", "8bit"])
@pytest.mark.parametrize("kind", KINDS)
def test_what_a_form_needs_is_foreseen(tmp_path, kind, q6k, caplog):
    caplog.set_level(logging.INFO, "akunu_py")
    path = write_model(tmp_path / "m.gguf", kind)
    options = LoadOptions(weights="quantized", compute_type="float16", q6k=q6k)
    loaded = load_model(path, options)
    held = sum(array.nbytes for _, array in tree_flatten(loaded.model.parameters()))
    assert requirements(path, options).weights_bytes == held
    text = "exact quantized weights"
    if (kind, q6k) == ("Q6_K", "8bit"):
        text = "quantized weights, Q6_K anew"
    assert loaded.description.weights_text == text
    assert text in caplog.text


def test_quantized_weights_compute_what_dense_ones_do(tmp_path):
    path = write_model(tmp_path / "m.gguf", "IQ4_XS")

    def logits(weights):
        with Engine.load(path, compute_type="float32", weights=weights) as engine:
            return engine.logits(IDS)

    file = logits("dense")
    # Sums of planes have another order, and float32 has 24 bits.
    assert np.abs(logits("quantized") - file).max() < 4e-5 * LEEWAY * np.abs(file).max()


@pytest.mark.parametrize("kind", ["IQ2_XXS", "IQ2_XS", "IQ1_M", "IQ4_NL"])
def test_converted_models_have_their_forms(tmp_path, kind):
    path = write_model(tmp_path / "m.gguf", kind)
    stock = convert_model(path, tmp_path / "folder", LoadOptions(compute_type="float32"))
    assert stock == (kind == "IQ4_NL")
    with (
        Engine.load(path, weights="quantized") as one,
        Engine.load(tmp_path / "folder", weights="quantized") as other,
    ):
        np.testing.assert_array_equal(other.logits(IDS), one.logits(IDS))


def test_converted_models_remember_that_they_are_not_exact(tmp_path):
    path = write_model(tmp_path / "m.gguf", "Q6_K")
    convert_model(path, tmp_path / "folder", LoadOptions(compute_type="float32", q6k="8bit"))
    with Engine.load(tmp_path / "folder", weights="quantized") as engine:
        assert engine.description.weights_text == "quantized weights, Q6_K anew"
