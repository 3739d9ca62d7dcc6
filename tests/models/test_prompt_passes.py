"""How a prompt is cut into passes, their pauses, in which others are heard, and scores of its tokens.

Mutants, made by hand, that tests of scores kill: a score taken from the row of its own token; rows that are kept
though the token behind them is another; scores of rows that another text had; a first token that
differs; the rest of a block of aligned rows left out.
"""

import functools
from dataclasses import replace
from types import SimpleNamespace

import mlx.core as mx
import numpy as np
import pytest
from family_models import build_family, variant_of
from pass_sizes import record_sizes
from tiny_models import GREEDY, prompt_of, sampler_of

from akunu_py import ConfigError, ModelFormatError
from akunu_py.models import cached_rows
from akunu_py.models.aligned_rows import AlignedRows
from akunu_py.models.cached_rows import CachedRows
from akunu_py.models.row_choices import PromptScores, Scoring
from akunu_py.models.session import Session

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


TEXT = prompt_of(150)
# How each text follows from the one before: nothing is known, the end, a branch, a new beginning, a part.
TEXTS = {
    "new": TEXT,
    "again": TEXT,
    "longer": [*TEXT, *prompt_of(20, seed=1)],
    "branch": [*TEXT[:100], *prompt_of(30, seed=2)],
    "last": [*TEXT[:99], TEXT[99] ^ 1],
    "first": [TEXT[0] ^ 1, *TEXT[1:60]],
    "part": TEXT[:33],
    "one": TEXT[:1],
}


def scores_of(session, text, top=2):
    begun = session.beginning(text, sampler_of(GREEDY, session.vocabulary_size), 4, scored=top)
    read = list(begun)
    return read[0], session.prompt_logprobs()


def expected(session, text):
    rows = session.logits(text).astype(np.float64)
    rows -= rows.max(axis=-1, keepdims=True)
    return rows - np.log(np.exp(rows).sum(axis=-1, keepdims=True))


def check(session, text, found, top=2):
    rows = expected(session, text)[:-1]
    assert [one.token for one in found] == list(text[1:])
    for one, row in zip(found, rows, strict=True):
        assert one.logprob == pytest.approx(row[one.token], abs=2e-4)
        best = np.sort(row)[::-1][:top]
        assert [value for _, value in one.top] == pytest.approx(list(best), abs=2e-4)


@pytest.mark.parametrize("reproducible", [False, True])
@pytest.mark.parametrize("name", ["llama", "llama, 8-bit caches", "gemma3", "qwen3_next", "mamba2"])
def test_scores_are_those_of_the_logits(name, reproducible, monkeypatch):
    monkeypatch.setattr(cached_rows, "SCORED_ROWS", 32)
    kv_bits = variant_of(name).kv_bits
    session = Session(model_of(name), context=400, kv_bits=kv_bits, reproducible=reproducible)
    for text in TEXTS.values():
        check(session, text, scores_of(session, text)[1])
        # What else was said meanwhile is no part of a later prompt's scores.
        if len(text) == 130:
            list(session.beginning(TEXT[:90], sampler_of(GREEDY, session.vocabulary_size), 4))


def test_rows_whose_scores_are_known_are_not_fed_again():
    session = Session(model_of("llama"), context=400)
    held = {name: scores_of(session, text)[0] for name, text in TEXTS.items()}
    # The row before a branch is fed again, for the token that is new there.
    assert held == {
        "new": 0, "again": 149, "longer": 149, "branch": 99, "last": 98, "first": 0, "part": 0,
        "one": 0,
    }  # fmt: skip
    list(session.beginning(TEXT, sampler_of(GREEDY, session.vocabulary_size), 4))
    assert scores_of(session, TEXT)[0] == 0  # rows of a reply have no scores
    assert scores_of(session, TEXT, top=1)[0] == 149
    assert scores_of(session, TEXT, top=3)[0] == 0
    copied = session.copy(session.rows, 80)
    session.exchange(copied)
    held, found = scores_of(session, TEXT[:100], top=3)
    assert held == 80
    check(session, TEXT[:100], found, top=3)


@pytest.mark.parametrize(
    ("text", "top", "reach"),
    [
        ((5, 6, 7, 8), 2, 3), ((5, 6, 7, 8, 9), 2, 3), ((5, 6), 2, 1), ((5,), 2, 0),
        ((5, 6, 9, 8), 2, 1), ((5, 9, 7, 8), 2, 0), ((5, 6, 7, 9), 2, 2),
        # Rows behind another first token are others.
        ((4, 6, 7, 8), 2, 0),
        ((5, 6, 7, 8), 1, 3), ((5, 6, 7, 8), 0, 3), ((5, 6, 7, 8), 3, 0), ((5, 6, 7, 8), 4, 0),
    ],
)  # fmt: skip
def test_scores_reach_to_where_texts_differ(text, top, reach):
    scores = PromptScores((5, 6, 7, 8), 2)
    scores.add(mx.random.normal((1, 3, 16)), (6, 7, 8))
    scoring = Scoring(text, top)
    assert scores.reach(scoring) == reach
    kept = scores.first(reach, scoring).read()
    assert kept == tuple(replace(one, top=one.top[:top]) for one in scores.read()[:reach])


def test_logits_of_few_rows_are_held_at_once(monkeypatch):
    session = Session(model_of("llama"), context=400)
    sizes = record_sizes(monkeypatch)
    scores_of(session, TEXT)
    assert sizes == [64, 64, 21]


def test_damaged_weights_are_an_error():
    model = build_family("llama")
    model.model.norm.weight = mx.full(model.model.norm.weight.shape, mx.nan)
    session = Session(model, context=400)
    with pytest.raises(ModelFormatError, match="no token"):
        scores_of(session, TEXT[:20])


def test_an_engine_scores_a_prompt(engine):
    text = "abc, abcd and abcde"
    ids = engine.prompt_ids(text)
    found = engine.score(text, top=1)
    rows = engine.logits(ids)[:-1].astype(np.float64)
    rows -= np.log(np.exp(rows).sum(axis=-1, keepdims=True))
    assert [one.logprob for one in found] == pytest.approx(
        [row[token] for row, token in zip(rows, ids[1:], strict=True)], abs=2e-4
    )
    assert engine.score(ids, top=1) == found
    assert engine.score(ids[:1]) == ()
    assert engine.generate(text, max_tokens=2).prompt_logprobs is None
    with pytest.raises(ConfigError, match="logprobs is 21"):
        engine.score(text, top=21)
