"""Chains of operations that kernels take in: their bits, their nodes, and what stays apart."""

import io
import re

import mlx.core as mx
import numpy as np
import pytest

from akunu_py.cpu import load_kernels

KERNELS = load_kernels()
pytestmark = pytest.mark.skipif(KERNELS.path is None, reason=f"no kernels: {KERNELS.reason}")

WAY = {"bits": 4, "group_size": 32}


def numbers(*shape, seed=1):
    return mx.array(np.random.default_rng(seed).normal(size=shape).astype(np.float32))


def matrix(rows, columns):
    return mx.quantize(numbers(rows, columns, seed=2), **WAY)


def product(x, weights):
    return mx.quantized_matmul(x, *weights, **WAY)


def nodes(*arrays):
    """The operations that computing these arrays takes, sorted."""
    graph = io.StringIO()
    mx.export_to_dot(graph, *arrays)
    return sorted(re.findall(r'label ?= ?"(\w+)", shape=rectangle', graph.getvalue()))


def apart(array):
    """The same array, computed now, so that nothing takes in how."""
    mx.eval(array)
    return array


def whole(array):
    return array


def gated(step, length):
    x, weights = numbers(1, length, 64), matrix(96, 64)
    gate, up = step(product(x, weights)), step(product(x + 1, weights))
    return step(step(gate * step(mx.sigmoid(gate))) * up)


def added(step, length):
    x, weights = numbers(1, length, 64), matrix(64, 64)
    return step(x + step(product(x, weights)))


def rotated(step, length):
    q = step(product(numbers(2, length, 64), matrix(96, 64)))
    heads = step(step(q.reshape(2, length, 3, 32)).transpose(0, 2, 1, 3))
    return step(mx.fast.rope(heads, 32, traditional=False, base=1e4, scale=1.0, offset=5))


def attended(step, length):
    q = numbers(2, 3, length, 32)
    k, v = (step(numbers(2, 1, 40, 32, seed=seed)[:, :, : 20 + length]) for seed in (3, 4))
    mask = "causal" if length > 1 else None
    rows = step(mx.fast.scaled_dot_product_attention(q, k, v, scale=0.2, mask=mask))
    together = step(step(rows.transpose(0, 2, 1, 3)).reshape(2, length, 96))
    return step(product(together, matrix(64, 96)))


PRODUCT, SUM = "AkunuProduct", "AkunuProductSum"
SIGMOID, ROPE = "AkunuSigmoid", "AkunuRope"
CHAINS = {
    gated: ["Add", PRODUCT, PRODUCT, SIGMOID],
    added: [SUM],
    rotated: [PRODUCT, ROPE],
    attended: ["AkunuAttention", PRODUCT],
}


@pytest.mark.parametrize("length", [1, 5])
@pytest.mark.parametrize("chain", CHAINS, ids=lambda chain: chain.__name__)
def test_chains_have_the_bits_of_their_steps_and_fewer_nodes(chain, length):
    result = chain(whole, length)
    found = [name for name in nodes(result) if name not in ("Broadcast", "Quantize")]
    assert found == CHAINS[chain]
    assert np.array_equal(np.array(result), np.array(chain(apart, length)))


def test_what_is_needed_besides_the_chain_is_there():
    x, weights = numbers(1, 5, 64), matrix(64, 64)
    q = product(x, weights)
    heads = q.reshape(1, 5, 2, 32).transpose(0, 2, 1, 3)
    turned = mx.fast.rope(heads, 32, traditional=False, base=1e4, scale=1.0, offset=5)
    gate = mx.sigmoid(q)
    passed = q * gate
    summed = x + q
    mx.eval(turned, passed, summed, gate, heads, q)
    expected = apart(product(x, weights))
    assert np.array_equal(np.array(q), np.array(expected))
    assert np.array_equal(np.array(heads), np.array(q.reshape(1, 5, 2, 32).swapaxes(1, 2)))
    assert np.array_equal(np.array(passed), np.array(apart(mx.sigmoid(expected)) * expected))
    assert np.array_equal(np.array(summed), np.array(x + expected))


def test_a_product_that_is_added_to_a_function_of_it_is_computed_once():
    x, weights = numbers(1, 5, 64), matrix(64, 64)
    inner = product(x, weights)
    found = nodes(inner + product(inner, weights))
    assert [name for name in found if name.startswith(PRODUCT)] == [PRODUCT, SUM]


@pytest.mark.parametrize(
    "part", [np.s_[:, :, 4:24], np.s_[:, :, :40:2], np.s_[:, 1:, :20], np.s_[:, :1, :20]], ids=str
)
def test_only_the_first_rows_of_a_cache_are_read_in_place(part):
    caches = [numbers(1, 2, 40, 32, seed=seed) for seed in (3, 4)]
    k, v = (cache[part] for cache in caches)
    attend = mx.fast.scaled_dot_product_attention
    found = attend(numbers(1, 2, 1, 32), k, v, scale=0.2)
    shown = [mx.array(np.array(cache)[part]) for cache in caches]
    assert np.array_equal(
        np.array(found), np.array(attend(numbers(1, 2, 1, 32), *shown, scale=0.2))
    )


def test_views_that_change_the_order_are_read_in_that_order():
    x, weights = numbers(1, 6, 64), matrix(64, 64)
    y = product(x, weights).reshape(1, 6, 2, 32).transpose(0, 2, 1, 3)
    mixed = y.reshape(1, 6, 64)
    expected = apart(mx.array(np.array(mixed)))
    assert np.array_equal(np.array(product(mixed, weights)), np.array(product(expected, weights)))
    y = product(x, weights).reshape(1, 6, 2, 32).transpose(0, 2, 1, 3).reshape(1, 2, 6, 32)
    rope = {"traditional": True, "base": 1e4, "scale": 1.0, "offset": 5}
    assert np.array_equal(
        np.array(mx.fast.rope(y.reshape(1, 3, 4, 32), 32, **rope)),
        np.array(mx.fast.rope(apart(y.reshape(1, 3, 4, 32)), 32, **rope)),
    )
