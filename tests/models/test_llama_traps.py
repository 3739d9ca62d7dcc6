"""Llama files that llama.cpp's present version has no golden logits for."""

import numpy as np
import pytest
from tiny_architectures.builder import build

from akunu_py import Engine, ModelFormatError, UnsupportedArchitectureError

IDS = list(range(3, 27))


def logits(path, weights):
    with Engine.load(path, weights=weights, compute_type="float32") as engine:
        return engine.logits(IDS)


def separate(model):
    """Store each expert's matrices as tensors of their own, as Mixtral's first files had them."""
    for name in [name for name in model.tensors if name.endswith("_exps.weight")]:
        stack = model.tensors.pop(name)
        for expert, matrix in enumerate(stack):
            model.tensor(name.replace("_exps.weight", f".{expert}.weight"), matrix)


@pytest.mark.parametrize("kind", ["F32", "Q8_0"])
def test_an_expert_a_tensor_is_the_same_as_a_stack(tmp_path, kind):
    results = []
    for name, change in (("stack", lambda model: None), ("separate", separate)):
        model = build("llama-experts")
        change(model)
        for tensor in model.tensors:
            if kind != "F32" and ".ffn_" in tensor and "norm" not in tensor:
                model.quantize(tensor, kind)
        path = model.write(tmp_path / f"{name}.gguf")
        results.append(logits(path, "quantized"))
    assert np.array_equal(*results)


def test_experts_of_different_quantization_are_expanded(tmp_path):
    dense, mixed = build("llama-experts"), build("llama-experts")
    separate(dense)
    separate(mixed)
    mixed.quantize("blk.1.ffn_down.2.weight", "Q8_0")
    mixed.quantize("blk.1.ffn_down.3.weight", "Q5_0")
    results = [
        logits(model.write(tmp_path / f"{i}.gguf"), "quantized")
        for i, model in enumerate((dense, mixed))
    ]
    difference = np.abs(results[0] - results[1]).max() / results[0].std()
    assert 0 < difference < 0.2


def test_a_missing_expert_is_named(tmp_path):
    model = build("llama-experts")
    separate(model)
    del model.tensors["blk.2.ffn_up.1.weight"]
    with pytest.raises(ModelFormatError, match=r"blk\.2\.ffn_up\.1\.weight"):
        Engine.load(model.write(tmp_path / "model.gguf"))


@pytest.mark.parametrize("name", ["llama", "qwen2"])
def test_a_maker_of_embeddings_is_refused(tmp_path, name):
    model = build(name)
    model.key("attention.causal", False)
    with pytest.raises(UnsupportedArchitectureError, match=rf"{name}\.attention\.causal"):
        Engine.load(model.write(tmp_path / "model.gguf"))
    model.key("attention.causal", True)
    with Engine.load(model.write(tmp_path / "model.gguf")) as engine:
        assert engine.logits(IDS).shape[0] == len(IDS)
