"""Models in every type, whose blocks ggml made, against llama.cpp's float32 results on the same weights."""

import numpy as np
import pytest
from pairwise import each_value
from quant_blocks import QUANTIZED
from quantized_references import recorded, recorded_models, write_quantized
from whole_numbers import LEEWAY

from akunu_py import Engine

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
    options = {"weights": weights, "exact_weights": True, "compute_type": "float32"}
    with Engine.load(path, **options) as engine:
        assert np.abs(engine.logits(ids) - golden["logits"]).max() < TOLERANCE
        never = dict.fromkeys(engine.tokenizer.end_ids, -1e6)
        for drafter in ("none", "ngram"):
            reply = engine.generate(ids, max_tokens=len(greedy), drafter=drafter, logit_bias=never)
            assert list(reply.token_ids) == greedy


def test_every_type_was_recorded():
    assert set(recorded_models()) == {*QUANTIZED, "F16", "BF16", "Q4_K_M"}
