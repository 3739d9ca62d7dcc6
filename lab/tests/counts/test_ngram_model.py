"""n-gram counts as probabilities: the formula by hand and by definition, sums, extremes."""

import itertools
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from akunu_lab.counts.ngram_model import NgramModel
from akunu_py.system.errors import ContractError

SIZE = 6
TOKENS = st.lists(st.integers(0, SIZE - 1), max_size=60)


def by_definition(tokens, context, order, discount, size):
    """Equation by equation, dense and slow."""
    row = np.full(size, 1 / size)
    for length in range(order):
        if length > len(context):
            break
        wanted = tuple(context[len(context) - length :])
        counts = Counter(
            tokens[end] for end in range(length, len(tokens))
            if tuple(tokens[end - length : end]) == wanted
        )  # fmt: skip
        total = sum(counts.values())
        if not total:
            break
        lower = row
        row = lower * discount * len(counts) / total
        for token, count in counts.items():
            row[token] += (count - discount) / total
    return row


@given(
    TOKENS,
    st.integers(0, 60),
    st.integers(0, 6),
    st.booleans(),
    st.integers(1, 5),
    st.sampled_from([0.0, 0.3, 0.75]),
)
def test_it_is_interpolated_absolute_discounting(tokens, start, length, known, order, discount):
    # A stretch of the text, at times behind a token that was never seen.
    context = ([] if known else [SIZE]) + tokens[start % (len(tokens) + 1) :][:length]
    model = NgramModel(SIZE + 1, order=order, discount=discount)
    model.observe(tokens)
    row = model.distribution(context).dense()
    np.testing.assert_allclose(
        row, by_definition(tokens, context, order, discount, SIZE + 1), atol=1e-14
    )
    assert abs(row.sum() - 1) < 1e-12
    assert (row > 0).all() or discount == 0


@pytest.mark.parametrize("order", range(1, 7))
@pytest.mark.parametrize("length", range(7))
def test_contexts_of_every_length(order, length):
    tokens = [0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5, 1, 1, 2, 0, 3, 2, 1, 4, 5]
    model = NgramModel(SIZE, order=order)
    model.observe(tokens)
    row = model.distribution(tokens[1 : 1 + length]).dense()
    expected = by_definition(tokens, tokens[1 : 1 + length], order, 0.75, SIZE)
    np.testing.assert_allclose(row, expected, atol=1e-15)


def test_a_bigram_model_by_hand():
    model = NgramModel(4, order=2, discount=0.5)
    model.observe([0, 1, 0, 1, 0, 2])
    # Unigrams: 0 three times, 1 twice, 2 once, of 6; back-off 0.5 * 3 / 6 = 1/4 over 4 tokens.
    unigram = np.array([2.5, 1.5, 0.5, 0.0]) / 6 + 1 / 16
    np.testing.assert_allclose(model.distribution([]).dense(), unigram, atol=1e-15)
    # After 0: 1 twice, 2 once; back-off 0.5 * 2 / 3.
    expected = unigram / 3 + np.array([0, 1.5, 0.5, 0]) / 3
    np.testing.assert_allclose(model.distribution([3, 0]).dense(), expected, atol=1e-15)
    # 2 was seen, but nothing after it; 3 was not seen.
    np.testing.assert_allclose(model.distribution([2]).dense(), unigram, atol=1e-15)
    np.testing.assert_allclose(model.distribution([3]).dense(), unigram, atol=1e-15)


def test_without_a_discount_the_longest_context_decides_alone():
    model = NgramModel(5, order=3, discount=0)
    model.observe([0, 1, 2, 0, 1, 3, 4, 1, 2])
    assert model.distribution([0, 1]).dense().tolist() == [0, 0, 0.5, 0.5, 0]
    assert model.distribution([1]).dense() == pytest.approx([0, 0, 2 / 3, 1 / 3, 0])


@given(TOKENS, st.lists(st.integers(0, 60), max_size=4), st.integers(1, 4))
def test_counts_do_not_depend_on_how_tokens_are_cut(tokens, cuts, order):
    whole, cut = NgramModel(SIZE, order=order), NgramModel(SIZE, order=order)
    whole.observe(tokens)
    bounds = sorted({0, len(tokens), *(min(at, len(tokens)) for at in cuts)})
    for start, end in itertools.pairwise(bounds):
        cut.observe(tokens[start:end])
    for context in ([], tokens[-3:], tokens[:2], tokens[-1:]):
        a, b = whole.distribution(context), cut.distribution(context)
        assert a.tokens.tolist() == b.tokens.tolist()
        assert a.probabilities.tolist() == b.probabilities.tolist()
        assert a.rest == b.rest


@pytest.mark.parametrize("order", [1, 2, 4])
def test_empty_tables_are_uniform(order):
    q = NgramModel(7, order=order).distribution([1, 2, 3])
    assert q.dense().tolist() == [1 / 7] * 7


def test_a_vocabulary_of_one_token():
    model = NgramModel(1)
    model.observe([0, 0, 0])
    assert model.distribution([0, 0]).dense() == pytest.approx([1.0], abs=1e-15)


def test_huge_counts_keep_the_sum():
    model = NgramModel(150_000, order=2)
    model.observe([5, 6] * 3)
    model._counts[:2] = 10**15
    model.total = 2 * 10**15
    followers = model._tables[0][0,]
    followers.counts[1] = 10**15
    followers.total = 10**15
    row = model.distribution([5]).dense()
    assert abs(row.sum() - 1) < 1e-12
    assert (row > 0).all()
    assert row[6] > 1 - 1e-12


def test_a_large_vocabulary_and_many_tokens_sum_to_one():
    model = NgramModel(150_000)
    tokens = (np.random.default_rng(0).zipf(1.2, 20_000) % 150_000).tolist()
    model.observe(tokens)
    for end in (5, 100, 20_000):
        row = model.distribution(tokens[:end]).dense()
        assert abs(row.sum() - 1) < 1e-12
        assert (row > 0).all()


def test_a_distribution_stays_when_more_is_observed():
    model = NgramModel(9)
    model.observe([1, 2, 3])
    q = model.distribution([2])
    before = q.dense()
    model.observe([4, 5, 2, 8] * 200)
    assert q.dense().tolist() == before.tolist()


def test_ids_outside_the_vocabulary_are_refused():
    model = NgramModel(3)
    with pytest.raises(ContractError, match=r"token 3 .* ends at 2"):
        model.observe([0, 3])
    with pytest.raises(ContractError):
        model.observe([-1])
