"""The line under a reply, and tables of notes."""

import dataclasses

import pytest

from akunu_py.cli.chat.reply_line import reply_line
from akunu_py.cli.chat.tables import statistics_rows, tables
from akunu_py.values.decode_stats import SourceStats
from akunu_py.values.types import DecodeStats, GenerationResult

RESULT = GenerationResult("text", tuple(range(10)), "stop", 1, 40, 0, 0.5, 2.0, 0, DecodeStats())


def drafted(**accepted):
    """Return how a result changes by so many accepted tokens of each source."""
    sources = tuple(SourceStats(name, count + 2, count) for name, count in accepted.items())
    return {"stats": DecodeStats(output_tokens=10, sources=sources)}


@pytest.mark.parametrize(
    ("changes", "context", "line"),
    [
        ({}, 1000, "5.0 tokens/s"),
        # The estimate is for /stats.
        ({"time_saved": (0.2, 0.31)}, 1000, "5.0 tokens/s"),
        (drafted(prompt=5, reply=1), 1000, "5.0 tokens/s · 6 of 10 tokens were copied"),
        (drafted(memory=1), 1000, "5.0 tokens/s · 1 of 10 tokens was copied"),
        (drafted(mtp=3), 1000, "5.0 tokens/s · 3 of 10 tokens were guessed ahead"),
        (
            drafted(lookup=4, ngram=2),
            1000,
            "5.0 tokens/s · 4 of 10 tokens were copied, 2 guessed ahead",
        ),
        (drafted(prompt=0), 1000, "5.0 tokens/s"),
        ({"finish_reason": "length"}, 1000, "5.0 tokens/s · ended by the token limit"),
        ({"decode_s": 0.0, "finish_reason": "cancelled"}, 1000, "interrupted"),
        # From 70 % on.
        ({}, 72, "5.0 tokens/s"),
        ({}, 71, "5.0 tokens/s · context ███████░░░ 70% full"),
        ({}, 50, "5.0 tokens/s · context ██████████ 100% full"),
        ({}, 40, "5.0 tokens/s · context ██████████ 100% full"),
    ],
)
def test_the_line(changes, context, line):
    assert reply_line(dataclasses.replace(RESULT, **changes), context) == line


def test_each_number_has_its_meaning():
    stats = DecodeStats(
        steps=5, steps_with_draft=4, drafted=8, accepted=5, tested=6, output_tokens=10
    )
    rows = {name: (value, words) for name, value, words in statistics_rows(stats)}
    assert {name: value for name, (value, _) in rows.items()} == {
        "tokens": "10", "passes": "5", "tokens a pass": "2.00", "fire rate": "80%",
        "drafted": "8", "accepted": "5", "hit rate": "62%", "alpha": "83%",
    }  # fmt: skip
    assert all(words for _, words in rows.values())
    assert [name for name, _, _ in statistics_rows(DecodeStats())] == ["tokens", "passes"]


ROWS = {"Title": [("name", "1", "some words about it"), ("other", "22", "more")]}


def test_words_stand_beside_their_value():
    assert tables(ROWS, None) == ("Title\n  name   1   some words about it\n  other  22  more")


def test_on_a_narrow_screen_they_wrap_and_then_stand_below():
    words = {"": [("name", "value", "one two three four five six seven")]}
    assert tables(words, 42).split("\n") == [
        "  name  value  one two three four five six", "               seven",
    ]  # fmt: skip
    assert tables(words, 30).split("\n") == [
        "  name  value", "    one two three four five", "    six seven",
    ]  # fmt: skip
