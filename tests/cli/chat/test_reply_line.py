"""The line under a reply."""

import dataclasses

import pytest

from akunu_py.cli.chat.reply_line import reply_line
from akunu_py.cli.chat.statistics import statistics_rows
from akunu_py.values.types import DecodeStats, GenerationResult

RESULT = GenerationResult("text", tuple(range(10)), "stop", 1, 40, 0, 0.5, 2.0, 0, DecodeStats())


@pytest.mark.parametrize(
    ("changes", "context", "line"),
    [
        ({}, 1000, "5.0 tokens/s"),
        (
            {"time_saved": (0.2, 0.31)},
            1000,
            "5.0 tokens/s · drafting saved 20 to 31% of the time (estimated)",
        ),
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
