"""The occurrence index, and prompt lookup: equal to a naive search, in any chunks, over an older index too."""

from itertools import pairwise

from hypothesis import example, given, settings
from hypothesis import strategies as st
from naive_vote import naive_occurrences

from akunu_py.drafting import LookupDrafter
from akunu_py.drafting.memory import OccurrenceIndex

TOKENS = st.lists(st.integers(0, 3), max_size=60)
TEXTS = st.lists(TOKENS, max_size=4)
ALL = {"enough": 10**6, "further": 1}


def index_of(texts, older=None):
    index = OccurrenceIndex(older)
    for text in texts:
        index.separate()
        index.extend(text)
    return index


@settings(max_examples=settings.default.max_examples * 5)
@given(TEXTS, TOKENS, st.integers(2, 70))
def test_it_finds_what_a_naive_search_finds(texts, last, longest):
    index = index_of([*texts, last])
    found = index.occurrences(10**6, longest, **ALL)
    assert found == naive_occurrences(index.tokens, longest, 10**6, **ALL)


def contents(index):
    size = len(index)
    return index.tokens[:size], index.same_token[:size], index.same_pair[:size]


@given(TEXTS, TOKENS)
def test_an_older_index_and_one_built_at_once_are_the_same(texts, last):
    older = index_of(texts)
    before = contents(older)
    over, whole = index_of([last], older), index_of([*texts, last])
    assert contents(over) == contents(whole)
    assert over.tokens is older.tokens
    assert contents(older) == before


@given(TEXTS, TOKENS, TOKENS)
def test_lists_given_back_are_as_they_were(texts, last, more):
    older = index_of(texts)
    lists = older.tokens, older.same_token, older.same_pair
    before = contents(older)
    over = index_of([last], older)
    over.give_back()
    assert lists == before
    assert contents(over) == contents(OccurrenceIndex())
    older.extend(more)
    assert older.tokens is lists[0]


@example([], [("begin", 1), ("back", 1), ("extend", 1), ("back", 1)])
@given(TEXTS, st.lists(st.tuples(st.sampled_from(["extend", "begin", "back"]), st.integers(0, 3))))
def test_indexes_over_the_same_one_do_not_see_each_other(texts, steps):
    """Number 0 is the older index; 1 to 3 begin where it ends at that moment."""
    indexes, borrowing = {0: index_of(texts)}, set()
    expected = {0: indexes[0].tokens.copy()}
    for token, (what, number) in enumerate(steps):
        if what == "extend" and number in indexes:
            indexes[number].extend([token])
            expected[number].append(token)
        elif number and what == "begin":
            indexes[number] = OccurrenceIndex(indexes[0])
            expected[number] = expected[0].copy()
            borrowing.add(number)
        elif number in indexes and what == "back":
            indexes[number].give_back()
            if number in borrowing:
                # What it takes in afterwards is its own, and stays.
                borrowing.remove(number)
                expected[number] = [-1]
        for one, index in indexes.items():
            assert contents(index)[0] == expected[one]
            assert {len(part) for part in contents(index)} == {len(index)}


@given(TEXTS, TOKENS, TOKENS)
def test_what_the_older_index_takes_in_later_does_no_harm(texts, later, last):
    older = index_of(texts)
    over = OccurrenceIndex(older)
    older.separate()
    older.extend(later)
    over.separate()
    over.extend(last)
    whole = index_of([*texts, last])
    # An occurrence may be lost to a later one that is not part of this text.
    for found, expected in ((over.same_token, whole.same_token), (over.same_pair, whole.same_pair)):
        assert all(a in {0, b} for a, b in zip(found, expected, strict=True))


@given(TOKENS, st.lists(st.integers(0, 60), max_size=5))
def test_the_chunks_do_not_matter(text, cuts):
    whole, chunked = index_of([text]), index_of([[]])
    bounds = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    for begin, end in pairwise(bounds):
        chunked.extend(tuple(text[begin:end]))
    assert chunked.tokens == whole.tokens
    assert chunked.same_token == whole.same_token
    assert chunked.same_pair == whole.same_pair


def test_the_search_is_bounded():
    index = index_of([[1, 2] * 50 + [1]])
    assert len(index.occurrences(7, 64, **ALL)) == 7
    # Matches of 24 tokens and more: three after the last that is longer than those before.
    assert len(index.occurrences(10**6, 30, enough=24, further=3)) <= 4
    assert index_of([[5]]).occurrences(5, 64, **ALL) == []
    assert OccurrenceIndex().occurrences(5, 64, **ALL) == []


def test_matches_do_not_cross_separators():
    assert index_of([[1, 2, 3, 9], [2, 3]]).occurrences(9, 64, **ALL) == [(2, 5)]


TEXT = st.lists(st.integers(0, 3), max_size=80)


def naive_draft(text, max_context, limit):
    """Search every position, longest context first, from the end."""
    for length in range(min(max_context, len(text)), 0, -1):
        for end in range(len(text) - 1, length - 1, -1):
            if text[end - length : end] == text[-length:]:
                copied = list(text)
                for k in range(limit):
                    copied.append(copied[end + k])
                return copied[len(text) :], length
    return [], 0


@given(TEXT, st.integers(1, 5), st.integers(0, 12))
def test_it_drafts_what_a_naive_search_finds(text, max_context, limit):
    drafter = LookupDrafter(max_context=max_context, num_draft_tokens=12)
    drafter.observe(text)
    draft = drafter.propose(limit)
    expected, length = naive_draft(text, max_context, limit)
    assert list(draft.tokens) == expected
    assert draft.match_length == (length if limit else 0)
    assert draft.source == "lookup"
    assert draft.is_chain


@given(TEXT, st.lists(st.integers(0, 80), max_size=6))
def test_the_chunks_of_a_text_to_copy_do_not_matter(text, cuts):
    whole, chunked = LookupDrafter(), LookupDrafter()
    whole.observe(text)
    bounds = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    for begin, end in pairwise(bounds):
        chunked.observe(tuple(text[begin:end]))
    assert chunked.tables == whole.tables
    assert chunked.propose(10) == whole.propose(10)


@given(TEXT, st.integers(1, 5), st.integers(1, 5))
def test_matches_below_the_least_are_none(text, max_context, min_match):
    min_match = min(min_match, max_context)
    drafter = LookupDrafter(max_context=max_context, min_match=min_match)
    drafter.observe(text)
    expected, length = naive_draft(text, max_context, 10)
    assert list(drafter.propose(10).tokens) == (expected if length >= min_match else [])
