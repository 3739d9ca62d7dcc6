"""Log probabilities of a prompt's tokens: those of its logits, whatever was read or scored before.

Mutants, made by hand, that these tests kill: a score taken from the row of its own token; rows that are
kept though the token behind them is another; scores of rows that another text had; a first token that
differs; the rest of a block of aligned rows left out.
"""

import functools
from dataclasses import replace

import mlx.core as mx
import numpy as np
import pytest
from family_models import build_family, variant_of
from pass_sizes import record_sizes
from tiny_models import GREEDY, prompt_of, sampler_of

from akunu_py import ConfigError, ModelFormatError
from akunu_py.models import cached_rows
from akunu_py.models.row_choices import PromptScores, Scoring
from akunu_py.models.session import Session

KINDS = ["llama", "llama, 8-bit caches", "gemma3", "qwen3_next", "mamba2"]
model_of = functools.cache(build_family)
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
@pytest.mark.parametrize("name", KINDS)
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
