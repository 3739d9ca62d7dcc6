"""How a prompt is cut into passes, and the pauses of a pass, in which Ctrl-C and others are heard."""

import functools
from types import SimpleNamespace

import mlx.core as mx
import pytest
from family_models import build_family, variant_of
from pass_sizes import record_sizes
from tiny_models import prompt_of

from akunu_py.models import cached_rows
from akunu_py.models.aligned_rows import AlignedRows
from akunu_py.models.cached_rows import CachedRows

SLOW, QUICK = 0.0, float("inf")
"""Seconds between pauses: one behind each layer, and none."""

KINDS = [
    "llama", "llama, 8-bit caches", "llama, windows with sinks", "llama4_text", "gemma3",
    "qwen3_next", "falcon_h1", "mamba2",
]  # fmt: skip
"""Families whose caches roll back in different ways, a list of caches in each layer among them."""


model_of = functools.cache(build_family)


def fresh(name):
    return CachedRows(model_of(name), variant_of(name).kv_bits)


def logits_after(rows):
    logits = rows.feed(mx.array([3]))
    mx.eval(logits)
    return logits


@pytest.fixture
def pauses(monkeypatch):
    return lambda seconds: monkeypatch.setattr(cached_rows, "_TURN_S", seconds)


@pytest.mark.parametrize("kind", [CachedRows, AlignedRows])
@pytest.mark.parametrize("seconds", [SLOW, QUICK])
def test_passes_depend_on_no_clock(model, pauses, monkeypatch, kind, seconds):
    pauses(seconds)
    monkeypatch.setattr(cached_rows, "PREFILL_CHUNK", 64)
    rows, sizes = kind(model), record_sizes(monkeypatch)
    rows.prefill(prompt_of(144))
    assert sizes == [64, 64, 16]


@pytest.mark.parametrize(
    ("held", "rows"),
    [(0, 512), (4096, 512), (4097, 256), (8192, 256), (8500, 128), (16128, 128), (35_000, 32)],
)
def test_passes_have_fewer_rows_in_long_contexts_of_a_cpu(monkeypatch, held, rows):
    """So the longest turn of a layer, and its scores, grow little with the context."""
    assert cached_rows.prompt_rows(held) == rows
    assert cached_rows.prompt_rows(2 * held, quantized=True) == rows
    assert rows * (held + rows) <= 2 * 512 * 4096
    monkeypatch.setattr(cached_rows, "on_cpu", lambda: False)
    assert cached_rows.prompt_rows(held) == 512


def test_progress_counts_layers_within_a_pass(model, pauses):
    pauses(SLOW)
    layers = len(CachedRows(model).caches)
    pass_of_200 = [200 * layer // layers for layer in range(layers)]
    assert list(CachedRows(model).prefilling(prompt_of(200))) == [0, *pass_of_200, 200]


def test_a_pass_pauses_when_others_have_waited_for_long(model, monkeypatch):
    """A clock on which each layer takes 0.07 s: two, and one that is queued, are as much as goes."""
    now = iter(number * 0.07 for number in range(1000))
    monkeypatch.setattr(cached_rows, "time", SimpleNamespace(perf_counter=lambda: next(now)))
    rows = CachedRows(model)
    layers = len(rows.caches)
    found = list(rows.prefilling(prompt_of(200)))
    assert found == [0, *(200 * layer // layers for layer in range(1, layers, 2)), 200]


@pytest.mark.parametrize("name", KINDS)
def test_pauses_change_no_bit(pauses, name):
    found = []
    for seconds in (SLOW, QUICK):
        pauses(seconds)
        rows = fresh(name)
        rows.prefill(prompt_of(60))
        found.append(logits_after(rows))
    assert mx.array_equal(*found)


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("stop", [1, 2])
def test_a_pass_that_was_left_leaves_the_rows_before_it(pauses, monkeypatch, name, stop):
    monkeypatch.setattr(cached_rows, "PREFILL_CHUNK", 20)
    pauses(QUICK)
    whole, left = fresh(name), fresh(name)
    whole.prefill(prompt_of(30))
    left.prefill(prompt_of(30)[:20])
    pauses(SLOW)
    begun = left.prefilling(prompt_of(30))
    next(begun)
    assert left.settled
    for _ in range(stop):
        next(begun)
        assert left.tokens == prompt_of(30)[:20]
    # Nobody can use rows within a pass.
    assert not left.settled
    assert left.reach(20) == 0
    begun.close()
    assert left.settled
    assert left.reach(20) == 20
    left.prefill(prompt_of(30))
    assert mx.array_equal(logits_after(left), logits_after(whole))


@pytest.mark.parametrize("name", ["llama", "gemma3"])
def test_a_pass_that_was_left_is_not_computed_later(pauses, tmp_path, name):
    """Arrays that were never evaluated would leave its work to whoever uses the rows next."""
    pauses(QUICK)
    rows = fresh(name)
    rows.prefill(prompt_of(30)[:20])
    pauses(SLOW)
    begun = rows.prefilling(prompt_of(30))
    next(begun)
    next(begun)
    begun.close()
    # Queued already, and computed soon.
    mx.synchronize()
    graph = tmp_path / "graph.dot"
    mx.export_to_dot(str(graph), *[cache.keys for cache in rows.caches])
    assert "Slice" not in graph.read_text()
