"""Distributions with a tail of equals: every answer as the dense row gives it."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from akunu_lab.adjustment import Adjustment
from akunu_lab.counts.distribution import SparseDistribution
from akunu_py.system.errors import ConfigError
from akunu_py.values.keyed_noise import NoiseKey, Purpose


def distribution_of(vocabulary_size, weights, tail):
    """Tokens with the given weights, and a tail of the given weight for all others together."""
    tokens = np.array(list(weights), np.int64)
    values = np.array(list(weights.values()), float)
    unlisted = vocabulary_size - tokens.size
    total = values.sum() + (tail if unlisted else 0)
    rest = tail / unlisted / total if unlisted else 0.0
    return SparseDistribution(tokens, values / total, rest, vocabulary_size)


@st.composite
def distributions(draw):
    size = draw(st.integers(1, 12))
    weights = draw(st.dictionaries(st.integers(0, size - 1), st.sampled_from([0.0, 0.1, 1.0, 5.0])))
    tail = draw(st.sampled_from([0.0, 0.02, 1.0, 30.0]))
    unlisted = size - len(weights)
    if not sum(weights.values()) + (tail if unlisted else 0):
        tail = 1.0
        if not unlisted:
            weights[0] = 1.0
    order = draw(st.permutations(list(weights)))
    return distribution_of(size, {token: weights[token] for token in order}, tail)


def dense_draw(row, key):
    with np.errstate(divide="ignore"):
        return int((np.log(row) + key.gumbels(np.arange(row.size))).argmax())


@given(distributions())
def test_it_answers_as_its_dense_row(q):
    row = q.dense()
    assert row.sum() == pytest.approx(1, abs=1e-12)
    assert [q.probability(token) for token in range(row.size)] == row.tolist()
    assert q.largest() == row.max()
    assert q.likeliest() == row.argmax()
    positive = row[row > 0]
    assert q.entropy() == pytest.approx(-(positive * np.log(positive)).sum(), abs=1e-12)
    listed = set(q.tokens.tolist())
    unlisted = [token for token in range(row.size) if token not in listed]
    assert q.lowest_unlisted(3).tolist() == unlisted[:3]
    assert q.num_unlisted == len(unlisted)


@settings(max_examples=settings.default.max_examples * 2)
@given(distributions(), st.integers(0, 2**64 - 1))
def test_a_draw_is_the_argmax_over_all_tokens(q, seed):
    row = q.dense()
    for position in range(6):
        key = NoiseKey.at(seed, position, Purpose.DRAFT)
        assert q.draw(key) == dense_draw(row, key)


@pytest.mark.fast_every(2)
@pytest.mark.parametrize("tail", [1e-9, 0.01, 0.5, 20.0, 1e9])
@pytest.mark.parametrize("listed", [0, 3, 2000, 60_000])
def test_a_draw_over_a_large_vocabulary_is_the_dense_one(tail, listed):
    size = 150_000
    ids = np.random.default_rng(3).permutation(size)[:listed]
    q = distribution_of(size, {int(token): 1 + place % 7 for place, token in enumerate(ids)}, tail)
    row = q.dense()
    for position in range(12):
        key = NoiseKey.at(9, position)
        assert q.draw(key) == dense_draw(row, key)


def test_a_draw_does_not_hash_a_large_vocabulary(monkeypatch):
    hashed = []
    from akunu_lab.counts import distribution

    real = NoiseKey.tokens
    monkeypatch.setattr(
        NoiseKey, "tokens", lambda key, bits: hashed.append(bits.size) or real(key, bits)
    )
    monkeypatch.setattr(distribution.SparseDistribution, "_noisiest_of_all", None)
    q = distribution_of(150_000, dict.fromkeys(range(50), 1.0), 5.0)
    for position in range(100):
        q.draw(NoiseKey.at(1, position))
    # 2**32 / 150,000 times the odds of the tail, 0.1, are 2,863.
    assert sum(hashed) / 100 < 9_000


@pytest.mark.slow
def test_draws_have_the_frequencies_of_q():
    q = distribution_of(40, {7: 4.0, 3: 1.0, 39: 2.0}, 3.0)
    draws = np.array([q.draw(NoiseKey.at(5, position, Purpose.DRAFT)) for position in range(4000)])
    expected = q.dense() * draws.size
    statistic = ((np.bincount(draws, minlength=40) - expected) ** 2 / expected).sum()
    assert statistic < 39 + 4 * math.sqrt(2 * 39)


ADJUSTMENTS = st.builds(
    Adjustment,
    temperature=st.sampled_from([0, 0.5, 1.0, 2.0]),
    top_k=st.sampled_from([0, 1, 2, 5, 11, 100]),
    top_p=st.sampled_from([0.4, 0.9, 1.0]),
    min_p=st.sampled_from([0.0, 0.05, 0.5]),
    presence_penalty=st.sampled_from([0.0, 1.0]),
    repetition_penalty=st.sampled_from([1.0, 1.5]),
    frequency_penalty=st.sampled_from([0.0, -0.5]),
    penalty_window=st.just(3),
)


@given(distributions(), ADJUSTMENTS, st.lists(st.integers(0, 11), max_size=5), st.booleans())
def test_adjusted_it_is_the_adjusted_dense_row(q, adjustment, recent, biased):
    size = q.vocabulary_size
    recent = [token % size for token in recent]
    if biased:
        adjustment = Adjustment(
            temperature=adjustment.temperature, top_k=adjustment.top_k, logit_bias={size - 1: 1.5}
        )
    with np.errstate(divide="ignore"):
        expected = adjustment.probabilities(np.log(q.dense()), recent)
    adjusted = q.adjust(adjustment, recent)
    np.testing.assert_allclose(adjusted.dense(), expected, atol=1e-13)
    assert adjusted.dense().sum() == pytest.approx(1, abs=1e-12)


def test_penalties_outside_the_vocabulary_are_refused():
    q = SparseDistribution.uniform(4)
    with pytest.raises(ConfigError, match="outside 0 to 3"):
        q.adjust(Adjustment(logit_bias={4: 1.0}))
    with pytest.raises(ConfigError, match="outside 0 to 3"):
        q.adjust(Adjustment(presence_penalty=1.0), [9])


def test_uniform():
    q = SparseDistribution.uniform(8)
    assert q.dense().tolist() == [0.125] * 8
    assert q.entropy() == pytest.approx(math.log(8), abs=1e-15)
    assert q.likeliest() == 0
