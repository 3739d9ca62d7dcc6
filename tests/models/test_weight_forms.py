"""Exact or fitted forms of the IQ types: which is taken, what it needs, and who says so."""

import logging

import mlx.core as mx
import numpy as np
import pytest
from gguf_files import write_tiny_llama
from mlx.utils import tree_flatten
from pairwise import each_value
from random_block_models import write_model
from whole_numbers import LEEWAY

from akunu_py import ConfigError, Engine, MemoryLimitError
from akunu_py.gguf.quants.forms import FITTED, form_of
from akunu_py.models import device, memory_check
from akunu_py.models.load import LoadOptions, convert_model, load_model
from akunu_py.models.memory_check import PROGRAM_BYTES, PlannedModel, check_memory
from akunu_py.models.requirements import requirements

CONTEXT = 128
QUANTIZED = LoadOptions(weights="quantized")
IDS = [5, 9, 80, 81, 82, 5, 9, 80, 33, 34]


@pytest.fixture(scope="module")
def iq4(tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("models") / "iq4.gguf", "IQ4_XS")


def needed(path, *, fitted):
    return requirements(path, QUANTIZED).total_bytes(CONTEXT, fitted=fitted) + PROGRAM_BYTES


@pytest.fixture
def limited(iq4, monkeypatch):
    """Sets the limit of memory, and what is loaded already."""

    def limit(num_bytes, held=0):
        monkeypatch.setattr(device, "memory_limit", lambda: num_bytes)
        monkeypatch.setattr(mx, "get_active_memory", lambda: held)

    return limit


@pytest.mark.parametrize("kind", FITTED)
def test_exact_forms_are_the_default_and_take_at_most_two_bits_more(kind):
    exact, fitted = form_of(kind), form_of(kind, fitted=True)
    assert exact.exact
    assert not fitted.exact
    assert 1 <= exact.bits_per_weight - fitted.bits_per_weight <= 2


@pytest.mark.parametrize("kind", ["IQ4_NL", "IQ3_XXS", "IQ2_XXS", "IQ2_S", "IQ1_M"])
@pytest.mark.parametrize("exact", [None, True, False])
def test_what_a_form_needs_is_foreseen(tmp_path, kind, exact):
    path = write_model(tmp_path / "m.gguf", kind)
    options = LoadOptions(weights="quantized", compute_type="float16", exact_weights=exact)
    needs, loaded = requirements(path, options), load_model(path, options)
    held = sum(array.nbytes for _, array in tree_flatten(loaded.model.parameters()))
    assert needs.weights_bytes == held
    assert (needs.fitted_bytes == held) == (exact is False)
    assert loaded.description.weights == ("fitted" if exact is False else "quantized")
    assert loaded.description.fitted_types == ((kind,) if exact is False else ())


