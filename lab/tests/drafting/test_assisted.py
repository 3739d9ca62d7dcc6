"""n-grams filled with the target's candidates: what goes where, what wins, and how odds are learned."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from akunu_lab.drafting import assisted
from akunu_lab.drafting.assisted import AssistedNgramDrafter
from akunu_py.drafting import NgramDrafter
from akunu_py.drafting.ngram import fnv1a
from akunu_py.values.types import Draft

TOKENS = st.lists(st.integers(0, 5), max_size=40)


def counts_of(drafter, *context):
    entry = drafter.candidates[len(context) - 1].get(fnv1a(context))
    return None if entry is None else entry.counts


def test_it_is_an_observer_of_candidates():
    assert AssistedNgramDrafter().reads_candidates


def test_candidates_stand_behind_every_context_of_their_row():
    drafter = AssistedNgramDrafter(num_candidates=2)
    drafter.observe([1, 2, 3])
    # 3 was fed, then 4 and 5, drafted and refused or not.
    drafter.observe_candidates([(3, [7, 8, 9]), (4, [6]), (5, [])])
    assert counts_of(drafter, 3) == {8: 1, 7: 2}
    assert counts_of(drafter, 2, 3) == {8: 1, 7: 2}
    assert counts_of(drafter, 1, 2, 3) == {8: 1, 7: 2}
    assert counts_of(drafter, 4) == counts_of(drafter, 2, 3, 4) == {6: 2}
    assert counts_of(drafter, 1, 3, 4) is None
    assert counts_of(drafter, 5) is None
    # The text has none of it.
    assert drafter.tables[0].keys() == {fnv1a([1]), fnv1a([2])}


def test_a_row_that_does_not_follow_the_text_is_its_own_context():
    drafter = AssistedNgramDrafter()
    drafter.observe([1, 2, 3])
    drafter.observe_candidates([(9, [7]), (4, [6])])
    assert counts_of(drafter, 9) == {7: 4}
    assert counts_of(drafter, 3, 9) is None
    assert counts_of(drafter, 9, 4) == {6: 4}
    empty = AssistedNgramDrafter()
    empty.observe_candidates([(9, [7])])
    empty.observe_candidates([])
    assert counts_of(empty, 9) == {7: 4}


def test_the_longest_context_decides_and_text_before_candidates():
    drafter = AssistedNgramDrafter(num_draft_tokens=1)
    drafter.observe([5, 1, 2, 8, 2])
    assert drafter.propose(1).tokens == (8,)  # 2 -> 8 in the text
    drafter.observe_candidates([(2, [7])])
    draft = drafter.propose(1)
    # (2, 8, 2)? Its candidate has the longer context.
    assert (draft.tokens, draft.match_length, draft.confidence) == ((7,), 3, (0.5,))
    drafter.observe([6, 8, 2])
    assert drafter.propose(1).match_length == 2  # (8, 2) -> 6 in the text, before its candidate 7
    assert drafter.propose(1).tokens == (6,)


def test_candidates_continue_candidates_as_far_as_they_are_likely():
    drafter = AssistedNgramDrafter(num_draft_tokens=8)
    drafter.observe([0, 1])
    drafter.observe_candidates([(1, [2]), (2, [3]), (3, [4]), (4, [5])])
    draft = drafter.propose(8)
    # One half, a quarter; an eighth is too little.
    assert draft.tokens == (2, 3)
    assert draft.confidence == (0.5, 0.5)
    drafter.observe([2, 8])
    # Contexts of two tokens were right once, those of three were wrong once.
    assert drafter._hits[2] / drafter._tries[2] == pytest.approx((0.5 * 0.95 + 1) / 1.95)
    assert drafter._hits[3] / drafter._tries[3] == pytest.approx(0.5 * 0.95 / 1.95)
    assert drafter._hits[1] / drafter._tries[1] == 0.5


def test_wrong_candidates_lose_their_odds():
    drafter = AssistedNgramDrafter()
    drafter.observe([0])
    drafter.observe_candidates([(0, [1])])
    for _ in range(20):
        drafter.propose(4)
        drafter.observe([9, 0])
        drafter.observe_candidates([(0, [1])])
    assert drafter._hits[1] < 0.5


def test_behind_a_wrong_token_nothing_was_tested():
    drafter = AssistedNgramDrafter()
    drafter.observe([0, 1])
    drafter.observe_candidates([(1, [2]), (2, [3])])
    assert drafter.propose(2).tokens == (2, 3)
    drafter.observe([5, 3])
    assert drafter._tries[2:] == [1.95, 1.0]


def test_what_text_was_drafted_teaches_nothing_of_candidates():
    drafter = AssistedNgramDrafter()
    drafter.observe([1, 2, 3, 1, 2, 3, 1])
    assert drafter.propose(4).tokens == (2, 3, 1, 2)
    drafter.observe([2, 3, 1])
    assert drafter._tries == [1.0] * 4


@given(TOKENS, st.integers(0, 6))
def test_without_candidates_it_is_the_ngram_drafter(tokens, limit):
    ours, plain = AssistedNgramDrafter(), NgramDrafter()
    ours.observe(tokens)
    plain.observe(tokens)
    a, b = ours.propose(limit), plain.propose(limit)
    assert (a.tokens, a.match_length, a.confidence) == (b.tokens, b.match_length, b.confidence)


@given(TOKENS, TOKENS)
def test_extending_is_proposing_behind_the_draft(tokens, drafted):
    drafter, longer = AssistedNgramDrafter(), AssistedNgramDrafter()
    drafter.observe(tokens)
    longer.observe(tokens)
    for either in (drafter, longer):
        either.observe_candidates([(3, [4, 2]), (0, [1])])
    longer._context = (*longer._context, *drafted)[-3:]
    assert drafter.extend(Draft.chain(drafted), 4) == longer.propose(4)


def test_memory_is_bounded(monkeypatch):
    monkeypatch.setattr(assisted, "MAX_CONTEXTS", 5)
    drafter = AssistedNgramDrafter()
    drafter.observe([0])
    drafter.observe_candidates([(token, [token + 1]) for token in range(50)])
    assert [len(table) for table in drafter.candidates] == [5, 5, 5]
    assert counts_of(drafter, 49) == {50: 4}
    assert counts_of(drafter, 44) is None
