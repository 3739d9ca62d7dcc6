"""Attention in parts gives what attention to all rows at once gives.

Mutants, made by hand, that these tests kill: keys behind a part's last row that it sees; the mask of
the first rows for all parts; keys cut where an array is the mask; a part of eight rows for all
heads; parts of rows that did not win.
"""

import mlx.core as mx
import pytest
from family_models import NAMES, build_family, variant_of
from mlx_lm.models.base import create_causal_mask, scaled_dot_product_attention
from tiny_models import prompt_of

from akunu_py.cpu.blas import load_blas
from akunu_py.models import attention
from akunu_py.models.cache import make_caches
from akunu_py.models.metal import choice
from akunu_py.models.passes.forward import forward_of
from akunu_py.models.passes.plan import PassPlan, PassRows
from akunu_py.models.passes.trees import TreeRows, tree_mask
from akunu_py.models.passes.trials import TOLERANCE, distance

HELD, WIDTH = 37, 16
PARTS = {1: 8, 4: 8, 5: 6, 6: 5, 8: 4, 9: 3, 16: 2, 17: 1, 32: 1, 33: 0, 64: 0}
"""Query heads of a key head -> rows of a part, by MLX's rule."""


class AllWon(dict):
    """As if all numbers of rows had won the race of every shape."""

    def get(self, shape, default=None):
        return range(2, 17) if attention.largest_part(shape) else ()


@pytest.fixture
def everywhere(monkeypatch):
    monkeypatch.setattr(attention, "may_race", lambda: True)
    monkeypatch.setattr(attention, "RACED", 0)
    monkeypatch.setattr(attention, "won", AllWon())


def same(found, expected):
    if load_blas().name == "MLX's own":
        return bool(mx.array_equal(found, expected))
    return distance(found, expected) < TOLERANCE


def drawn(heads, rows, seed):
    return mx.random.normal((1, heads, rows, WIDTH), key=mx.random.key(seed))


def masks(rows):
    """What rows see: of a chain, of its window, of a tree, and with weights of its own."""
    tree = TreeRows([max(-1, row - 1 - row % 3) for row in range(rows)])
    yield "causal"
    yield create_causal_mask(rows, HELD)
    yield create_causal_mask(rows, HELD, window_size=9)
    yield tree_mask(tree, HELD)
    yield tree_mask(tree, HELD, window=9, sinks=2)
    yield mx.random.normal((1, 1, rows, HELD + rows), key=mx.random.key(4))


@pytest.mark.parametrize("shared", PARTS)
def test_a_part_has_what_one_call_for_all_rows_has(shared, everywhere):
    """Of any number of rows; those that MLX's kernel would not take."""
    calls = []

    def attend(queries, keys, *rest):
        calls.append(queries.shape[2])
        assert rest[3] != "causal" or keys.shape[2] == HELD + sum(calls)
        return scaled_dot_product_attention(queries, keys, *rest)

    heads, sinks = 2 * shared, mx.random.normal((2 * shared,), key=mx.random.key(3))
    for rows in (2, 3, 5, 8, 9, 16, 17, 20):
        queries, keys, values = drawn(heads, rows, 0), *(drawn(2, HELD + rows, n) for n in (1, 2))
        for number, mask in enumerate(masks(rows)):
            rest = (None, 0.3, mask, sinks if number % 2 else None)
            calls.clear()
            found = attention.attend_few(attend, queries, keys, values, *rest)
            most = PARTS[shared] if rows <= 16 and PARTS[shared] else rows
            assert calls == [min(most, rows - first) for first in range(0, rows, most)]
            assert same(found, scaled_dot_product_attention(queries, keys, values, *rest))


@pytest.mark.parametrize(
    "name",
    ["llama", "llama, sliding", "llama, windows with sinks", "gpt_oss", "gemma3", "qwen3_next",
     "deepseek_v3", "llama, 8-bit caches"],
)  # fmt: skip
def test_a_pass_in_parts_has_the_logits_of_one_in_one_piece(name, everywhere, monkeypatch):
    """Chains, trees and texts of one row, in company, before windows and beyond them."""
    model, kv_bits = build_family(name), variant_of(name).kv_bits
    monkeypatch.setattr(attention, "largest_part", lambda shape: 3)
    rows = [mx.array(prompt_of(count, seed=count)) for count in (10, 1, 7)]
    tree = TreeRows([-1, 0, 0, 1, 1, 2, 3]) if name != "qwen3_next" else None

    def logits():
        texts = [make_caches(model, kv_bits) for _ in rows]
        for length, caches in zip((40, 3, 20), texts, strict=True):
            model(mx.array([prompt_of(length)]), cache=caches)
        parts = zip(rows, texts, (None, None, tree), strict=True)
        together = forward_of(model)(PassPlan([PassRows(*part) for part in parts]))
        chain, caches = mx.array(prompt_of(11)), texts[0]
        return [*together, *forward_of(model)(PassPlan([PassRows(chain, caches)]))]

    with_parts = logits()
    monkeypatch.setattr(attention, "RACED", 10**6)
    assert all(map(same, with_parts, logits()))


def test_where_nothing_raced_all_rows_are_one_part(monkeypatch):
    """As on a CPU, and behind short texts."""
    monkeypatch.setattr(attention, "may_race", lambda: True)
    shape, calls = (4, 2, WIDTH, WIDTH, mx.float32), []

    def attend(queries, *rest):
        calls.append(queries.shape[2])
        return scaled_dot_product_attention(queries, *rest)

    for length in (attention.RACED, attention.RACED, attention.RACED - 1, attention.RACED):
        keys = mx.zeros((1, 2, length, WIDTH))
        for rows in (9, 10):
            attention.attend_few(attend, drawn(4, rows, 0), keys, keys, None, 1.0, "causal", None)
        attention.won[shape] = [9]
    del attention.won[shape]
    assert calls == [9, 10, 8, 1, 10, 9, 10, 8, 1, 10]


@pytest.mark.fast_every(9)
@pytest.mark.parametrize("name", NAMES)
def test_shapes_of_every_family_are_found_without_computing(name, monkeypatch):
    monkeypatch.setattr(attention, "may_race", lambda: True)
    attention.met.clear()
    for text in choice._attentions(build_family(name)):
        assert text.startswith("attention of ")
