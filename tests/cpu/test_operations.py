"""Each kernel of the CPU against numpy in float64, and the bits of rows alone and among others."""

import resource
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mlx_lm.models.base import quantized_scaled_dot_product_attention
from whole_numbers import as_read

from akunu_py.cpu import load_kernels
from akunu_py.cpu.blas import fix_threads

KERNELS = load_kernels()
pytestmark = pytest.mark.skipif(KERNELS.path is None, reason=f"no kernels: {KERNELS.reason}")

SIZES = st.integers(1, 9)
SEEDS = st.integers(0, 2**32 - 1)


def taken(operation):
    before = KERNELS.num_taken()
    result = operation()
    assert KERNELS.num_taken() == before + 1, "the call went to MLX"
    return np.array(result)


def numbers(rng, *shape):
    return mx.array(rng.normal(size=shape).astype(np.float32))


def exact(array):
    return np.array(array).astype(np.float64)


def check(found, expected, tolerance=3e-6, of=None):
    """Compare with the largest number, or that of `of`, since sums of both signs cancel."""
    assert found.shape == expected.shape
    largest = np.abs(expected if of is None else of).max()
    assert np.abs(found - expected).max() <= tolerance * max(1e-30, largest)


AFFINE = [
    {"bits": bits, "group_size": group} for bits in (1, 2, 3, 4, 5, 6, 8) for group in (32, 64, 128)
]
WAYS = [*AFFINE, {"mode": "mxfp4", "group_size": 32}, {"mode": "nvfp4", "group_size": 16}]


def packed(weights, way):
    """The parts of a packed matrix, and its weights."""
    parts = mx.quantize(weights, **way)
    dtype = {"dtype": mx.float32} if "mode" in way else {}
    return parts, exact(mx.dequantize(*parts, **way, **dtype))


def read(x, way):
    return exact(x) if "mode" in way else as_read(x)


@pytest.mark.parametrize("way", WAYS, ids=str)
@given(rows=st.integers(1, 13), outputs=st.integers(1, 70), groups=st.integers(1, 3), seed=SEEDS)
def test_products_with_packed_weights(way, rows, outputs, groups, seed):
    rng = np.random.default_rng(seed)
    columns = groups * max(way["group_size"], 32)
    parts, weights = packed(numbers(rng, outputs, columns), way)
    x = numbers(rng, rows, columns)
    found = taken(lambda: mx.quantized_matmul(x, *parts, **way))
    check(found, read(x, way) @ weights.T, of=np.abs(exact(x)) @ np.abs(weights.T))
    for row in range(rows):
        alone = taken(lambda row=row: mx.quantized_matmul(x[row], *parts, **way))
        assert np.array_equal(alone, found[row])


@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_what_is_not_finite_stays_so_in_its_row_alone(number):
    rng = np.random.default_rng(1)
    parts, _ = packed(numbers(rng, 40, 128), AFFINE[9])
    x = np.array(numbers(rng, 6, 128))
    damaged = x.copy()
    damaged[3, 70] = number
    found, whole = (
        np.array(mx.quantized_matmul(mx.array(rows), *parts, **AFFINE[9])) for rows in (damaged, x)
    )
    assert not np.isfinite(found[3]).any()
    assert np.array_equal(np.delete(found, 3, axis=0), np.delete(whole, 3, axis=0))


@pytest.mark.parametrize("rows", [64, 257])
def test_rows_of_a_prompt_have_the_bits_of_rows_alone(rows):
    rng = np.random.default_rng(1)
    parts, weights = packed(numbers(rng, 200, 1536), {"bits": 4, "group_size": 32})
    x = numbers(rng, rows, 1536)
    found = taken(lambda: mx.quantized_matmul(x, *parts, bits=4, group_size=32))
    check(found, as_read(x) @ weights.T, of=np.abs(exact(x)) @ np.abs(weights.T))
    alone = [mx.quantized_matmul(x[row], *parts, bits=4, group_size=32) for row in range(rows)]
    assert np.array_equal(np.array(mx.stack(alone)), found)


