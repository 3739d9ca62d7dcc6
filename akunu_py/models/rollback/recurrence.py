"""States after the first positions of a pass, computed by its recurrences alone.

A recurrent layer of mlx-lm advances a state by a function that gets the state and what the pass has
computed of its rows, and keeps the last rows that went into a convolution. A `Record` has
references to both. To keep k positions of a pass, the functions run again over k rows, from the
states before it. No weights are read for that (but Jamba's two small projections), and nothing is
computed before the next pass asks for it.

The functions are those of `akunu_py.models.passes.seams`, which take notes where a record is open.
A renamed function leaves a record incomplete, and what else can change in mlx-lm is found by a
trial (`akunu_py.models.passes.trials`). Passes over one position, of which all or nothing stays,
are not recorded: models may compile those, and notes of that would hold no arrays.

The state spaces of Mamba 2 also need rows that have the same bits in a pass over few rows as alone.
mlx-lm computes several rows of such a layer as matrix products over all of them, which add up in
another order than single rows do, and for one row on Metal has a kernel.
"""

import contextlib
import functools
import inspect
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Self

import mlx.core as mx
from mlx_lm.models.cache import ArraysCache
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


class RecurrentStep(NamedTuple):
    """A function of rows, and of what is kept of the rows before them."""

    rows: Mapping[str, int]
    """The axis of the rows, by argument that has rows; the first one's is that of its outputs."""
    state: str
    """The argument that has what is kept."""
    returns: bool = True
    """Whether it returns outputs and what is to be kept; otherwise outputs alone."""
    window: bool = False
    """Whether the last of its rows are kept; otherwise a state that it advances is."""


_open = threading.local()


def recording() -> bool:
    """Return whether a record is open in this thread."""
    return getattr(_open, "record", None) is not None


def take_note(
    function: Callable[..., Any], kind: RecurrentStep, given: Mapping[str, Any], made: Any
) -> None:
    """Take note of a call in the record that is open."""
    record: Record = _open.record
    if kind.window:
        ((name, axis),) = kind.rows.items()
        record.windows.append((given[name], axis))
    else:
        record.calls.append(_Call(function, kind, given, made[1]))


class _Call(NamedTuple):
    """A call of a step, and the state that it returned."""

    function: Callable[..., Any]
    kind: RecurrentStep
    given: Mapping[str, Any]
    state: mx.array

    @property
    def before(self) -> mx.array:
        state: mx.array = self.given[self.kind.state]
        return state

    def over(self, count: int) -> mx.array:
        """Return the state after the first `count` rows."""
        some = {
            name: _first(value, self.kind.rows[name], count) if name in self.kind.rows else value
            for name, value in self.given.items()
        }
        state: mx.array = self.function(**some)[1]
        return state

    def arrays(self) -> list[mx.array]:
        return [self.given[name] for name in self.kind.rows]


class _Origin(NamedTuple):
    """How a state was made."""

    over: Callable[[int], mx.array]
    """Returns the state after the first positions of the pass."""
    arrays: Sequence[mx.array]
    """What is held for that."""


class Record:
    """What the recurrent layers of one pass over several rows computed, and their states before.

    Entered around the calls of one text's layers, as often as they come; `close` follows the last.
    The caches may not be empty.
    """

    def __init__(self, caches: Sequence[ArraysCache], rows: int) -> None:
        self.rows = rows
        self.calls: list[_Call] = []
        # Rows with those that were kept before them or without, and their axis.
        self.windows: list[tuple[mx.array, int]] = []
        self._before = [(cache, list(cache.cache)) for cache in caches]
        # For each slot of each cache: what it holds after the pass, and how that was made. None
        # where that was not found.
        self._made: list[tuple[list[mx.array], list[_Origin]]] | None = None

    def __enter__(self) -> Self:
        _open.record = self
        return self

    def __exit__(self, *error: object) -> None:
        _open.record = None

    def close(self) -> None:
        """Find how each state was made, when the pass is built."""
        calls, windows = {id(call.state): call for call in self.calls}, iter(self.windows)
        made: list[tuple[list[mx.array], list[_Origin]]] = []
        with contextlib.suppress(LookupError, StopIteration):
            for cache, before in self._before:
                slots = zip(before, cache.cache, strict=True)
                origins = [self._origin(old, new, calls, windows) for old, new in slots]
                made.append((list(cache.cache), origins))
            if next(windows, None) is None:
                self._made = made
        self.calls, self.windows = [], []

    def _origin(
        self,
        old: mx.array,
        new: mx.array,
        calls: Mapping[int, _Call],
        windows: Iterator[tuple[mx.array, int]],
    ) -> _Origin:
        """Return how a state was made; raise LookupError if that is not known."""
        if id(new) not in calls:
            return self._window(old, new, *next(windows))
        chain = [calls[id(new)]]
        while (earlier := calls.get(id(chain[-1].before))) is not None:
            chain.append(earlier)
        if len(chain) == 1:
            return _Origin(chain[0].over, chain[0].arrays())
        if len(chain) == self.rows:
            # One for each row, the last one first.
            states = [call.state for call in chain]
            return _Origin(lambda count: states[-count], states)
        raise LookupError

    def _window(self, old: mx.array, new: mx.array, rows: mx.array, axis: int) -> _Origin:
        kept, length = old.shape[axis], new.shape[axis]
        if rows.shape[axis] == self.rows:
            rows = mx.concatenate([old, rows.astype(old.dtype)], axis=axis)
        elif rows.shape[axis] != self.rows + kept:
            raise LookupError
        # Not counted from the end: the rows of a shorter text are the same.
        first = kept - length
        return _Origin(
            lambda count: _first(rows, axis, kept + count, max(0, first + count)), [rows]
        )

    def replay(self, count: int) -> bool:
        """Let each cache hold the state after the first `count` rows, not yet evaluated.

        Returns whether that is known; otherwise nothing has changed. It is not if a state was made
        in an unknown way, or the caches do not hold what the pass left there.
        """
        if self._made is None or any(
            held is not left
            for (cache, _), (after, _) in zip(self._before, self._made, strict=True)
            for held, left in zip(cache.cache, after, strict=True)
        ):
            return False
        for (cache, _), (_, origins) in zip(self._before, self._made, strict=True):
            cache.cache = [origin.over(count) for origin in origins]
        return True

    @property
    def nbytes(self) -> int:
        """Bytes of what is kept besides the states before the pass."""
        origins = [origin for _, found in self._made or () for origin in found]
        arrays = {id(array): array for origin in origins for array in origin.arrays}
        return sum(array.nbytes for array in arrays.values())


def _first(rows: mx.array, axis: int, end: int, start: int = 0) -> mx.array:
    """Return rows from `start` to `end` along an axis."""
    return rows[(slice(None),) * axis + (slice(start, end),)]
