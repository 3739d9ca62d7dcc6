"""Whole models in every GGML type: quantized weights compute what the expanded ones do.

And the recorded files of llama.cpp in the types of real models.
"""

import numpy as np
import pytest
from quant_blocks import QUANTIZED
from random_block_models import write_model

from akunu_py import Engine

IDS = [5, 9, 80, 81, 82, 5, 9, 80, 33, 34, 120, 7]


def logits(path, **options):
    with Engine.load(path, compute_type="float32", **options) as engine:
        return engine.logits(IDS)


@pytest.mark.parametrize("kind", QUANTIZED)
def test_logits_of_quantized_and_expanded_weights_agree(tmp_path, kind):
    path = write_model(tmp_path / "m.gguf", kind)
    dense = logits(path, weights="dense")
    quantized = logits(path, weights="quantized")
    assert np.isfinite(dense).all()
    assert dense.std() > 1e-3
    assert np.abs(quantized - dense).max() < 1e-5 * np.abs(dense).max()


# llama.cpp rounds activations to 8 bits beside quantized weights: its distance from exact
# arithmetic, root mean square over the logits' deviation, is the tolerance.
RECORDED = {
    "rand256-f32": 5e-4,
    "rand256-IQ4_NL": 2e-2,
    "rand256-Q2_K": 3e-2,
    "rand256-Q4_K": 3e-2,
    "rand256-Q4_K_M": 3e-2,
    "rand256-Q5_K": 3e-2,
    "rand256-Q6_K": 3e-2,
    "aidreams260K-f32": 5e-4,
    "aidreams260K-q8_0": 1e-2,
    "aidreams260K-q4_0": 1e-2,
}


@pytest.mark.parametrize("weights", ["dense", "quantized"])
@pytest.mark.parametrize("name", RECORDED)
def test_recorded_files_give_llama_cpps_logits_and_text(shared_models, name, weights):
    path = shared_models / f"{name}.gguf"
    ids = np.load(shared_models / "ids.npy").tolist()
    expected = np.load(f"{path}.logits.npy")
    greedy = np.load(f"{path}.greedy.npy").tolist()
    with Engine.load(path, weights=weights) as engine:
        found, along = engine.logits(ids), engine.logits(greedy)[:-1]
    difference = found - expected
    assert np.sqrt((difference**2).mean()) / expected.std() < RECORDED[name]
    # Where two tokens are nearly tied for llama.cpp, either may win.
    largest = np.abs(difference).max()
    chosen = along[np.arange(len(along)), greedy[1:]]
    assert (along.max(axis=1) - chosen <= 2 * largest).all()
    assert (along.argmax(axis=1) == greedy[1:]).mean() > 0.9
