"""What of the Phi models no golden file shows."""

import numpy as np
import pytest
from tiny_architectures.builder import build

from akunu_py import Engine
from akunu_py.gguf import GGUFFile, read_plan
from akunu_py.system.errors import ModelFormatError, UnsupportedArchitectureError

IDS = [5, 50, 90, 17, 201, 33, 77, 8, 120, 64, 31, 99, 140, 3, 250, 12, 45, 180, 66, 20, 111, 7]
WINDOW = 4


def model_of(**keys):
    model = build("phi3")
    model.keys(**keys)
    return model


def load(path, **options):
    return Engine.load(path, weights="dense", compute_type="float32", **options)


def test_tokens_beyond_the_window_of_every_layer_count_for_nothing(tmp_path):
    """llama.cpp leaves the window out: with 3 layers of 4 tokens a token sees 10 back at most."""
    path = model_of(attention__sliding_window=WINDOW).write(tmp_path / "model.gguf")
    reach = 3 * (WINDOW - 1)
    with load(path) as engine:
        kept = engine.logits(IDS)[-1]
        beyond, within = list(IDS), list(IDS)
        beyond[-2 - reach], within[-1 - reach] = 1, 1
        assert np.array_equal(engine.logits(beyond)[-1], kept)
        assert np.abs(engine.logits(within)[-1] - kept).max() > 1e-3


def test_a_reply_stays_in_the_window(tmp_path):
    """One token at a time over rotating caches, as in one pass."""
    path = model_of(attention__sliding_window=WINDOW).write(tmp_path / "model.gguf")
    with load(path) as engine:
        never = dict.fromkeys(engine.tokenizer.end_ids, -1e6)
        reply = engine.generate(IDS[:6], max_tokens=24, drafter="none", logit_bias=never)
        rows = engine.logits([*IDS[:6], *reply.token_ids])[5:-1]
        rows[:, list(never)] = -np.inf
        assert rows.argmax(axis=1).tolist() == list(reply.token_ids)


@pytest.mark.parametrize(("window", "wanted"), [(0, None), (255, 255), (256, None), (1000, None)])
def test_a_window_that_nothing_leaves_is_none(tmp_path, window, wanted):
    """Then caches are of the plain kind, which can be quantized and rolled back."""
    path = model_of(attention__sliding_window=window).write(tmp_path / "model.gguf")
    with GGUFFile.open(path) as file:
        assert read_plan(file.metadata, file.tensors).arguments["sliding_window"] == wanted


@pytest.mark.parametrize(("context", "same"), [(32, "phi3-short"), (33, "phi3-long")])
def test_the_context_chooses_the_rotary_factors(tmp_path, context, same):
    """At most what the short factors were made for, or more."""
    found = []
    for name, tokens in (("phi3-long", context), (same, 256)):
        model = build("phi3-long")
        if name == "phi3-short":
            model.key("rope.scaling.original_context_length", 256)
        with load(model.write(tmp_path / f"{name}-{tokens}.gguf"), context=tokens) as engine:
            found.append(engine.logits(IDS))
    assert np.array_equal(*found)


def test_one_set_of_rotary_factors_is_refused(tmp_path):
    model = build("phi3-long")
    del model.tensors["rope_factors_short.weight"]
    with pytest.raises(ModelFormatError, match="without its counterpart"):
        load(model.write(tmp_path / "model.gguf"))


def test_factors_beside_scaling_are_refused(tmp_path):
    model = build("phi3-long")
    model.key("rope.scaling.factor", 4.0)
    with pytest.raises(UnsupportedArchitectureError, match=r"rope\.scaling\.type"):
        load(model.write(tmp_path / "model.gguf"))
