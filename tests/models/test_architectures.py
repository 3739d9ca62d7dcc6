"""Every architecture against llama.cpp: logits of a tiny random model, and its greedy text.

NVFP4 files have a scale for a whole tensor beside those of its blocks.
"""

from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest
from gguf import GGMLQuantizationType
from mlx_lm.models.switch_layers import QuantizedSwitchLinear
from tiny_architectures.builder import BUILDERS, build
from whole_numbers import LEEWAY

from akunu_py import Engine
from akunu_py.models.layers import ScaledLinear, ScaledSwitchLinear
from akunu_py.models.load import LoadOptions, convert_model, load_model
from akunu_py.system.errors import ConfigError, ModelFormatError

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
        largest = np.abs(engine.logits(ids) - expected).max()
        assert largest / expected.std() < TOLERANCE

        # Where two tokens are nearly tied for llama.cpp, either may win.
        start, greedy = ids[:8], recorded["greedy"].tolist()
        rows = engine.logits([*start, *greedy])[len(start) - 1 : -1]
        margins = rows.max(axis=1) - rows[np.arange(len(greedy)), greedy]
        assert (margins <= 2 * largest).all()

        # One token at a time, over the caches, as a reply is made, four windows long where there are windows.
        never = dict.fromkeys(engine.tokenizer.end_ids, -1e6)
        reply = engine.generate(start, max_tokens=24, drafter="none", logit_bias=never)
        rows = engine.logits([*start, *reply.token_ids])[len(start) - 1 : -1]
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


def in_nvfp4(name):
    tiny = build(name)
    for tensor in tiny.blocks:
        tiny.types[tensor] = GGMLQuantizationType.NVFP4
    return tiny


@pytest.mark.parametrize("weights", ["dense", "quantized"])
@pytest.mark.parametrize("name", ["llama-scales", "qwen3moe-scales"])
def test_nvfp4_computes_what_llama_cpp_does_with_its_numbers(tmp_path, name, weights):
    recorded = np.load(GOLDEN / f"{name}.npz")
    path = in_nvfp4(name).write(tmp_path / "model.gguf")
    model = load_model(path, LoadOptions(weights=weights, compute_type="float32")).model
    found = np.array(model(mx.array(recorded["ids"])[None])[0])
    assert np.abs(found - recorded["logits"]).max() / recorded["logits"].std() < 5e-3
    query = model.layers[0].self_attn.q_proj
    assert isinstance(query, ScaledLinear) == (weights == "quantized")
    if weights == "quantized":
        assert query.inner.mode == "nvfp4"
        if name == "qwen3moe-scales":
            gate = model.layers[0].mlp.switch_mlp.gate_proj
            assert type(gate) is ScaledSwitchLinear
            assert type(gate.inner) is QuantizedSwitchLinear


def test_scaled_weights_are_not_computed_in_float16(tmp_path):
    """Outputs are thousands of times too large until they are multiplied."""
    path = in_nvfp4("llama-scales").write(tmp_path / "model.gguf")
    with pytest.raises(ConfigError, match="float16 cannot hold"):
        load_model(path, LoadOptions(weights="quantized", compute_type="float16"))
    loaded = load_model(path, LoadOptions(weights="quantized", compute_type="bfloat16"))
    assert loaded.model(mx.array([[1, 2, 3]])).dtype == mx.bfloat16


@pytest.mark.parametrize("weights", ["dense", "quantized"])
@pytest.mark.parametrize(
    "scale", [np.ones(3), np.array([np.nan])], ids=["of another size", "not a number"]
)
def test_an_unusable_scale_is_refused(tmp_path, scale, weights):
    tiny = in_nvfp4("llama-scales")
    tiny.tensor("blk.1.attn_k.scale", scale)
    path = tiny.write(tmp_path / "model.gguf")
    with pytest.raises(ModelFormatError, match=r"blk\.1\.attn_k\.scale.*download or convert"):
        load_model(path, LoadOptions(weights=weights))


@pytest.mark.parametrize("name", ["llama-scales", "qwen3moe-scales"])
def test_scaled_layers_come_back_from_a_folder(tmp_path, name):
    path = in_nvfp4(name).write(tmp_path / "model.gguf")
    options = LoadOptions(weights="quantized", compute_type="float32")
    assert not convert_model(path, tmp_path / "folder", options)
    ids = mx.array([[3, 1, 4, 1, 5]])
    expected = load_model(path, options).model(ids)
    found = load_model(tmp_path / "folder", LoadOptions(weights="quantized")).model(ids)
    np.testing.assert_array_equal(np.array(found), np.array(expected))
