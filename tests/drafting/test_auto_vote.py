"""The vote: equal to one written down naively, and cut where nothing longer can pay."""

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from naive_vote import naive_chain, naive_occurrences

from akunu_py.drafting.auto import features
from akunu_py.drafting.auto.calibration import Calibration
from akunu_py.drafting.auto.vote import Situation, make_chain, proposals, voters_of
from akunu_py.drafting.memory import OccurrenceIndex


@st.composite
def repetitive_texts(draw):
    """Texts that copy from themselves and now and then change: what drafting is about."""
    rng = random.Random(draw(st.integers(0, 10**6)))
    vocabulary = draw(st.sampled_from([2, 4, 12, 60]))
    change = draw(st.sampled_from([0.02, 0.1, 0.4]))
    text = [rng.randrange(vocabulary) for _ in range(draw(st.integers(1, 40)))]
    while len(text) < draw(st.integers(2, 300)):
        start = rng.randrange(len(text))
        for token in text[start : start + rng.randrange(1, 60)]:
            text.append(rng.randrange(vocabulary) if rng.random() < change else token)
    return text


def calibration_of(seed, text):
    """Random weights, and outcomes of some of the text's pairs."""
    rng = random.Random(seed)
    known = Calibration([rng.gauss(0.4, 0.5) for _ in range(features.NUM_WEIGHTS)])
    for _ in range(40):
        place = rng.randrange(len(text))
        token = text[(place + 1) % len(text)]
        decided = token if rng.random() < 0.7 else -5
        known.learn([token], [0.5], [()], [decided], text[place], 0.0)
    return known


@settings(max_examples=settings.default.max_examples * 4)
@given(
    repetitive_texts(),
    st.integers(0, 10**6),
    st.integers(1, 40),
    st.integers(0, 40),
    st.integers(0, 2),
)
def test_the_chain_is_that_of_the_naive_vote(text, seed, longest, streak, outcome):
    index = OccurrenceIndex()
    index.separate()
    cut, end = len(text) // 3, 2 * len(text) // 3
    index.extend(text[:cut])
    index.separate()
    memory_end = len(index)
    index.extend(text[cut:])
    at = Situation(memory_end, memory_end + end - cut, 0.3, streak, outcome)
    known = calibration_of(seed, text)
    before = index.tokens.copy()
    chain = make_chain(index, known, at, longest, [0.0] * 80, 1.0)
    tokens, probabilities, rows, sources, match_length = naive_chain(before, known, at, longest)
    assert index.tokens == before
    assert chain.tokens == tokens
    assert chain.probabilities == pytest.approx(probabilities)
    assert [set(found) for found in chain.features] == rows
    assert chain.sources == sources
    assert chain.match_length == match_length


@settings(max_examples=settings.default.max_examples * 3)
@given(repetitive_texts(), st.integers(1, 40), st.integers(1, 30), st.integers(1, 5))
def test_the_search_is_that_of_the_naive_search(text, most, enough, further):
    index = OccurrenceIndex()
    index.extend(text)
    found = index.occurrences(most, 40, enough=enough, further=further)
    assert found == naive_occurrences(index.tokens, 40, most, enough, further)


@given(repetitive_texts(), st.integers(0, 99), st.floats(1, 3))
def test_the_chain_ends_where_nothing_longer_can_pay(text, seed, pace):
    index = OccurrenceIndex()
    index.extend(text)
    known, at = calibration_of(seed, text), Situation()
    floors = [0.01 * k for k in range(41)]
    whole = make_chain(index, known, at, 40, [0.0] * 41, pace)
    cut = make_chain(index, known, at, 40, floors, pace)
    assert cut.tokens == whole.tokens[: len(cut.tokens)]
    for k in range(1, len(whole.tokens) + 1):
        if math.prod(whole.probabilities[:k]) < pace * floors[k]:
            assert len(cut.tokens) == k
            break
    else:
        assert len(cut.tokens) == len(whole.tokens)


def test_a_separator_is_never_proposed():
    index = OccurrenceIndex()
    for _ in range(3):
        index.separate()
        index.extend([1, 2, 3])
    index.separate()
    index.extend([7, 2, 3])
    known = Calibration([3.0] * features.NUM_WEIGHTS)
    assert make_chain(index, known, Situation(), 9, [0.0] * 20, 1.0).tokens == []
    for _ in range(2):
        index.separate()
        index.extend([1, 2, 3, 4, 5, 6, 7, 8])
    index.separate()
    index.extend([7, 1, 2])
    assert make_chain(index, known, Situation(), 9, [0.0] * 20, 1.0).tokens == [3, 4, 5, 6, 7, 8]


def test_contexts_count_in_votes_on_short_matches_that_disagree():
    # Three times the token 1; before the first one stand 2 (17 places before what follows) and 3.
    text = [-1, 2, 3, *range(100, 114), 1, 7, *range(200, 215), 1, 8]
    text += [2, 3, *range(300, 313), 1]
    first, second = text.index(7), text.index(8)
    voters = voters_of([(1, second), (1, first)], text)
    assert voters == [(1, 1, second), (1, 2, first)]
    options, total = proposals([8, 7], voters)
    weights = [3 * 3**0.8, 3 * 3**1.6]
    assert [weight for weight, _, _ in options] == pytest.approx(weights)
    assert total == pytest.approx(sum(weights))
    # A match of 7 tokens speaks for itself, and 6 do not.
    assert [alike for _, alike, _ in voters_of([(7, second), (7, first)], text)] == [0, 0]
    assert [alike for _, alike, _ in voters_of([(6, second), (6, first)], text)] == [1, 2]
    # Where all propose the same token, only the leader's context is compared.
    text[second] = 7
    assert voters_of([(1, second), (1, first)], text) == [(1, 1, second), (1, 0, first)]


def test_a_new_token_is_skipped():
    index = OccurrenceIndex()
    index.extend([5, 6, 7, 8, 5, 6, 9])
    assert index.occurrences(4, 64, enough=24, further=4) == [(0, index.tokens.index(8))]