class TestMemoryDecides:
    def test_exact_where_it_fits(self, iq4, limited):
        limited(needed(iq4, fitted=False))
        assert not check_memory([PlannedModel(iq4, QUANTIZED)])

    def test_fitted_where_exact_does_not_fit(self, iq4, limited, caplog):
        limited(needed(iq4, fitted=False) - 1)
        assert check_memory([PlannedModel(iq4, QUANTIZED)])
        assert "iq4.gguf: exact forms of the weights do not fit" in caplog.text
        limited(needed(iq4, fitted=True))
        assert check_memory([PlannedModel(iq4, QUANTIZED)], context=CONTEXT)

    def test_neither_fits(self, iq4, limited):
        limited(needed(iq4, fitted=True) - 1)
        with pytest.raises(MemoryLimitError, match=r"for the weights of iq4") as caught:
            check_memory([PlannedModel(iq4, QUANTIZED)])
        fitted = requirements(iq4, QUANTIZED).fitted_bytes
        assert f"({fitted / 1e6:.1f} MB for the weights" in str(caught.value)
        assert "exact-weights false" not in str(caught.value)

    def test_exact_weights_are_never_exchanged(self, iq4, limited):
        limited(needed(iq4, fitted=False) - 1)
        exact = LoadOptions(weights="quantized", exact_weights=True)
        with pytest.raises(MemoryLimitError, match="exact-weights false"):
            check_memory([PlannedModel(iq4, exact)])

    def test_what_is_loaded_already_is_no_reason(self, iq4, limited, monkeypatch):
        """A chat that changes its model can close the one before."""
        monkeypatch.setattr(memory_check, "_NOTICED", 0)
        limited(needed(iq4, fitted=False), held=1)
        with pytest.raises(MemoryLimitError, match="exact-weights false") as caught:
            check_memory([PlannedModel(iq4, QUANTIZED)])
        assert caught.value.fits_alone

    def test_types_without_a_fitted_form_have_no_choice(self, tmp_path, limited):
        path = write_tiny_llama(tmp_path / "m.gguf", quantization="Q8_0", context=CONTEXT)
        assert needed(path, fitted=True) == needed(path, fitted=False)
        limited(needed(path, fitted=True) - 1)
        with pytest.raises(MemoryLimitError) as caught:
            check_memory([PlannedModel(path, QUANTIZED)])
        assert "exact-weights false" not in str(caught.value)

    def test_an_engine_follows_and_says_so(self, iq4, limited, caplog):
        limited(needed(iq4, fitted=True))
        with Engine.load(iq4, weights="quantized", context=CONTEXT) as engine:
            assert engine.description.weights_text == "fitted quantized weights (IQ4_XS)"
        assert "taking fitted ones" in caplog.text
        caplog.clear()
        with Engine.load(iq4, weights="quantized", context=CONTEXT, exact_weights=True) as engine:
            assert engine.description.weights_text == "exact quantized weights"
        limited(needed(iq4, fitted=False))
        with Engine.load(iq4, weights="quantized", context=CONTEXT) as engine:
            assert engine.description.weights_text == "exact quantized weights"
        assert not caplog.text

    def test_an_engine_s_draft_model_gets_the_same_forms(self, iq4, limited):
        limited(1)
        with Engine.load(iq4, weights="quantized", draft_model=iq4) as engine:
            assert engine.description.weights == engine.draft_model.weights == "fitted"

    @pytest.mark.parametrize("exact", [True, False])
    def test_a_folder_keeps_its_form_beside_a_file(self, iq4, limited, tmp_path, exact):
        folder = tmp_path / "folder"
        convert_model(iq4, folder, LoadOptions(compute_type="float32"))
        with Engine.load(
            iq4, weights="quantized", exact_weights=exact, draft_model=folder
        ) as engine:
            assert engine.draft_model.weights == "quantized"
        limited(1)
        with Engine.load(folder, weights="quantized", draft_model=iq4) as engine:
            assert engine.description.weights == "quantized"
            assert engine.draft_model.weights == "fitted"

    def test_dense_weights_have_no_forms(self, iq4, limited, caplog):
        limited(1)
        with Engine.load(iq4, weights="dense") as engine:
            assert engine.description.weights_text == "dense weights"
        assert not caplog.text

    def test_bad_paths_are_still_for_loading_to_explain(self, tmp_path, limited):
        limited(1)
        with pytest.raises(ConfigError, match="does not exist"):
            Engine.load(tmp_path / "nothing.gguf", weights="quantized")


def test_fitted_weights_compute_something_else(iq4):
    def logits(**options):
        with Engine.load(iq4, compute_type="float32", **options) as engine:
            return engine.logits(IDS)

    file = logits(weights="dense")
    exact = logits(weights="quantized")
    fitted = logits(weights="quantized", exact_weights=False)
    # Sums of planes have another order, and float32 has 24 bits.
    assert np.abs(exact - file).max() < 4e-5 * LEEWAY * np.abs(file).max()
    assert np.abs(fitted - file).max() > 1e-3 * np.abs(file).max()


@pytest.mark.parametrize(
    ("kind", "exact"), each_value(("IQ2_XXS", "IQ2_XS", "IQ1_M", "IQ4_NL"), (True, False))
)
def test_converted_models_remember_their_forms(tmp_path, kind, exact):
    path = write_model(tmp_path / "m.gguf", kind)
    options = LoadOptions(compute_type="float32", exact_weights=exact)
    stock = convert_model(path, tmp_path / "folder", options)
    assert stock == (not exact or kind == "IQ4_NL")
    with (
        Engine.load(path, weights="quantized", exact_weights=exact) as one,
        Engine.load(tmp_path / "folder", weights="quantized") as other,
    ):
        np.testing.assert_array_equal(other.logits(IDS), one.logits(IDS))
        assert other.description.fitted_types == one.description.fitted_types
        assert other.description.weights == ("quantized" if exact else "fitted")


def test_the_log_says_which_form_was_taken(iq4, caplog):
    caplog.set_level(logging.INFO, "akunu_py")
    load_model(iq4, LoadOptions(weights="quantized", exact_weights=False))
    assert "fitted quantized weights (IQ4_XS)" in caplog.text