@pytest.mark.parametrize("evaluated", [False, True])
@given(rows=st.integers(1, 40), outputs=st.integers(1, 70), columns=st.integers(1, 140), seed=SEEDS)
def test_dense_products_and_the_bits_of_their_rows(evaluated, rows, outputs, columns, seed):
    rng = np.random.default_rng(seed)
    # Some have more than one chunk of columns.
    weights, bias = numbers(rng, outputs, 16 * columns), numbers(rng, outputs)
    x, transposed = numbers(rng, rows, 16 * columns), weights.T
    if evaluated:
        mx.eval(transposed)
    found = taken(lambda: x @ transposed)
    check(found, exact(x) @ exact(weights).T, of=np.abs(exact(x)) @ np.abs(exact(weights).T))
    with_bias = taken(lambda: mx.addmm(bias, x, transposed))
    assert np.array_equal(with_bias, found + np.array(bias))
    alone = [taken(lambda row=row: x[row : row + 1] @ transposed)[0] for row in range(rows)]
    assert np.array_equal(alone, found)


@pytest.mark.parametrize("axes", [(0, 1, 2), (0, 2, 1), (1, 0, 2), (2, 1, 0)])
def test_only_a_swap_of_the_last_axes_is_taken_for_one(axes):
    """All sizes are equal, so that only the order of axes tells."""
    rng = np.random.default_rng(1)
    x, w = numbers(rng, 2, 32, 3, 32), numbers(rng, 32, 32, 32)
    check(np.array(x @ mx.transpose(w, axes)), exact(x) @ exact(w).transpose(axes))


@given(seed=SEEDS, tokens=SIZES, chosen=st.integers(1, 4), experts=SIZES)
def test_dense_products_with_chosen_experts(seed, tokens, chosen, experts):
    rng = np.random.default_rng(seed)
    weights, x = numbers(rng, experts, 12, 64), numbers(rng, tokens, 1, 1, 64)
    indices = rng.integers(0, experts, (tokens, chosen))
    swapped = weights.swapaxes(-1, -2)
    found = taken(lambda: mx.gather_mm(x, swapped, rhs_indices=mx.array(indices)))
    expected = np.einsum("tk,tcnk->tcn", exact(x)[:, 0, 0], exact(weights)[indices])
    check(found[:, :, 0], expected)


@given(seed=SEEDS, length=SIZES, heads=SIZES, batch=st.integers(1, 3))
def test_dense_products_of_each_head_with_a_matrix_of_its_own(seed, length, heads, batch):
    rng = np.random.default_rng(seed)
    weights = numbers(rng, heads, 12, 64)
    x = numbers(rng, batch, length, heads, 64).transpose(0, 2, 1, 3)
    found = taken(lambda: x @ weights.swapaxes(-1, -2))
    check(found, np.einsum("bhlk,hnk->bhln", exact(x), exact(weights)))


@given(seed=SEEDS, length=SIZES, heads=SIZES, batch=st.integers(1, 3))
def test_products_of_each_head_with_a_matrix_of_its_own(seed, length, heads, batch):
    rng = np.random.default_rng(seed)
    parts, weights = packed(numbers(rng, heads, 12, 64), AFFINE[9])
    x = numbers(rng, batch, length, heads, 64).transpose(0, 2, 1, 3)
    found = taken(lambda: mx.quantized_matmul(x, *parts, **AFFINE[9]))
    check(found, np.einsum("bhlk,hnk->bhln", as_read(x), weights))


@pytest.mark.parametrize("way", WAYS, ids=str)
@given(rows=st.integers(1, 13), summed=st.integers(1, 300), groups=st.integers(1, 3), seed=SEEDS)
def test_products_with_packed_weights_as_they_are(way, rows, summed, groups, seed):
    rng = np.random.default_rng(seed)
    parts, weights = packed(numbers(rng, summed, groups * max(way["group_size"], 32)), way)
    x = numbers(rng, rows, summed)
    found = taken(lambda: mx.quantized_matmul(x, *parts, transpose=False, **way))
    check(found, exact(x) @ weights, of=np.abs(exact(x)) @ np.abs(weights))
    for row in range(rows):
        alone = mx.quantized_matmul(x[row : row + 1], *parts, transpose=False, **way)
        assert np.array_equal(np.array(alone)[0], found[row])


