"""Folders of other quantizers: read, or refused with the reason; their index decides on the files."""

import json

import mlx.core as mx
import numpy as np
import pytest
from model_folders import change_json, write_folder

from akunu_py.models.load import load_model
from akunu_py.models.requirements import requirements
from akunu_py.models.weight_files import folder_tensors
from akunu_py.system.errors import ModelFormatError, UnsupportedQuantizationError

IDS = mx.array([[3, 1, 4, 1, 5]])
FIRST, SECOND = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"


@pytest.fixture
def folder(tmp_path, tiny_gguf):
    """A model in two files with an index."""
    folder = write_folder(tmp_path / "model", tiny_gguf)
    weights = mx.load(str(folder / "model.safetensors"))
    names = sorted(weights)
    mx.save_safetensors(str(folder / FIRST), {name: weights[name] for name in names[::2]})
    mx.save_safetensors(str(folder / SECOND), {name: weights[name] for name in names[1::2]})
    (folder / "model.safetensors").unlink()
    places = {name: (FIRST, SECOND)[number % 2] for number, name in enumerate(names)}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    return folder


@pytest.mark.parametrize("name", ["model.safetensors", "model-00003-of-00002.safetensors"])
def test_a_file_that_the_index_does_not_name_is_not_read(folder, name):
    """Its tensors would come before or after those of the model, by its name."""
    expected, needed = load_model(folder).model(IDS), requirements(folder).weights_bytes
    tensors = list(folder_tensors(folder, {}))
    other = {"model.norm.weight": mx.full((64,), 9.0), "unknown": mx.zeros(5)}
    mx.save_safetensors(str(folder / name), other)
    assert mx.array_equal(load_model(folder).model(IDS), expected)
    assert requirements(folder).weights_bytes == needed
    assert list(folder_tensors(folder, {})) == tensors
    (folder / name).write_bytes(b"damaged")
    assert mx.array_equal(load_model(folder).model(IDS), expected)


def test_a_missing_file_is_named(folder):
    (folder / SECOND).unlink()
    with pytest.raises(ModelFormatError, match=f"has no {SECOND}, which"):
        load_model(folder)


def test_an_index_of_files_that_are_gone_does_not_count(folder, tmp_path, tiny_gguf):
    expected = load_model(folder).model(IDS)
    whole = write_folder(tmp_path / "whole", tiny_gguf)
    for path in (folder / FIRST, folder / SECOND):
        path.unlink()
    (folder / "model.safetensors").write_bytes((whole / "model.safetensors").read_bytes())
    assert mx.array_equal(load_model(folder).model(IDS), expected)


GROUP, ORDER = 32, (0, 2, 4, 6, 1, 3, 5, 7)


def packed(codes):
    """Codes of 4 bits, eight in a number, in AutoAWQ's order."""
    parts = codes.reshape(len(codes), -1, 8).astype(np.uint32)[..., ORDER]
    return (parts << np.arange(0, 32, 4, dtype=np.uint32)).sum(-1, dtype=np.uint32).view(np.int32)


def write_awq(folder, tiny_gguf):
    """A folder as AutoAWQ writes it; returns it, and one with what it computes with."""
    awq, plain = (write_folder(folder / name, tiny_gguf) for name in ("awq", "plain"))
    random, stored, dense = np.random.default_rng(5), {}, {}
    for name, array in mx.load(str(plain / "model.safetensors")).items():
        stored[name] = dense[name] = np.array(array)
        if "proj" in name:
            columns, rows = array.shape[::-1]
            codes = random.integers(0, 16, (columns, rows))
            zeros = random.integers(6, 10, (columns // GROUP, rows))
            scales = random.uniform(0.01, 0.05, zeros.shape).astype(np.float16)
            each = (np.repeat(values, GROUP, axis=0) for values in (zeros, scales.astype("f4")))
            zero, scale = each
            dense[name] = ((codes - zero) * scale).T.astype(np.float32)
            path = name.removesuffix("weight")
            stored |= {
                f"{path}qweight": packed(codes), f"{path}qzeros": packed(zeros),
                f"{path}scales": scales,
            }  # fmt: skip
            del stored[name]
    for place, arrays in ((awq, stored), (plain, dense)):
        found = {name: mx.array(array) for name, array in arrays.items()}
        mx.save_safetensors(str(place / "model.safetensors"), found)
    return awq, plain


def test_awq_has_the_numbers_of_its_codes(tmp_path, tiny_gguf):
    folder, plain = write_awq(tmp_path, tiny_gguf)
    given = {"quant_method": "awq", "bits": 4, "group_size": GROUP, "version": "gemm"}
    change_json(folder / "config.json", quantization_config=given)
    expected = load_model(plain).model(IDS)
    difference = mx.abs(load_model(folder).model(IDS) - expected).max() / mx.std(expected)
    assert difference.item() < 0.02  # norms and biases are in float16


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"quant_method": "gptq", "bits": 4}, "by gptq, which mlx-lm does not read"),
        ({"quant_method": "awq"}, "by awq without 4-bit codes in the form gemm"),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "by bitsandbytes"),
    ],
)
def test_weights_of_other_quantizers_are_refused_with_the_reason(tmp_path, tiny_gguf, given, words):
    folder = write_folder(tmp_path / "model", tiny_gguf, quantization_config=given)
    with pytest.raises(UnsupportedQuantizationError, match=words) as caught:
        load_model(folder)
    assert "again" not in str(caught.value)
