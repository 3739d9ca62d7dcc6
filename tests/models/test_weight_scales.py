"""NVFP4 files: a scale for a whole tensor beside those of its blocks."""

from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest
from gguf import GGMLQuantizationType
from mlx_lm.models.switch_layers import QuantizedSwitchLinear
from tiny_architectures.builder import build

from akunu_py.models.layers import ScaledLinear, ScaledSwitchLinear
from akunu_py.models.load import LoadOptions, convert_model, load_model
from akunu_py.system.errors import ConfigError, ModelFormatError

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "architectures"


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
    logits = loaded.model(mx.array([[1, 2, 3]]))
    assert logits.dtype == mx.bfloat16


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