MATRICES = {
    "one": ((3, 2, 5), ()),
    "of the first axis": ((3, 2, 5), (3, 1)),
    "of both": ((3, 2, 5), (3, 2)),
    "of the second": ((3, 2, 5), (1, 2)),
    "of an axis that only x has before": ((3, 2, 5), (2,)),
    "of the middle": ((2, 3, 4, 5), (1, 3, 1)),
}


@pytest.mark.parametrize("transposed", [True, False])
@pytest.mark.parametrize(("of_x", "of_w"), MATRICES.values(), ids=MATRICES.keys())
def test_each_row_meets_its_own_matrix(of_x, of_w, transposed):
    rng = np.random.default_rng(1)
    way = {"bits": 8, "group_size": 32}
    parts, weights = packed(numbers(rng, *of_w, 32, 96), way)
    x = numbers(rng, *of_x, 96 if transposed else 32)
    found = taken(lambda: mx.quantized_matmul(x, *parts, transpose=transposed, **way))
    expected = as_read(x) @ weights.swapaxes(-1, -2) if transposed else exact(x) @ weights
    check(found, expected, 1e-5)


@pytest.mark.parametrize("bits", [4, 8])
@given(
    seed=SEEDS, heads=st.sampled_from([(1, 1), (3, 1), (9, 3)]), length=st.integers(1, 6),
    before=st.integers(0, 300), size=st.sampled_from([64, 128]),
)  # fmt: skip
def test_attention_over_packed_keys_and_the_bits_of_its_rows(
    bits, seed, heads, length, before, size
):
    """As mlx-lm computes it; keys and values are views of a cache with room for more."""
    rng = np.random.default_rng(seed)
    heads, kv_heads = heads
    keys, way = before + length, {"bits": bits, "group_size": 64}
    q = numbers(rng, 1, heads, length, size)
    caches = [packed(numbers(rng, 1, kv_heads, keys + 9, size), way) for _ in range(2)]
    (k, v), (k_exact, v_exact) = zip(*caches, strict=True)

    def attend(first, past, seen):
        view = [[part[..., :seen, :] for part in parts] for parts in (k, v)]
        rows, mask = q[:, :, first:past] * 1, "causal" if past - first > 1 else None
        return quantized_scaled_dot_product_attention(rows, *view, scale=0.2, mask=mask, **way)

    before_ = KERNELS.num_taken()
    found = np.array(attend(0, length, keys))
    assert KERNELS.num_taken() == before_ + 3, "a product or the softmax went to MLX"
    hidden = np.arange(keys)[None, :] > before + np.arange(length)[:, None]
    seen = k_exact[:, :, :keys], v_exact[:, :, :keys]
    check(found, attended(as_read(q * 0.2), *seen, 1, hidden=hidden), 1e-5)
    for row in range(length):
        alone = np.array(attend(row, row + 1, before + row + 1))
        assert np.array_equal(alone[:, :, 0], found[:, :, row])


@given(seed=SEEDS, size=st.integers(1, 70), rows=SIZES, hidden=st.integers(0, 69))
def test_softmax_and_the_bits_of_rows_with_less_behind(seed, size, rows, hidden):
    given_ = np.random.default_rng(seed).normal(size=(size, rows)) * 9
    given_[max(1, size - hidden) :] = -np.inf
    x = mx.array(given_.astype(np.float32)).T
    found = taken(lambda: mx.softmax(x, axis=-1))
    weights = np.exp(exact(x) - exact(x).max(axis=-1, keepdims=True))
    check(found, weights / weights.sum(axis=-1, keepdims=True))
    shown = max(1, size - hidden)
    assert np.array_equal(np.array(mx.softmax(x[:, :shown], axis=1)), found[:, :shown])


def test_softmax_of_numbers_that_are_none():
    x = mx.array([[-np.inf] * 9, [0.0] * 8 + [np.nan], [0.0] * 8 + [np.inf]])
    assert np.isnan(taken(lambda: mx.softmax(x, axis=-1))).any(axis=-1).all()


