"""Fewer combinations of options than their full product has."""

from collections.abc import Sequence
from itertools import combinations, product
from typing import Any

import pytest


def each_value(*options: Sequence[Any], most: int | None = None) -> list[Any]:
    """Return the full product as parameters; those that bring no new value are marked slow.

    So the fast tests see every value of every option, and all tests see every combination. With
    `most`, no more than that many are fast: they see the first values alone.
    """
    longest = max(map(len, options))
    count = longest if most is None else min(most, longest)
    fast = {tuple(index % len(values) for values in options) for index in range(count)}
    indices = product(*(range(len(values)) for values in options))
    return [
        pytest.param(
            *(values[place] for values, place in zip(options, row, strict=True)),
            marks=() if row in fast else pytest.mark.slow,
        )
        for row in indices
    ]


def all_pairs(*options: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Return rows, one value of each option in a row, so that all pairs of values are in some row.

    Greedy and deterministic: each row begins with the first pair that is missing, and takes for
    every other option the value that adds the most missing pairs.
    """
    missing = {
        ((first, a), (second, b)): None
        for first, second in combinations(range(len(options)), 2)
        for a in range(len(options[first]))
        for b in range(len(options[second]))
    }
    rows = []
    while missing:
        row = dict(next(iter(missing)))
        for option in range(len(options)):
            if option not in row:
                row[option] = max(
                    range(len(options[option])),
                    key=lambda value: sum(pair in missing for pair in _pairs(row, option, value)),
                )
        for pair in combinations(sorted(row.items()), 2):
            missing.pop(pair, None)
        rows.append(tuple(values[row[option]] for option, values in enumerate(options)))
    return rows


def _pairs(row: dict[int, int], option: int, value: int) -> list[tuple[tuple[int, int], ...]]:
    return [tuple(sorted((chosen, (option, value)))) for chosen in row.items()]
