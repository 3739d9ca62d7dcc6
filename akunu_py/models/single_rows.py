"""State spaces of Mamba 2 whose rows have the same bits in a pass over few rows as alone.

mlx-lm computes several rows of such a layer as matrix products over all of them, which add up in
another order than single rows do, and for one row on Metal has a kernel.
"""

import functools
import inspect
from collections.abc import Callable
from typing import Any

import mlx.core as mx

MOST_ROWS = 9
"""Rows up to which a pass walks row by row: the last token and eight drafted ones. Each reads and
writes the whole state, so for many rows products are faster."""


def row_by_row(update: Callable[..., Any]) -> Callable[..., Any]:
    """Return mlx-lm's `ssm_update` with passes over 2 to `MOST_ROWS` rows that walk row by row."""
    signature = inspect.signature(update)

    @functools.wraps(update)
    def stepping(*values: Any, **named: Any) -> tuple[mx.array, mx.array]:
        given = signature.bind(*values, **named).arguments
        rows = given["hidden_states"].shape[1]
        padded = given.get("mask") is not None or given.get("lengths") is not None
        if not 1 < rows <= MOST_ROWS or padded:
            made: tuple[mx.array, mx.array] = update(**given)
            return made
        outputs: list[mx.array] = []
        state = given.get("state")
        for row in range(rows):
            one = {
                name: given[name][:, row : row + 1] for name in ("hidden_states", "B", "C", "dt")
            }
            output, state = update(**{**given, **one, "state": state})
            outputs.append(output)
        assert state is not None  # noqa: S101 - there is a row
        return mx.concatenate(outputs, axis=1), state

    return stepping