@pytest.mark.parametrize("way", [AFFINE[9], AFFINE[18], *WAYS[-2:]], ids=str)
@given(seed=SEEDS, tokens=SIZES, chosen=st.integers(1, 4), experts=SIZES)
def test_products_with_chosen_experts(way, seed, tokens, chosen, experts):
    rng = np.random.default_rng(seed)
    parts, weights = packed(numbers(rng, experts, 12, 64), way)
    indices = rng.integers(0, experts, (tokens, chosen))
    x = numbers(rng, tokens, 64)
    found = taken(
        lambda: mx.gather_qmm(x[:, None, None], *parts, rhs_indices=mx.array(indices), **way)
    )
    expected = np.einsum("tk,tcnk->tcn", read(x, way), weights[indices])
    check(found[:, :, 0], expected)
    # An expert's own inputs, as the second product of a mixture has them.
    inner = numbers(rng, tokens, chosen, 1, 64)
    found = taken(lambda: mx.gather_qmm(inner, *parts, rhs_indices=mx.array(indices), **way))
    check(found[:, :, 0], np.einsum("tck,tcnk->tcn", read(inner, way)[:, :, 0], weights[indices]))


@given(seed=SEEDS, size=st.integers(1, 70), rows=SIZES)
def test_norms_and_sigmoids(seed, size, rows):
    rng = np.random.default_rng(seed)
    wide, weight = numbers(rng, 8 * size, rows).T, numbers(rng, 8 * size)
    squares = (exact(wide) ** 2).mean(axis=-1, keepdims=True)
    found = taken(lambda: mx.fast.rms_norm(wide, weight, 1e-5))
    check(found, exact(wide) / np.sqrt(squares + 1e-5) * exact(weight))
    x = numbers(rng, size, rows).T
    check(taken(lambda: mx.sigmoid(x)), 1 / (1 + np.exp(-exact(x))))


def test_sigmoids_of_numbers_far_from_zero():
    x = mx.array([-np.inf, -1e30, -104.0, -88.0, -30.0, 0.0, 30.0, 200.0, 1e30, np.inf, np.nan])
    found = taken(lambda: mx.sigmoid(x))
    with np.errstate(over="ignore"):
        expected = 1 / (1 + np.exp(-exact(x)))
    assert np.allclose(found, expected, rtol=1e-6, atol=1e-37, equal_nan=True)


@given(
    seed=SEEDS, size=st.integers(1, 70), rows=SIZES, kept=st.booleans(),
    hidden=st.integers(0, 70), factor=st.sampled_from([0.1, 10.0, 1e30]),
)  # fmt: skip
def test_logarithms_of_sums_of_exponentials(seed, size, rows, kept, hidden, factor):
    given_ = np.random.default_rng(seed).normal(size=(size, rows)) * factor
    given_[:hidden, 0] = -np.inf
    x = mx.array(given_.astype(np.float32)).T
    found = taken(lambda: mx.logsumexp(x, axis=-1, keepdims=kept))
    expected = np.logaddexp.reduce(exact(x), axis=-1, keepdims=kept)
    assert found.shape == expected.shape
    assert np.allclose(found, expected, rtol=1e-6, atol=1e-6)
    # Of a row among others, or alone: as mlx-lm asks, over axes of one number, too.
    for row in range(rows):
        alone = taken(lambda row=row: mx.logsumexp(x[row : row + 1], keepdims=True))
        assert alone.shape == (1, 1)
        assert alone.ravel()[0] == found.ravel()[row]


def test_sums_of_exponentials_tell_of_numbers_that_are_none():
    for numbers_, expected in (
        ([-np.inf] * 9, -np.inf),
        ([0.0] * 9 + [np.inf], np.inf),
        ([0.0, np.nan] * 9, np.nan),
    ):
        found = taken(lambda given_=numbers_: mx.logsumexp(mx.array(given_), axis=0))
        assert np.array_equal(found, np.float32(expected), equal_nan=True)


def turned(x, dims, neighbours, turns, positions, scale):
    """RoFormer's rotation in float64; positions [batch, length]."""
    x = exact(x)
    angles = positions[:, None, :, None] * scale * turns
    cosines, sines, half = np.cos(angles), np.sin(angles), dims // 2
    first = slice(0, dims, 2) if neighbours else slice(0, half)
    second = slice(1, dims, 2) if neighbours else slice(half, dims)
    a, b = x[..., first].copy(), x[..., second].copy()
    x[..., first], x[..., second] = a * cosines - b * sines, a * sines + b * cosines
    return x


