"""The baselines: examples worked by hand, and their rules written down the slow way."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from akunu_lab.baselines import BASELINES
from akunu_lab.baselines.suffix_tree import SuffixTree
from akunu_lab.replay.runner import ReplayItem, replay_item, replay_lengths


def draft(name, text, limit=10, earlier=()):
    """The draft after `text`, the last token of which is a step's output."""
    baseline = BASELINES[name]()
    for prompt, output in earlier:
        baseline.begin()
        baseline.observe(prompt)
        baseline.observe(output)
        baseline.end()
    baseline.begin()
    baseline.observe(text[:-1])
    baseline.observe(text[-1:])
    return list(baseline.draft(limit))


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("hf-lookup-2", [1, 2, 3, 4, 1, 2], [3, 4, 1, 2]),  # the copy ends with the text
        ("hf-lookup-2", [1, 2, 7, 1, 2, 8, 1, 2], [7, 1, 2, 8, 1, 2]),  # the earliest match
        ("hf-lookup-2", [6, 2, 8, 5, 2, 9, 5, 2], [9, 5, 2]),  # two tokens before one
        ("hf-lookup-2", [6, 2, 8, 5, 2], [8, 5, 2]),  # one where two are new
        ("hf-lookup-2", [1, 1], [1]),
        ("hf-lookup-2", [1, 2, 3], []),
        ("hf-lookup-2", [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 1], list(range(2, 12))),
        ("hf-lookup-3", [4, 1, 2, 8, 5, 1, 2, 9, 5, 1, 2], [9, 5, 1, 2]),  # three before two
        ("vllm-ngram", [1, 2, 3, 4, 5, 6, 1, 2, 3, 4, 5], [6, 1, 2, 3, 4, 5]),
        ("vllm-ngram", [1, 2, 3, 4, 6, 1, 2, 3, 4], []),  # four are too few
    ],
)
def test_lookup(name, text, expected):
    assert draft(name, text) == expected


def test_ngram_cache_gates():
    # A token seen once after a 1-gram is too few, after a 3-gram enough.
    assert draft("llama-ngram-cache", [1, 5, 1]) == []
    assert draft("llama-ngram-cache", [1, 2, 3, 5, 1, 2, 3], limit=1) == [5]
    # After the 2-gram (1, 2): 5 in 1 of 3 sightings is below 50 %, as is each other.
    assert draft("llama-ngram-cache", [1, 2, 5, 9, 1, 2, 6, 8, 1, 2, 7, 4, 1, 2]) == []
    # 5 in 2 of 3 passes 66 % of the 1-gram's gate.
    assert draft("llama-ngram-cache", [1, 5, 2, 1, 5, 3, 1, 6, 4, 1], limit=1) == [5]
    # 2 of 4 passes the 2-gram's gate of 50 %, and the last one counts among equals.
    twice = [1, 2, 6, 3, 1, 2, 6, 4, 1, 2, 5, 7, 1, 2, 5, 8, 1, 2]
    assert draft("llama-ngram-cache", twice, limit=1) == [5]


def test_ngram_cache_asks_more_of_earlier_texts():
    once, twice = [([0, 1, 2, 3], [5])], [([0, 1, 2, 3], [5])] * 2
    assert draft("llama-ngram-cache", [1, 2, 3], earlier=once) == []
    assert draft("llama-ngram-cache", [1, 2, 3], earlier=twice) == [5]
    # The text's own table comes first.
    assert draft("llama-ngram-cache", [1, 2, 3, 6, 1, 2, 3], limit=1, earlier=twice) == [6]


def test_ngram_mod():
    line = list(range(100))
    assert draft("llama-ngram-mod", line + line[:24], 64) == list(range(24, 88))
    assert draft("llama-ngram-mod", line + line[:24], 16) == list(range(24, 40))
    assert draft("llama-ngram-mod", line + line[:23], 64) == []  # 23 tokens are no key
    # The text before ended 48 tokens on, or 47: too few.
    for size, expected in ((72, list(range(24, 72))), (71, [])):
        earlier = [(line[: size - 1], line[size - 1 : size])]
        assert draft("llama-ngram-mod", [500, *line[:24]], 64, earlier) == expected
    # The newest entry wins.
    newer = [(line, [7]), (line[:24] + list(range(200, 299)), [7])]
    assert draft("llama-ngram-mod", [500, *line[:24]], 2, newer) == [200, 201]


def test_sam_copies_the_first_occurrence_by_the_length_of_the_match():
    text = [1, 2, 3, *range(10, 60), 2, 3, 90, 2, 3]
    assert draft("sam", text, 40) == list(range(10, 19))  # 1 + 4 * 2
    assert draft("sam", text, 3) == [10, 11, 12]
    assert draft("sam", [*range(60), *range(11)], 64) == list(range(11, 51))  # at most 40
    assert draft("sam", [1, 2, 3], 40) == []


