"""Files of real types against llama.cpp's float32 results on the same weights."""

import numpy as np
import pytest

from akunu_py import Engine

NAMES = (
    *(f"aidreams260K-{kind}" for kind in ("f32", "f16", "q8_0", "q4_0")),
    *(f"rand256-{kind}" for kind in ("f32", "IQ4_NL", "Q2_K", "Q4_K", "Q4_K_M", "Q5_K", "Q6_K")),
)

TOLERANCE = 1e-4
"""Largest difference of a logit, of the logits' standard deviation; measured: 6e-6."""


@pytest.mark.parametrize("weights", ["dense", "quantized"])
@pytest.mark.parametrize("name", NAMES)
def test_recorded_files_give_llama_cpps_logits_and_text(shared_models, name, weights):
    path = shared_models / f"{name}.gguf"
    ids = np.load(shared_models / "ids.npy").tolist()
    logits = np.load(f"{path}.float32-logits.npy")
    first, *text = np.load(f"{path}.float32-greedy.npy").tolist()
    with Engine.load(path, weights=weights, exact_weights=True) as engine:
        assert np.abs(engine.logits(ids) - logits).max() < TOLERANCE * logits.std()
        # llama.cpp's loop did not stop at an end-of-generation token.
        never = dict.fromkeys(engine.tokenizer.end_ids, -1e6)
        for drafter in ("none", "ngram"):
            reply = engine.generate(
                [first], max_tokens=len(text), drafter=drafter, logit_bias=never
            )
            assert list(reply.token_ids) == text
