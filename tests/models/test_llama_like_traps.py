"""What llama.cpp's goldens do not show of families that are llama with few changes."""

import numpy as np
from tiny_architectures.builder import build

from akunu_py import Engine

IDS = list(range(3, 27))


def logits(model, path):
    with Engine.load(model.write(path), weights="dense", compute_type="float32") as engine:
        return engine.logits(IDS)


def test_minicpm_files_without_scales_have_the_first_models_scales(tmp_path):
    """llama.cpp multiplies the logits of such files by what it should divide them by."""
    old, new = build("minicpm"), build("minicpm")
    for key in ("embedding_scale", "residual_scale", "logit_scale"):
        del old.metadata[f"minicpm.{key}"]
    new.keys(embedding_scale=12.0, residual_scale=1.4 / 3**0.5, logit_scale=64 / 256)
    results = [logits(old, tmp_path / "old.gguf"), logits(new, tmp_path / "new.gguf")]
    np.testing.assert_allclose(*results, rtol=1e-5, atol=1e-6)
