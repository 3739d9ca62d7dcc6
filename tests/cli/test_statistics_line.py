"""What a reply came to, in one line."""

import dataclasses

import pytest

from akunu_py.cli.terminal import statistics_line
from akunu_py.types import DecodeStats, GenerationResult

STATS = DecodeStats(steps=5, steps_with_draft=4, drafted=8, accepted=5, tested=6, output_tokens=10)
RESULT = GenerationResult(
    "text", tuple(range(10)), "stop", 1, 4, 0, 0.5, 2.0, 0, STATS,
    time_to_first_token_s=0.625, estimated_plain_s=2.5,
)  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        (
            {},
            (
                "10 tokens \u00b7 5.0 tokens/s \u00b7 first after 0.62 s \u00b7 2.00 tokens a pass \u00b7 hit rate 62% \u00b7 "
                "drafting saved about 0.50 s (20%, estimated)"
            ),
        ),
        (
            {"estimated_plain_s": 1.6, "exactness": "none"},
            (
                "10 tokens \u00b7 5.0 tokens/s \u00b7 first after 0.62 s \u00b7 2.00 tokens a pass \u00b7 hit rate 62% \u00b7 "
                "drafting cost about 0.40 s (25%, estimated) \u00b7 not exact"
            ),
        ),
        (
            {"estimated_plain_s": 1.995},
            (
                "10 tokens \u00b7 5.0 tokens/s \u00b7 first after 0.62 s \u00b7 2.00 tokens a pass \u00b7 hit rate 62% \u00b7 "
                "drafting broke even (estimated)"
            ),
        ),
        (
            {
                "estimated_plain_s": None,
                "time_to_first_token_s": None,
                "finish_reason": "cancelled",
            },
            "10 tokens \u00b7 5.0 tokens/s \u00b7 2.00 tokens a pass \u00b7 hit rate 62% \u00b7 interrupted",
        ),
    ],
)
def test_the_line(changes, line):
    assert statistics_line(dataclasses.replace(RESULT, **changes)) == line
