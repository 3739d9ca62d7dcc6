"""What a reply came to, in one line."""

import dataclasses

import pytest

from akunu_py.cli.terminal import statistics_line
from akunu_py.values.types import DecodeStats, GenerationResult

STATS = DecodeStats(steps=5, steps_with_draft=4, drafted=8, accepted=5, tested=6, output_tokens=10)
RESULT = GenerationResult(
    "text", tuple(range(10)), "stop", 1, 4, 0, 0.5, 2.0, 0, STATS, time_to_first_token_s=0.625,
)  # fmt: skip
COUNTS = "10 tokens \u00b7 5.0 tokens/s \u00b7 first after 0.62 s \u00b7 2.00 tokens a pass \u00b7 hit rate 62%"


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({}, COUNTS),
        (
            {"time_saved": (0.2199, 0.3099)},
            f"{COUNTS} \u00b7 drafting saved 21 to 30% of the time (estimated)",
        ),
        (
            {"time_saved": (-0.4, -0.125), "exactness": "none"},
            f"{COUNTS} \u00b7 drafting cost 12 to 40% more time (estimated) \u00b7 not exact",
        ),
        (
            {"time_saved": (0.041, 0.049)},
            f"{COUNTS} \u00b7 drafting saved about 4% of the time (estimated)",
        ),
        # What may be nothing, or less than a percent, is not claimed.
        ({"time_saved": (-0.05, 0.4)}, COUNTS),
        ({"time_saved": (0.004, 0.4)}, COUNTS),
        ({"time_saved": (-0.4, -0.004)}, COUNTS),
        ({"time_saved": (0.002, 0.003)}, COUNTS),
        (
            {"time_to_first_token_s": None, "finish_reason": "cancelled"},
            "10 tokens \u00b7 5.0 tokens/s \u00b7 2.00 tokens a pass \u00b7 hit rate 62% \u00b7 interrupted",
        ),
    ],
)
def test_the_line(changes, line):
    assert statistics_line(dataclasses.replace(RESULT, **changes)) == line
