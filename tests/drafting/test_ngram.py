"""The seed predictor: keys, tables, ties, windows, options, and its two intake paths, which are equal."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from akunu_py.drafting import LookupDrafter, NgramDrafter, WindowedNgramDrafter
from akunu_py.drafting.ngram import fnv1a
from akunu_py.drafting.registry import check_drafter, make_drafter
from akunu_py.system.errors import ConfigError
from akunu_py.values.types import GenerationConfig

TOKENS = st.lists(st.integers(0, 5), max_size=120)
WIDE_TOKENS = st.lists(st.integers(0, 2**31 - 1), max_size=60)


def tables_of(drafter):
    """Everything that predictions depend on, order of last sighting included."""
    return [
        {
            key: (list(entry.counts.items()), entry.best, entry.best_count, entry.total)
            for key, entry in table.items()
        }
        for table in drafter.tables
    ]


def tables_by_definition(tokens, max_order=4):
    """Count n-grams the slow and obvious way."""
    tables = []
    for length in range(1, max_order):
        table = {}
        for end in range(length, len(tokens)):
            context, follower = tuple(tokens[end - length : end]), tokens[end]
            table.setdefault(fnv1a(context), []).append(follower)
        expected = {}
        for key, followers in table.items():
            counts = Counter(followers)
            last = {token: index for index, token in enumerate(followers)}
            ordered = sorted(counts, key=last.__getitem__)
            best = max(counts, key=lambda token: (counts[token], last[token]))
            expected[key] = (
                [(token, counts[token]) for token in ordered],
                best,
                counts[best],
                len(followers),
            )
        tables.append(expected)
    return tables


@pytest.mark.parametrize(
    ("text", "value"),
    [("", 0xCBF29CE484222325), ("a", 0xAF63DC4C8601EC8C), ("foobar", 0x85944171F73967E8)],
)
def test_keys_are_the_published_fnv1a_for_bytes(text, value):
    assert fnv1a(text.encode()) == value


def test_an_id_is_hashed_whole_not_by_bytes():
    expected = ((14695981039346656037 ^ 70000) * 1099511628211) % 2**64
    assert fnv1a([70000]) == expected
    assert fnv1a([70000]) != fnv1a((70000).to_bytes(4, "little"))


@settings(max_examples=settings.default.max_examples * 5)
@given(TOKENS)
def test_tables_count_every_ngram(tokens):
    drafter = NgramDrafter()
    for token in tokens:
        drafter.observe([token])
    assert tables_of(drafter) == tables_by_definition(tokens)


@given(st.one_of(TOKENS, WIDE_TOKENS), st.lists(st.integers(0, 120), max_size=4))
@pytest.mark.parametrize("kind", [NgramDrafter, WindowedNgramDrafter])
def test_update_batch_gives_the_tables_of_one_by_one(kind, tokens, cuts):
    one_by_one, batched = kind(history=30), kind(history=30)
    for token in tokens:
        one_by_one.observe([token])
    start = 0
    for end in [*sorted(cut for cut in cuts if cut < len(tokens)), len(tokens)]:
        batched.update_batch(np.array(tokens[start:end], dtype=np.int64))
        start = end
    assert tables_of(batched) == tables_of(one_by_one)
    assert list(batched.history) == list(one_by_one.history) == tokens[-30:]
    assert batched.propose(4) == one_by_one.propose(4)


def test_a_long_prompt_takes_the_vectorised_path_and_equals_it():
    tokens = [(index * index) % 17 for index in range(1000)]
    whole, one_by_one = NgramDrafter(), NgramDrafter()
    whole.observe(tokens)
    for token in tokens:
        one_by_one.observe((token,))
    assert tables_of(whole) == tables_of(one_by_one)


@settings(max_examples=settings.default.max_examples * 5)
@given(TOKENS, st.integers(4, 40))
def test_the_windowed_tables_are_those_of_the_window_alone(tokens, history):
    drafter = WindowedNgramDrafter(history=history)
    for token in tokens:
        drafter.observe([token])
    assert tables_of(drafter) == tables_by_definition(tokens[-history:])


def test_the_longest_context_decides():
    drafter = NgramDrafter()
    # After 2 alone, 9 is most frequent; after 1 2, 3 is.
    drafter.observe([2, 9, 2, 9, 2, 9, 1, 2, 3, 5, 1, 2])
    draft = drafter.propose(4)
    assert draft.tokens[:2] == (3, 5)
    assert draft.match_length == 2
    assert draft.is_chain
    assert draft.source == "ngram"


def test_the_draft_chains_on_its_own_tokens_and_ends_where_nothing_is_known():
    drafter = NgramDrafter()
    drafter.observe([1, 2, 3, 4, 5, 6, 1])
    assert drafter.propose(4).tokens == (2, 3, 4, 5)
    ending = NgramDrafter()
    ending.observe([1, 2, 3])
    assert ending.propose(4).tokens == ()
    ending.observe([2])
    assert ending.propose(4).tokens == (3, 2, 3, 2)


def test_ties_go_to_the_continuation_seen_last():
    drafter = NgramDrafter(max_order=2)
    drafter.observe([1, 5, 1, 6, 1])
    assert drafter.propose(1).tokens == (6,)
    drafter.observe([5, 1])  # 5 has now two sightings
    assert drafter.propose(1).tokens == (5,)
    drafter.observe([6, 1])  # two each again, 6 seen last
    assert drafter.propose(1).tokens == (6,)


def test_proposing_changes_nothing():
    drafter = NgramDrafter()
    drafter.observe([1, 2, 3, 1, 2])
    before = tables_of(drafter)
    assert drafter.propose(4) == drafter.propose(4)
    assert tables_of(drafter) == before


@given(TOKENS, st.integers(2, 5), st.integers(1, 4))
def test_contexts_below_the_least_match_decide_nothing(tokens, max_order, min_match):
    min_match = min(min_match, max_order - 1)
    drafter = NgramDrafter(max_order=max_order, min_match=min_match)
    drafter.observe(tokens)
    tables = tables_by_definition(tokens, max_order)
    text = list(tokens)
    for token in (*drafter.propose(4).tokens, None):
        known = [
            tables[length - 1][key][1]
            for length in range(min(max_order - 1, len(text)), min_match - 1, -1)
            if (key := fnv1a(text[-length:])) in tables[length - 1]
        ]
        if token is None:
            assert len(text) == len(tokens) + 4 or not known
        else:
            assert token == known[0]
            text.append(token)


def numbers(drafter):
    """Everything that a drafter was made with."""
    if isinstance(drafter, LookupDrafter):
        order, window = drafter.max_context + 1, None
    else:
        order, window = drafter.max_order, drafter.history.maxlen
    return order, window, drafter.min_match, drafter.num_draft_tokens


@pytest.mark.parametrize(
    ("name", "drafter"),
    [("ngram", NgramDrafter), ("ngram-window", WindowedNgramDrafter), ("lookup", LookupDrafter)],
)
def test_defaults_are_the_drafters_own_and_options_reach_it(name, drafter):
    made = make_drafter(name)
    assert type(made) is drafter
    assert numbers(made) == numbers(drafter())
    options = {"ngram_order": 5, "ngram_min_match": 3}
    if name == "ngram-window":
        options["ngram_window"] = 64
    made = make_drafter(name, num_draft_tokens=7, config=GenerationConfig(draft_options=options))
    order, window, least, most = numbers(made)
    assert (order, least, most) == (5, 3, 7)
    assert name != "ngram-window" or window == 64


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("ngram", {"window": 64}, "no ngram_window; leave it out, or choose from ngram-window"),
        ("lookup", {"window": 64}, "no ngram_window"),
        ("auto", {"order": 3}, "no ngram_order"),
        ("draft-model", {"order": 3}, "no ngram_order"),
        ("ngram", {"order": 1}, "ngram_order is 1; give 2 or more"),
        ("ngram", {"order": True}, "ngram_order is True"),
        ("lookup", {"order": 3, "min_match": 3}, "ngram_min_match is 3; give 1 to ngram_order - 1, 2"),
        ("ngram", {"min_match": 0}, "ngram_min_match is 0"),
        ("ngram-window", {"window": 3}, "ngram_window is 3; give at least ngram_order, 4"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_named(name, options, message):
    given = {f"ngram_{option}": value for option, value in options.items()}
    with pytest.raises(ConfigError, match=message):
        check_drafter(name, config=GenerationConfig(draft_options=given))
