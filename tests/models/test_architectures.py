"""Every architecture against llama.cpp: logits of a tiny random model, and its greedy text."""

from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest
from tiny_architectures.builder import BUILDERS, build
from whole_numbers import LEEWAY

from akunu_py import Engine

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "architectures"
TOLERANCE = 5e-3
"""Largest difference of a logit over the logits' standard deviation, in float32."""
# Not compared, and why: docs/models.md says so too.
UNCHECKED: dict[str, str] = {}
# The simplest of each family; the others are like it.
SIMPLEST = (
    "command-r", "deepseek2", "deepseek32", "ernie4_5", "exaone", "falcon-h1", "gemma",
    "gemma3n", "glm4", "glm4moe", "gpt-oss", "gpt2", "granite", "granitehybrid", "hunyuan-moe",
    "internlm2", "kimi-k3", "kimi-linear", "laguna", "lfm2", "llama", "llama-scales", "llama4",
    "mamba2", "minicpm3", "mistral3", "muse-glimmer", "nemotron", "nemotron_h", "olmo2",
    "olmoe", "phi2", "qwen2", "qwen3next", "seed_oss", "smollm3", "stablelm", "starcoder2",
    "talkie",
)  # fmt: skip
EACH = [
    pytest.param(name, marks=() if name in SIMPLEST else pytest.mark.slow)
    for name in sorted(BUILDERS)
]


def golden(name):
    return np.load(GOLDEN / f"{name}.npz")


# With 22 layers gemma3n takes as long as ten others, and its linear layers are theirs.
BUT_GEMMA3N = [
    pytest.param("gemma3n", marks=pytest.mark.slow),
    *(one for one in EACH if one.values[0] != "gemma3n"),
]


@pytest.mark.fast_every(2)
@pytest.mark.parametrize("name", BUT_GEMMA3N)
def test_logits_and_greedy_text_are_llama_cpps(tmp_path, name):
    model = build(name)
    recorded = golden(name)
    assert model.digest() == str(recorded["digest"]), "run scripts/record_references.py again"
    path = model.write(tmp_path / "model.gguf")
    ids, expected = recorded["ids"].tolist(), recorded["logits"]
    with Engine.load(path, weights="dense", compute_type="float32") as engine:
        found = engine.logits(ids)
        largest = np.abs(found - expected).max()
        assert largest / expected.std() < TOLERANCE

        # Where two tokens are nearly tied for llama.cpp, either may win.
        start, greedy = ids[:8], recorded["greedy"].tolist()
        rows = engine.logits([*start, *greedy])[len(start) - 1 : -1]
        margins = rows.max(axis=1) - rows[np.arange(len(greedy)), greedy]
        assert (margins <= 2 * largest).all()

        # One token at a time, over the caches, as a reply is made, four windows long where there are windows.
        never = dict.fromkeys(engine.tokenizer.end_ids, -1e6)
        reply = engine.generate(start, max_tokens=24, drafter="none", logit_bias=never)
        ours = [*start, *reply.token_ids]
        rows = engine.logits(ours)[len(start) - 1 : -1]
        rows[:, list(never)] = -np.inf
        margins = rows.max(axis=1) - rows[np.arange(len(reply.token_ids)), reply.token_ids]
        assert margins.max() < 1e-3 * expected.std()


def test_every_golden_file_has_its_model():
    assert {path.stem for path in GOLDEN.glob("*.npz")} == set(BUILDERS) - set(UNCHECKED)


# One of each kind of layer: dense, fused, with experts, with latent attention, recurrent.
OF_EACH_LAYER = (
    "deepseek2", "gemma3", "gpt-oss", "gpt2", "jamba", "lfm2", "llama", "mamba2", "nemotron_h", "phi3",
    "qwen3moe", "qwen3next",
)  # fmt: skip


@pytest.mark.fast_every(2)
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in OF_EACH_LAYER else pytest.mark.slow)
        for name in sorted(BUILDERS)
    ],
)
def test_quantized_forms_of_every_layer_compute_the_same(tmp_path, name):
    """Matrices in Q8_0 where their rows allow it: kept quantized and expanded give one result."""
    model = build(name)
    for tensor, values in model.tensors.items():
        if values.ndim > 1 and values.shape[-1] % 32 == 0 and tensor not in model.types:
            model.quantize(tensor, "Q8_0")
    path = model.write(tmp_path / "model.gguf")
    # No expert is chosen by a near-tie for these.
    ids = list(range(24))
    results = []
    for weights in ("dense", "quantized"):
        with Engine.load(path, weights=weights, compute_type="float32") as engine:
            results.append(engine.logits(ids))
            assert engine.description.weights == weights
    difference = np.abs(results[0] - results[1]).max() / results[0].std()
    assert difference < 1e-3 * LEEWAY
    mx.clear_cache()
