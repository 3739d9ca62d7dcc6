"""State spaces of Mamba 2 whose rows have the same bits in a pass over few rows as alone.

mlx-lm computes several rows of such a layer as matrix products over all of them, which add up in
another order than single rows do, and for one row on Metal has a kernel.
"""

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import mlx.core as mx
from mlx_lm.models.ssm import compute_dt

MOST_ROWS = 9
"""Rows up to which a pass walks row by row: the last token and eight drafted ones. Each reads and
writes the whole state, so for many rows products are faster."""

_Made = tuple[mx.array, mx.array]


def row_by_row(update: Callable[..., _Made]) -> Callable[..., _Made]:
    """Return mlx-lm's `ssm_update` with passes over 2 to `MOST_ROWS` rows that walk row by row."""
    signature = inspect.signature(update)

    @functools.wraps(update)
    def stepping(*values: Any, **named: Any) -> _Made:
        given = signature.bind(*values, **named).arguments
        rows = given["hidden_states"].shape[1]
        padded = given.get("mask") is not None or given.get("lengths") is not None
        if not 1 < rows <= MOST_ROWS or padded:
            return update(**given)
        # Where mlx-lm has a kernel for one row.
        if mx.metal.is_available() and mx.default_device() == mx.gpu:
            return _calls(update, given, rows)
        return _rows(**given)

    return stepping


def _calls(update: Callable[..., _Made], given: Mapping[str, Any], rows: int) -> _Made:
    """Call a function with each row alone."""
    outputs: list[mx.array] = []
    state = given.get("state")
    for row in range(rows):
        one = {name: given[name][:, row : row + 1] for name in ("hidden_states", "B", "C", "dt")}
        output, state = update(**{**given, **one, "state": state})
        outputs.append(output)
    assert state is not None  # noqa: S101 - there is a row
    return mx.concatenate(outputs, axis=1), state


def _rows(  # noqa: PLR0917 - the arguments of mlx-lm's
    hidden_states: mx.array,
    A_log: mx.array,  # noqa: N803
    B: mx.array,  # noqa: N803
    C: mx.array,  # noqa: N803
    D: mx.array,  # noqa: N803
    dt: mx.array,
    dt_bias: mx.array,
    state: mx.array | None = None,
    time_step_limit: tuple[float, float] = (0.001, 100.0),
    **_: None,
) -> _Made:
    """Compute what mlx-lm's `ssm_attn` does for each row alone.

    All but the state and what is read of it is computed over all rows at once, in operations that
    give a row the bits that it has alone.
    """
    batch, rows, heads, width = hidden_states.shape
    groups, size = B.shape[2:]
    share = heads // groups
    dt = compute_dt(dt, dt_bias, time_step_limit)
    kept = mx.exp(dt * -mx.exp(A_log).astype(dt.dtype))[..., None]
    added = dt[..., None] * hidden_states
    own = mx.repeat(C[..., None, :] @ B[..., None], share, axis=2)[..., 0] * added
    if state is None:
        state = mx.zeros((batch, heads, width, size), dtype=added.dtype)
    keys = mx.repeat(B, share, axis=2)[..., None, :]
    queries = C.reshape(batch, rows, groups, 1, size, 1)
    read: list[mx.array] = []
    for row in range(rows):
        read.append(state.reshape(batch, groups, share, width, size) @ queries[:, row])
        state = added[:, row, ..., None] * keys[:, row] + kept[:, row, ..., None] * state
    before = mx.stack(read, axis=1).reshape(hidden_states.shape)
    output = (own + kept * before).astype(hidden_states.dtype)
    return output + hidden_states * D.reshape(1, 1, heads, 1), state
