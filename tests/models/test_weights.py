"""GGUF tensors as layers: every type, every kind of layer, rows and columns in another order."""

from types import SimpleNamespace

import mlx.core as mx
import numpy as np
import pytest
from mlx import nn
from mlx_lm.models.mla import MultiLinear
from mlx_lm.models.switch_layers import SwitchLinear
from quant_blocks import QUANTIZED, random_blocks
from whole_numbers import LEEWAY

from akunu_py.gguf import TensorInfo, dequantize
from akunu_py.gguf.parts.recurrent import depthwise
from akunu_py.gguf.plan import Placement
from akunu_py.models.layers import PlanesLinear, StackedLinear
from akunu_py.models.weights import Float16OverflowError, WeightReader
from akunu_py.system.errors import ModelFormatError

ROWS, COLS = 24, 512


class File:
    """As much of a GGUFFile as a WeightReader uses, in memory."""

    def __init__(self):
        self.tensors, self._bytes = {}, {}

    def add(self, name, kind, rows=ROWS, cols=COLS, lead=(), seed=0, values=None):
        info, raw = random_blocks(kind, rows * int(np.prod(lead)), cols, seed, values)
        info = TensorInfo(name, info.type, (cols, rows, *lead[::-1]), 0, raw.nbytes)
        self.tensors[name], self._bytes[name] = info, raw
        return dequantize(info, raw).reshape(info.shape)

    def add_dense(self, name, values):
        info, _ = random_blocks("Q8_0", 1, 32, 0)
        block = SimpleNamespace(id=0, name="F32", block_elements=1, block_bytes=4)
        raw = np.ascontiguousarray(values, np.float32)
        self.tensors[name] = TensorInfo(name, block, raw.shape[::-1], 0, raw.nbytes)
        self._bytes[name] = raw.reshape(-1, raw.shape[-1]).view(np.uint8)
        return raw

    def tensor_bytes(self, name):
        return self._bytes[name]


def reader(file, kind=mx.float32, **options):
    return WeightReader(file, kind, **options)


def placed(*tensors, **options):
    return Placement(path="x.weight", tensors=tensors, **options)


def close(found, expected):
    np.testing.assert_allclose(
        np.array(found), expected, rtol=1e-4, atol=3e-5 * LEEWAY * np.abs(expected).max()
    )


def inputs(*shape, seed=5):
    return np.random.default_rng(seed).normal(0, 1, shape).astype(np.float32)


@pytest.mark.parametrize("kind", QUANTIZED)
def test_linear_layers_of_every_type(kind):
    file = File()
    weights = file.add("w", kind)
    old = nn.Linear(COLS, ROWS, bias=True)
    old.bias = mx.arange(ROWS).astype(mx.float32)
    layer = reader(file).layer(placed("w"), old)
    x = inputs(3, COLS)
    if layer is None:
        pytest.skip(f"{kind} is kept dense")
    close(layer(mx.array(x)), x @ weights.T + np.arange(ROWS))


@pytest.mark.parametrize(
    "kind", ["Q4_K", "Q6_K", "Q3_K", "Q2_K", "IQ2_XXS", "IQ2_S", "Q8_0", "MXFP4", "NVFP4"]
)
def test_embeddings_look_up_and_make_logits(kind):
    file = File()
    weights = file.add("w", kind)
    layer = reader(file).layer(placed("w"), nn.Embedding(ROWS, COLS))
    ids = [[3, 0, 23], [1, 1, 7]]
    close(layer(mx.array(ids)), weights[ids])
    x = inputs(2, COLS)
    close(layer.as_linear(mx.array(x)), x @ weights.T)


