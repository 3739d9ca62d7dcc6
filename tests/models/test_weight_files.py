"""Which files of a folder have its weights: its index decides."""

import json

import mlx.core as mx
import pytest
from model_folders import write_folder

from akunu_py.models.load import load_model
from akunu_py.models.requirements import requirements
from akunu_py.models.weight_files import folder_tensors
from akunu_py.system.errors import ModelFormatError

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
