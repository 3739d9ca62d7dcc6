"""Whole models in every type: quantized weights compute what the expanded ones do, and llama.cpp."""

import numpy as np
import pytest
from pairwise import each_value
from quant_blocks import QUANTIZED
from quantized_references import recorded, recorded_models, write_quantized
from random_block_models import write_model
from whole_numbers import LEEWAY

from akunu_py import Engine


def logits(path, **options):
    with Engine.load(path, compute_type="float32", **options) as engine:
        return engine.logits([5, 9, 80, 81, 82, 5, 9, 80, 33, 34, 120, 7])


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


TOLERANCE = 2e-4 * LEEWAY
"""Largest difference of a logit, where logits have a deviation of 4; measured: 5e-5."""


@pytest.mark.fast_every(3)
@pytest.mark.parametrize(("name", "weights"), each_value(recorded_models(), ("dense", "quantized")))
def test_blocks_of_ggml_give_llama_cpps_logits_and_text(tmp_path, name, weights):
    path = write_quantized(tmp_path / "m.gguf", name)
    golden = recorded(name)
    ids, greedy = golden["ids"].tolist(), golden["greedy"].tolist()
    # Then rounding decides no token.
    assert golden["margins"].min() > 2 * TOLERANCE
    options = {"weights": weights, "compute_type": "float32"}
    with Engine.load(path, **options) as engine:
        assert np.abs(engine.logits(ids) - golden["logits"]).max() < TOLERANCE
        never = dict.fromkeys(engine.tokenizer.end_ids, -1e6)
        for drafter in ("none", "ngram"):
            reply = engine.generate(ids, max_tokens=len(greedy), drafter=drafter, logit_bias=never)
            assert list(reply.token_ids) == greedy


def test_every_type_was_recorded():
    assert set(recorded_models()) == {*QUANTIZED, "F16", "BF16", "Q4_K_M"}