@pytest.mark.parametrize("kind", ["Q4_K", "Q6_K", "Q2_K", "IQ2_XXS", "MXFP4"])
def test_heads_with_a_matrix_each(kind):
    file = File()
    weights = file.add("w", kind, lead=(3,))
    layer = reader(file).layer(placed("w"), MultiLinear(COLS, ROWS, 3))
    x = inputs(1, 3, 2, COLS)
    close(layer(mx.array(x)), np.einsum("bhlk,hnk->bhln", x, weights))
    y = inputs(1, 3, 2, ROWS)
    close(layer(mx.array(y), transpose=False), np.einsum("bhln,hnk->bhlk", y, weights))


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(
    "kind", ["Q4_K", "Q6_K", "Q3_K", "Q2_K", "IQ2_XS", "Q5_0", "MXFP4", "NVFP4"]
)
def test_experts(kind, bias):
    file = File()
    weights = file.add("w", kind, lead=(4,))
    old = SwitchLinear(COLS, ROWS, 4, bias=bias)
    biases = np.zeros((4, ROWS))
    if bias:
        old.bias = mx.arange(4 * ROWS).reshape(4, ROWS).astype(mx.float32)
        biases = np.arange(4 * ROWS).reshape(4, ROWS)
    layer = reader(file).layer(placed("w"), old)
    x = inputs(5, 1, 1, COLS)
    chosen = np.array([[0, 3], [2, 1], [3, 3], [1, 0], [2, 2]])
    found = layer(mx.array(x), mx.array(chosen))
    expected = np.einsum("bk,bcnk->bcn", x[:, 0, 0], weights[chosen]) + biases[chosen]
    close(found[:, :, 0], expected)


@pytest.mark.parametrize("kind", ["Q8_0", "Q4_K", "Q6_K", "MXFP4"])
def test_rows_in_another_order(kind):
    file = File()
    weights = file.add("w", kind)
    order = np.random.default_rng(1).permutation(ROWS)
    x = inputs(2, COLS)
    for rows in (order, slice(4, 12), np.array([5, 5, 0])):
        expected = weights[rows]
        old = nn.Linear(COLS, len(expected), bias=False)
        close(reader(file).layer(placed("w", rows=rows), old)(mx.array(x)), x @ expected.T)
        dense = reader(file).array(placed("w", rows=rows), expected.shape)
        np.testing.assert_array_equal(np.array(dense), expected)