@pytest.mark.parametrize("neighbours", [False, True])
@pytest.mark.parametrize("given_periods", [False, True])
@given(
    seed=SEEDS,
    batch=st.integers(1, 3),
    heads=SIZES,
    length=SIZES,
    dims=st.sampled_from([2, 16, 40]),
    first=st.integers(0, 500),
    each=st.booleans(),
)
def test_rotary_positions(neighbours, given_periods, seed, batch, heads, length, dims, first, each):
    rng = np.random.default_rng(seed)
    x = numbers(rng, batch, length, heads, 40).transpose(0, 2, 1, 3)
    firsts = rng.integers(0, 500, batch) if each else np.array([first])
    turns = 10000.0 ** -(np.arange(dims // 2) / (dims // 2))
    periods = mx.array((1 / turns).astype(np.float32)) if given_periods else None
    found = taken(
        lambda: mx.fast.rope(
            x, dims, traditional=neighbours, base=None if given_periods else 10000.0, scale=0.5,
            offset=mx.array(firsts.astype(np.int32)) if each else first, freqs=periods,
        )
    )  # fmt: skip
    positions = np.broadcast_to(firsts[:, None] + np.arange(length), (batch, length))
    check(found, turned(x, dims, neighbours, turns, positions, 0.5), 1e-4)


def attended(q, k, v, scale, *, hidden=None, added=None, sinks=None):
    """Softmax(q k^T) v in float64; `hidden` and `added` are [batch, heads, length, keys]."""
    q, k, v = exact(q), exact(k), exact(v)
    k, v = (np.repeat(a, q.shape[1] // k.shape[1], axis=1) for a in (k, v))
    scores = q @ k.swapaxes(-1, -2) * scale + (0 if added is None else added)
    if hidden is not None:
        scores = np.where(hidden, np.finfo(np.float32).min, scores)
    if sinks is not None:
        sinks = np.broadcast_to(exact(sinks)[None, :, None, None], (*scores.shape[:-1], 1))
        scores = np.concatenate([scores, sinks], axis=-1)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    return weights[..., : v.shape[2]] @ v


SHAPES = st.fixed_dictionaries(
    {
        "batch": st.integers(1, 2),
        "heads": st.sampled_from([(1, 1), (3, 1), (4, 2), (9, 3)]),
        "length": st.integers(1, 40),
        "before": st.integers(0, 300),
        "size": st.sampled_from([8, 64, 72, 128, 256]),
        "value_size": st.sampled_from([8, 40, 64, 128]),
    }
)


def some_rows(shape, seed):
    """Queries, keys and values as models have them: views of caches and of other orders."""
    rng = np.random.default_rng(seed)
    batch, (heads, kv_heads), length = shape["batch"], shape["heads"], shape["length"]
    keys = shape["before"] + length
    q = numbers(rng, batch, length, heads, shape["size"]).transpose(0, 2, 1, 3)
    k = numbers(rng, batch, kv_heads, keys + 9, shape["size"])[:, :, :keys]
    return rng, q, k, numbers(rng, batch, kv_heads, keys + 9, shape["value_size"])[:, :, :keys]


@given(shape=SHAPES, seed=SEEDS)
def test_causal_attention_and_the_bits_of_its_rows(shape, seed):
    _, q, k, v = some_rows(shape, seed)
    length, keys, before = q.shape[2], k.shape[2], shape["before"]
    attend = mx.fast.scaled_dot_product_attention
    found = taken(lambda: attend(q, k, v, scale=0.2, mask="causal"))
    hidden = np.arange(keys)[None, :] > before + np.arange(length)[:, None]
    check(found, attended(q, k, v, 0.2, hidden=hidden))
    for row in {0, length // 2, length - 1}:
        seen = before + row + 1
        alone = attend(q[:, :, row : row + 1], k[:, :, :seen], v[:, :, :seen], scale=0.2)
        assert np.array_equal(np.array(alone)[:, :, 0], found[:, :, row])


@given(shape=SHAPES, seed=SEEDS, kind=st.sampled_from(["all", "bool", "float", "sinks", "both"]))
def test_attention_with_masks_and_sinks(shape, seed, kind):
    rng, q, k, v = some_rows(shape, seed)
    heads, length, keys = q.shape[1], q.shape[2], k.shape[2]
    given, known = {}, {}
    if kind in {"bool", "both"}:
        seen = rng.random((length, keys)) > 0.4
        given["mask"], known["hidden"] = mx.array(seen), ~seen
    if kind == "float":
        added = rng.normal(size=(heads, 1, keys)).astype(np.float32)
        given["mask"], known["added"] = mx.array(added), added
    if kind in {"sinks", "both"}:
        given["sinks"] = known["sinks"] = numbers(rng, heads)
    found = taken(lambda: mx.fast.scaled_dot_product_attention(q, k, v, scale=0.2, **given))
    check(found, attended(q, k, v, 0.2, **known))


def test_a_row_that_sees_nothing_has_the_mean_of_all_or_its_sink_alone():
    _, q, k, v = some_rows(
        {"batch": 1, "heads": (2, 1), "length": 3, "before": 8, "size": 8, "value_size": 8}, 1
    )
    seen = np.arange(3)[:, None] > np.zeros(11)
    attend = mx.fast.scaled_dot_product_attention
    found = taken(lambda: attend(q, k, v, scale=0.2, mask=mx.array(seen)))
    check(found, attended(q, k, v, 0.2, hidden=~seen))
    assert np.allclose(found[:, :, 0], exact(v).mean(axis=2), atol=1e-6)
    sinks = mx.zeros(2)
    found = taken(lambda: attend(q, k, v, scale=0.2, mask=mx.array(seen), sinks=sinks))
    check(found, attended(q, k, v, 0.2, hidden=~seen, sinks=sinks))
    assert np.all(found[:, :, 0] == 0)


@given(shape=SHAPES, seed=SEEDS, kind=st.sampled_from(["bool", "float"]))
def test_a_row_has_the_bits_of_one_whose_cache_has_only_what_it_sees(shape, seed, kind):
    """So a row of a tree has the bits that it has behind its own branch alone."""
    rng, q, k, v = some_rows(shape, seed)
    length, keys = q.shape[2], k.shape[2]
    seen = rng.random((length, keys)) > 0.5
    seen[:, 0] = True
    mask = mx.array(seen if kind == "bool" else np.where(seen, 0, -np.inf).astype(np.float32))
    attend = mx.fast.scaled_dot_product_attention
    found = taken(lambda: attend(q, k, v, scale=0.2, mask=mask))
    for row in {0, length - 1}:
        places = mx.array(np.flatnonzero(seen[row]))
        alone = attend(q[:, :, row : row + 1], k[:, :, places], v[:, :, places], scale=0.2)
        assert np.array_equal(np.array(alone)[:, :, 0], found[:, :, row])


def test_memory_of_an_input_that_nobody_needs_is_used_again():
    x = numbers(np.random.default_rng(1), 4, 64)
    weight = mx.ones(64)
    expected = exact(mx.sigmoid(mx.fast.rms_norm(x * 1, weight, 1e-5)))
    kept = x * 1
    mx.eval(kept)
    results = [mx.sigmoid(mx.fast.rms_norm(kept, weight, 1e-5)) for _ in range(2)]
    mx.eval(results)
    assert np.array_equal(np.array(kept), np.array(x))
    for result in results:
        assert np.array_equal(exact(result), expected)


NOTHING = {
    "no rows": ((0, 64), 36, {}),
    "no rows in each batch": ((2, 0, 64), 36, {}),
    "no batch": ((0, 3, 64), 36, {}),
    "no rows of weights": ((3, 64), 0, {}),
    "weights as they are, no rows": ((0, 36), 36, {"transpose": False}),
    "weights as they are, nothing to sum": ((3, 0), 0, {"transpose": False}),
}


@pytest.mark.parametrize("way", [{"group_size": 32}, {"mode": "mxfp4"}], ids=str)
@pytest.mark.parametrize(("shape", "outputs", "options"), NOTHING.values(), ids=NOTHING.keys())
def test_products_of_nothing(shape, outputs, options, way):
    """MLX divides by such a number of rows, which would end the process."""
    parts = [part[:outputs] for part in mx.quantize(mx.ones((36, 64)), **way)]
    found = mx.quantized_matmul(mx.ones(shape), *parts, **way, **options)
    assert np.array_equal(found, np.zeros((*shape[:-1], 64 if options else outputs)))


@pytest.mark.parametrize("transpose", [True, False])
@pytest.mark.parametrize(("tokens", "rows"), [(2, 0), (0, 1)])
def test_products_of_nothing_with_experts(tokens, rows, transpose):
    parts = mx.quantize(mx.ones((3, 64, 64)), group_size=32)
    chosen = mx.zeros((tokens, 2), mx.uint32)
    found = mx.gather_qmm(
        mx.ones((tokens, 1, rows, 64)), *parts, rhs_indices=chosen, transpose=transpose,
        group_size=32,
    )  # fmt: skip
    assert np.array_equal(found, np.zeros((tokens, 2, rows, 64)))


UNKNOWN = {
    "16 bits": lambda x: mx.sigmoid(x.astype(mx.float16)),
    "nothing": lambda x: mx.sigmoid(x[:0]),
    "all rows": lambda x: mx.logsumexp(x),
    "columns": lambda x: mx.logsumexp(x, axis=0),
    "no weight": lambda x: mx.fast.rms_norm(x, None, 1e-5),
    "a norm of an odd number of columns": lambda x: mx.fast.rms_norm(x[:, :9], mx.ones(9), 1e-5),
    "more matrices than rows have": lambda x: mx.quantized_matmul(
        x[None], *mx.quantize(mx.ones((2, 8, 64)), group_size=32), group_size=32
    ),
    "columns of a softmax": lambda x: mx.softmax(x, axis=0),
    "a matrix as it is": lambda x: x @ mx.ones((64, 16)),
    "an odd number of columns": lambda x: x[:, :40] @ mx.ones((16, 40)).T,
    "a part of a product": lambda x: mx.addmm(mx.ones(16), x, mx.ones((16, 64)).T, alpha=0.5),
    "a gradient": lambda x: mx.grad(lambda y: mx.sigmoid(y).sum())(x),
}


@pytest.mark.parametrize("operation", UNKNOWN.values(), ids=UNKNOWN.keys())
def test_what_the_kernels_do_not_know_goes_to_mlx(operation):
    x = numbers(np.random.default_rng(1), 32, 64)
    before = KERNELS.num_taken()
    mx.eval(operation(x))
    assert KERNELS.num_taken() == before


def test_any_number_of_threads_has_the_same_bits():
    rng = np.random.default_rng(1)
    parts, _ = packed(numbers(rng, 1000, 512), AFFINE[9])
    x, rows = (
        numbers(rng, 40, 512),
        some_rows(
            {
                "batch": 1,
                "heads": (9, 3),
                "length": 40,
                "before": 300,
                "size": 64,
                "value_size": 64,
            },
            1,
        )[1:],
    )
    found = []
    for number in (1, 2, 3, 7):
        fix_threads(number)
        product = mx.quantized_matmul(x, *parts, **AFFINE[9])
        attended_ = mx.fast.scaled_dot_product_attention(*rows, scale=0.2, mask="causal")
        found.append((np.array(product), np.array(attended_)))
    fix_threads(1)
    for one, other in pairwise(found):
        assert all(map(np.array_equal, one, other))


@pytest.mark.parametrize("threads", [1, 2])
def test_long_graphs_are_computed_with_few_sleeps(threads):
    x = numbers(np.random.default_rng(1), 64, 256)
    num_nodes = 600
    expected = x
    for _ in range(num_nodes):
        expected = mx.sigmoid(expected)
        mx.eval(expected)

    def computed(_):
        y, stream = x, mx.new_stream(mx.cpu)
        for _ in range(num_nodes):
            y = mx.sigmoid(y, stream=stream)
        before = resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw
        mx.eval(y)
        return np.array(y), resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw - before

    with ThreadPoolExecutor(threads) as pool:
        for found, num_sleeps in pool.map(computed, range(threads)):
            assert np.array_equal(found, expected)
            assert threads > 1 or num_sleeps < num_nodes / 15
