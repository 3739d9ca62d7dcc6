"""Medusa heads and those of blockwise parallel decoding: their numbers, and their files.

What they draft is in test_dflash_heads.py, with the other heads that guess blocks. Mutants that
these tests kill: a place's guess by the layer of the next one; a state before the last; a residual
that is left out; an output head of another place.
"""

import mlx.core as mx
import numpy as np
import pytest
from dflash_heads import BLOCK, parallel_tensors, random_blockwise, random_medusa, write_parallel
from family_models import build_family
from prediction_heads import loaded_from, tiny_target, write

from akunu_py import ModelFormatError, UnsupportedArchitectureError
from akunu_py.models.heads import load_head

MAKES = {
    "Medusa": random_medusa,
    "Medusa, of some tokens": lambda target: random_medusa(target, vocabulary=40, num_layers=1),
    "blockwise": random_blockwise,
    "blockwise, of some tokens": lambda target: random_blockwise(target, vocabulary=40),
}


@pytest.fixture(scope="module")
def target():
    return build_family("llama")


def load(target, folder):
    return load_head(loaded_from(folder / "model", target), folder)


def numbers(arrays, state, output):
    """The logits of every place, in float64, by the formulas of the papers."""
    arrays = {name: np.array(array, np.float64) for name, array in arrays.items()}
    ids = np.arange(len(output))
    if "d2t" in arrays:
        ids = np.arange(40) + arrays["d2t"].astype(int)
    for place in range(BLOCK - 1):
        x, layer = state, 0
        if f"blockwise.{place}.up.weight" in arrays:
            up, down, b, c = (
                arrays[f"blockwise.{place}.{part}.{kind}"]
                for kind in ("weight", "bias") for part in ("up", "down")
            )  # fmt: skip
            x = x + down @ np.maximum(up @ x + b, 0) + c
            rows = output[ids]
        else:
            while (name := f"{place}.{layer}.linear") + ".weight" in arrays:
                z = arrays[f"{name}.weight"] @ x + arrays[f"{name}.bias"]
                x, layer = x + z / (1 + np.exp(-z)), layer + 1
            rows = arrays[f"{place}.{layer}.weight"]
        logits = np.full(len(output), -np.inf)
        logits[ids] = rows @ x
        yield logits


@pytest.mark.parametrize("known", [1, 3])
@pytest.mark.parametrize("name", MAKES)
def test_the_numbers_of_a_head_from_a_folder(target, tmp_path, name, known):
    made = MAKES[name](target)
    head = load(target, write_parallel(tmp_path, made))
    states = mx.random.normal((1, 4, head.width), key=mx.random.key(5))
    rows = head(states, mx.zeros((1, 3 + known), dtype=mx.int32), head.make_cache())
    assert rows.shape == (1, BLOCK - known, head.width)
    step = head.walk(rows)
    found = [np.array(step(mx.array([9]))[0][0, 0]) for _ in range(rows.shape[1])]
    output = np.array(target.lm_head.weight, np.float64)
    expected = list(numbers(parallel_tensors(made), np.array(states[0, -1], np.float64), output))
    np.testing.assert_allclose(found, expected[known - 1 :], atol=1e-4)


DAMAGE = [
    ("0.0.linear.bias", None, "lacks the tensors of places.0.layers.0.bias; it is incomplete"),
    ("1.2.weight", None, "lacks the tensors of lm_head.places.1.weight"),
    ("4.1.linear.weight", mx.zeros((2, 3)), r"in the shape \(2, 3\) where this model asks for"),
    ("2.1.linear.x", mx.zeros(3), "do not have: places.2.layers.1.x"),
    ("9.0.linear.weight", mx.zeros((64, 64)), "lacks the tensors of lm_head.places.5.weight"),
    ("0.2.weight", mx.full((97, 64), mx.nan), "'0.2.weight' in .* has infinite numbers or NaN"),
]


@pytest.mark.parametrize(("name", "array", "message"), DAMAGE)
def test_damaged_tensors_are_refused(target, tmp_path, name, array, message):
    arrays = {**parallel_tensors(random_medusa(target)), name: array}
    write(
        tmp_path / "medusa_lm_head.safetensors", {n: a for n, a in arrays.items() if a is not None}
    )
    with pytest.raises(ModelFormatError, match=message):
        load(target, tmp_path)


def test_a_head_of_another_model(target, tmp_path):
    write_parallel(tmp_path, random_medusa(target))
    with pytest.raises(UnsupportedArchitectureError, match="is a Medusa head, and the model is a"):
        load(tiny_target("mimo"), tmp_path)