@pytest.mark.parametrize(
    ("kind", "width"), [("Q8_0", 32), ("Q4_K", 64), ("Q6_K", 16), ("MXFP4", 32)]
)
def test_columns_in_another_order_by_whole_groups(kind, width):
    file = File()
    weights = file.add("w", kind)
    groups = np.random.default_rng(1).permutation(COLS // width)
    columns = (groups[:, None] * width + np.arange(width)).ravel()
    old = nn.Linear(COLS, ROWS, bias=False)
    x = inputs(2, COLS)
    layer = reader(file).layer(placed("w", columns=columns), old)
    close(layer(mx.array(x)), x @ weights[:, columns].T)
    # A permutation that tears groups apart cannot stay quantized.
    assert reader(file).layer(placed("w", columns=columns[::-1].copy()), old) is None
    dense = reader(file).array(placed("w", columns=columns[::-1].copy()), weights.shape)
    np.testing.assert_array_equal(np.array(dense), weights[:, columns[::-1]])


@pytest.mark.parametrize("kinds", [("Q4_K", "Q4_K"), ("Q4_K", "Q6_K"), ("Q8_0", "F32")])
@pytest.mark.parametrize("ordered", [False, True])
def test_stacks_of_tensors_of_one_type_or_several(kinds, ordered):
    file = File()
    weights = np.concatenate(
        [
            file.add_dense(f"w{index}", inputs(ROWS, COLS, seed=9))
            if kind == "F32"
            else file.add(f"w{index}", kind, seed=index)
            for index, kind in enumerate(kinds)
        ]
    )
    order = np.random.default_rng(2).permutation(2 * ROWS) if ordered else None
    expected = weights if order is None else weights[order]
    old = nn.Linear(COLS, 2 * ROWS, bias=True)
    old.bias = mx.arange(2 * ROWS).astype(mx.float32)
    place = placed("w0", "w1", rows=order)
    layer = reader(file).layer(place, old)
    assert isinstance(layer, StackedLinear) == (kinds[0] != kinds[1])
    x = inputs(2, COLS)
    close(layer(mx.array(x)), x @ expected.T + np.arange(2 * ROWS))
    dense = reader(file, dense=True)
    assert dense.layer(place, old) is None
    np.testing.assert_array_equal(np.array(dense.array(place, expected.shape)), expected)


def test_vectors_conversions_and_kept_float32():
    file = File()
    values = file.add_dense("v", np.array([-1.0, -2.0, -4.0]))
    half = reader(file, mx.float16)
    found = half.array(placed("v", convert=lambda v: np.log(-v)), (3,))
    assert found.dtype == mx.float16
    np.testing.assert_allclose(np.array(found), np.log(-values), atol=1e-3)
    assert half.array(placed("v", float32=True), (3,)).dtype == mx.float32
    np.testing.assert_array_equal(
        np.array(half.array(placed("v", rows=np.array([2, 0, 1])), (3,))), values[[2, 0, 1]]
    )


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_small_tensors_that_are_not_finite(value):
    file = File()
    file.add_dense("v", np.array([1.0, value, 2.0]))
    for placement in (placed("v"), placed("v", convert=lambda v: v - 1)):
        with pytest.raises(ModelFormatError, match="'v'"):
            reader(file).array(placement, (3,))
    file.add_dense("a", np.array([1.0, -1.0]))
    with pytest.raises(ModelFormatError, match="'a'"):
        reader(file).array(placed("a", convert=lambda v: np.log(-v)), (2,))


def test_numbers_beyond_float16():
    file = File()
    file.add_dense("v", np.array([1.0, 70000.0]))
    file.add("w", "Q8_0", values=[600.0])
    with pytest.raises(Float16OverflowError):
        reader(file, mx.float16).array(placed("v"), (2,))
    with pytest.raises(Float16OverflowError):
        reader(file, mx.float16).layer(placed("w"), nn.Linear(COLS, ROWS, bias=False))
    reader(file, mx.bfloat16).array(placed("v"), (2,))
    reader(file, mx.bfloat16).layer(placed("w"), nn.Linear(COLS, ROWS, bias=False))


@pytest.mark.parametrize("kind", [mx.float16, mx.bfloat16, mx.float32])
@pytest.mark.parametrize("type_", ["Q4_K", "Q6_K", "IQ2_XS", "MXFP4"])
def test_outputs_have_the_type_of_the_input(kind, type_):
    """MLX promotes where scales and activations differ, and everything after would be slow."""
    file = File()
    file.add("w", type_)
    layer = reader(file, kind).layer(placed("w"), nn.Linear(COLS, ROWS, bias=False))
    assert layer(mx.array(inputs(1, COLS)).astype(kind)).dtype == kind
    embedding = reader(file, kind).layer(placed("w"), nn.Embedding(ROWS, COLS))
    assert embedding(mx.array([1])).dtype == kind


def test_planes_hold_in_float16_what_would_overflow_scaled_up():
    file = File()
    weights = file.add("w", "Q6_K", values=[1e-4])
    layer = reader(file, mx.float16).layer(placed("w"), nn.Linear(COLS, ROWS, bias=False))
    assert isinstance(layer, PlanesLinear)
    x = np.zeros((1, COLS), np.float32)
    x[0, 3] = 20000
    found = np.array(layer(mx.array(x).astype(mx.float16)))
    assert np.isfinite(found).all()
    np.testing.assert_allclose(found, x @ weights.T, atol=1e-3 * np.abs(found).max())


@pytest.mark.parametrize(
    ("placement", "shape"),
    [
        (placed("w"), (ROWS, COLS // 2)),
        (placed("w"), (ROWS + 1, COLS)),
        (placed("w"), (2, ROWS // 2, COLS)),
        (placed("w", rows=np.array([ROWS])), (1, COLS)),
        (placed("w", rows=slice(0, ROWS + 1)), (ROWS, COLS)),
        (placed("w", columns=np.arange(COLS) + 1), (ROWS, COLS)),
        (placed("w", "narrow"), (2 * ROWS, COLS)),
    ],
)
def test_shapes_that_do_not_fit_are_named(placement, shape):
    file = File()
    file.add("w", "Q8_0")
    file.add("narrow", "Q8_0", cols=32)
    old = SimpleNamespace(weight=mx.zeros(shape))
    with pytest.raises(ModelFormatError, match=r"'w'|tensors w"):
        reader(file).layer(placement, old)
    with pytest.raises(ModelFormatError, match=r"'w'|tensors w"):
        reader(file).array(placement, shape)


def test_a_tensor_that_cannot_be_converted_is_named():
    """Found by scripts/fuzz_gguf.py: a kernel of three dimensions, which cannot be reshaped."""
    file = File()
    file.add_dense("w", np.zeros((4, 1, 8)))
    with pytest.raises(ModelFormatError, match=r"'w' has the shape \(4, 1, 8\)"):
        reader(file).array(placed("w", convert=depthwise), (4, 8, 1))