def test_suffix_decoding_by_hand():
    text = [1, 2, 3, 1, 2, 4, 1, 2, 3, 1, 2]
    # The last five tokens occurred before, once, and this is the second time: 4 follows with a
    # probability of 1/2, and so do the next ones. Score 2.5 for five tokens. The last two
    # occurred four times: 3 twice and 4 once, score 2/4 + 2/4 for two tokens.
    assert draft("suffix-64", text) == [4, 1, 2, 3, 1]
    assert draft("suffix-64", text, 2) == [4, 1]
    # Among equal scores the longer match counts.
    assert draft("suffix-64", text, 1) == [4]
    # "7 2" occurred once before, "2" four times and 3 followed three times: 3/5 is above 1/2, but
    # one token of it is all that a match of one allows.
    text = [7, 2, 4, 6, 5, 2, 3, 1, 2, 3, 8, 2, 3, 7, 2]
    assert draft("suffix-64", text) == [4, 6]
    assert draft("suffix-64", text, 1) == [3]


def test_suffix_decoding_with_earlier_responses():
    # "1 2" is new to the request; the response before had it, its prompt does not count.
    earlier = [([1, 2, 9], [1, 2, 5, 6, 7])]
    assert draft("suffix-64", [8, 1, 2], earlier=earlier) == [5, 6]
    assert draft("suffix-64", [8, 1, 2], earlier=[([1, 2, 5, 6], [7])]) == []


def test_the_depth_bounds_match_and_draft_together():
    line = list(range(100))
    assert draft("suffix-24", line + line[:50], 64) == list(range(50, 62))
    assert draft("suffix-64", line + line[:50], 64) == list(range(50, 82))


def test_suffix_decoding_stops_at_unlikely_tokens():
    # 0 was followed by each of 1..12 once, so by none with a probability of 0.1.
    text = [token for follower in range(1, 13) for token in (0, follower)]
    assert draft("suffix-64", [*text, 0]) == []
    assert draft("suffix-64", [*text[:16], 0]) == [8]


TEXT = st.lists(st.integers(0, 2), min_size=1, max_size=50)


@given(st.lists(TEXT, max_size=2), TEXT, st.integers(2, 8))
def test_the_tree_counts_every_string(finished, growing, depth):
    tree = SuffixTree(depth)
    for text in finished:
        tree.extend(text)
        tree.finish()
    tree.extend(growing)
    texts = [*finished, growing]
    counts = Counter(
        tuple(text[start : start + size])
        for text in texts
        for size in range(1, depth + 1)
        for start in range(len(text) - size + 1)
    )
    suffixes = [tuple(growing[-size:]) for size in range(1, min(depth, len(growing)) + 1)]
    expected = [counts[suffix] for suffix in suffixes if counts[suffix] > 1]
    assert [node.count for node in tree.matched] == expected
    flat = [token for text in texts for token in (*text, -1)][:-1]
    for size, node in enumerate(tree.matched, start=1):
        string, probability = tuple(growing[-size:]), 1.0
        for token, found in list(tree.likeliest(node))[: depth - size]:
            followers = {t: counts[*string, t] for t in range(3) if counts[*string, t]}
            assert followers[token] == max(followers.values())
            latest = max(followers, key=lambda t: (followers[t], last_place(flat, (*string, t))))
            assert token == latest
            probability *= followers[token] / counts[string]
            assert found == pytest.approx(probability)
            string = (*string, token)


def last_place(flat, string):
    places = range(len(flat) - len(string), -1, -1)
    return next(i for i in places if tuple(flat[i : i + len(string)]) == string)


@given(TEXT)
def test_sam_by_definition(text):
    expected = []
    for size in range(len(text) - 1, 0, -1):
        ends = [end for end in range(size, len(text)) if text[end - size : end] == text[-size:]]
        if ends:
            expected = text[ends[0] : ends[0] + 1 + 4 * size][:40]
            break
    assert draft("sam", text, 40) == expected


@pytest.mark.parametrize("name", BASELINES)
def test_reset_forgets_and_replies_are_apart(name):
    line = list(range(90))
    baseline = BASELINES[name]()
    assert baseline.name == name
    for _ in range(3):
        baseline.begin()
        baseline.observe(line[:1])
        baseline.observe(line)
        baseline.end()
    baseline.reset()
    baseline.begin()
    baseline.observe(line[:30])
    assert list(baseline.draft(64)) == []


TEXTS = st.lists(
    st.tuples(
        st.lists(st.integers(0, 3), min_size=1, max_size=40),
        st.lists(st.integers(0, 3), min_size=1, max_size=40),
    ),
    min_size=1,
    max_size=3,
)


@pytest.mark.parametrize("name", BASELINES)
@given(texts=TEXTS)
def test_a_sweep_is_the_replays_with_each_length(name, texts):
    limits = (0, 1, 2, 3, 5, 8, 40)
    items = [
        ReplayItem("x", "code", "x", 0, tuple(prompt), tuple(output)) for prompt, output in texts
    ]
    swept = BASELINES[name]()
    found = []
    for one in items:
        swept.begin()
        found.append([counts.stats for counts in replay_lengths(one, swept, limits)])
        swept.end()
    for index, limit in enumerate(limits):
        alone = BASELINES[name]()
        for number, one in enumerate(items):
            alone.begin()
            assert without_seconds(replay_item(one, alone, limit).stats) == without_seconds(
                found[number][index]
            )
            alone.end()


def without_seconds(stats):
    return {key: value for key, value in stats.to_dict().items() if not key.endswith("_s")}
