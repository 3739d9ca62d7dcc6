"""Prompt lookup: equal to a naive search, whatever the chunks."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from akunu_py.drafting import LookupDrafter

TOKENS = st.lists(st.integers(0, 3), max_size=80)


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


@given(TOKENS, st.integers(1, 5), st.integers(0, 12))
def test_it_drafts_what_a_naive_search_finds(text, max_context, limit):
    drafter = LookupDrafter(max_context=max_context, num_draft_tokens=12)
    drafter.observe(text)
    draft = drafter.propose(limit)
    expected, length = naive_draft(text, max_context, limit)
    assert list(draft.tokens) == expected
    assert draft.match_length == (length if limit else 0)
    assert draft.source == "lookup"
    assert draft.is_chain


@given(TOKENS, st.lists(st.integers(0, 80), max_size=6))
def test_the_chunks_do_not_matter(text, cuts):
    whole, chunked = LookupDrafter(), LookupDrafter()
    whole.observe(text)
    bounds = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    for begin, end in pairwise(bounds):
        chunked.observe(tuple(text[begin:end]))
    assert chunked.tables == whole.tables
    assert chunked.propose(10) == whole.propose(10)


@given(TOKENS, st.integers(1, 5), st.integers(1, 5))
def test_matches_below_the_least_are_none(text, max_context, min_match):
    min_match = min(min_match, max_context)
    drafter = LookupDrafter(max_context=max_context, min_match=min_match)
    drafter.observe(text)
    expected, length = naive_draft(text, max_context, 10)
    assert list(drafter.propose(10).tokens) == (expected if length >= min_match else [])
