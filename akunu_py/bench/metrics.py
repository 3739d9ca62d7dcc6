"""The figures of benchmarks, one function each; docs/measuring.md has the formulas.

The counts of a reply are a `DecodeStats`, whose rates (fire rate, hit rate, alpha, tokens a pass)
are defined there. A figure that does not exist, such as a share of nothing, is None.
"""

from collections.abc import Sequence
from itertools import zip_longest

import numpy as np
from numpy.typing import NDArray

from akunu_py.values.types import Exactness, GenerationConfig

NOT_EXACT = "not exact"
"""Text of a table cell if replies need not be the same, since the rule is not exact."""

LONGEST_LOOP = 32
"""Tokens of the longest block whose repetition counts as a loop."""

LEAST_REPEATS = 3
"""Least number of repetitions in a row that make a block a loop."""


def reply_exactness(config: GenerationConfig) -> Exactness:
    """Return how replies with drafting relate to replies of plain decoding.

    At temperature 0 all probability is on the likeliest token, so rejection sampling gives the same
    reply as plain decoding.
    """
    found = config.exactness
    return "stream" if found == "distribution" and not config.temperature else found


def first_difference(left: Sequence[int], right: Sequence[int]) -> int | None:
    """Return the first index at which two sequences differ, or None for equal ones.

    If one begins with all of the other, that is the length of the shorter one.
    """
    for index, (one, other) in enumerate(zip_longest(left, right)):
        if one != other:
            return index
    return None


def top2_margin(logits: NDArray[np.float32]) -> float:
    """Return the difference of the two highest logits of a row [vocab]."""
    second, first = np.partition(logits, -2)[-2:]
    return float(first) - float(second)


def looping_tokens(tokens: Sequence[int]) -> int:
    """Return how many tokens lie in a block that repeats `LEAST_REPEATS` times in a row or more.

    Blocks have 1 to `LONGEST_LOOP` tokens. All repetitions count, including the first and an
    incomplete last one.
    """
    looping = [False] * len(tokens)
    for size in range(1, LONGEST_LOOP + 1):
        start = size
        for index in range(size, len(tokens) + 1):
            if index < len(tokens) and tokens[index] == tokens[index - size]:
                continue
            # tokens[start:index] equal those `size` before them.
            if index - start >= (LEAST_REPEATS - 1) * size:
                looping[start - size : index] = [True] * (index - start + size)
            start = index + 1
    return sum(looping)
