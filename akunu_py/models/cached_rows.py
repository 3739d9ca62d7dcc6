"""A model's caches, and the tokens whose rows they hold."""

import contextlib
import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from types import MappingProxyType
from typing import Any, Self

import mlx.core as mx
from mlx import nn

from akunu_py.blas import fit_threads
from akunu_py.models.cache import make_caches
from akunu_py.models.rollback import RollbackCaches, Saved, leaves

PREFILL_CHUNK = 512
"""Most rows of one prompt pass: enough for full speed."""

_FIRST_CHUNK, _CHUNK_STEP = 16, 8
_SHORT_PASS_S, _PASS_S, _LONG_PASS_S = 0.2, 0.4, 0.48
"""Seconds of a prompt pass: least, aim, most.

Ctrl-C and progress wait for the end of a pass. Its rows are fitted to the aim once a full pass
would take less or more. The range is wide, so that sizes, on which the bits of rows may depend, do
not change with every breath of the machine.
"""

Progress = Callable[[int, int], None]
"""Called with the number of tokens done and the total."""

NO_CHECKPOINTS: Mapping[str, int] = MappingProxyType({})


class Passes:
    """Passes of a model over one set of fresh caches.

    Attributes:
        caches: the model's caches.
        rollback: how they roll back.
        takes_trees: whether a pass over a tree may be run on the model and `caches`.

    """

    takes_trees = True

    def __init__(self, model: nn.Module, kv_bits: int | None) -> None:
        self._model = model
        self.caches = make_caches(model, kv_bits)
        self.rollback = RollbackCaches(self.caches)

    def feed(self, rows: mx.array) -> mx.array:
        """Run a pass over rows [n]; return their logits [1, n, vocab], not yet evaluated."""
        fit_threads()
        logits: mx.array = self._model(rows[None], cache=self.caches)
        return logits

    def feed_apart(self, rows: mx.array) -> None:
        """Run a pass over rows [n] without its logits, and wait for it."""
        # The base class: here the logits are never evaluated, so they are not computed.
        Passes.feed(self, rows)
        mx.eval([cache.state for cache in self.caches])


MakePasses = Callable[[nn.Module, int | None], Passes]
"""Makes fresh caches of a model with `kv_bits`, and the passes over them."""


class CachedRows:
    """The rows fed to a model, and how to go back to earlier ones.

    Attributes:
        model: the model that rows are fed to.
        caches: the model's caches, for callers that feed rows in another way than `feed`.
        tokens: tokens whose rows the caches hold, in order; the feeder of rows adds them.
        rollback: how the caches roll back.
        settled: whether the caches hold the rows of `tokens`. False inside a change, and after an
            interrupted one; the caches then start afresh before they are used again.

    """

    def __init__(
        self, model: nn.Module, kv_bits: int | None = None, make_passes: MakePasses = Passes
    ) -> None:
        self.model = model
        self._kv_bits = kv_bits
        self._make_passes = make_passes
        self._chunk = _FIRST_CHUNK
        self.reset()

    def reset(self) -> None:
        """Forget every row."""
        self.settled = False
        self._passes = self._make_passes(self.model, self._kv_bits)
        self.caches, self.rollback = self._passes.caches, self._passes.rollback
        self.tokens: list[int] = []
        # Places that caches without `by_length` go back to, and the number of tokens held there.
        self._marks: dict[str, tuple[int, Saved]] = {}
        self.settled = True

    def empty(self) -> Self:
        """Return rows of the same model that hold nothing, with prompt passes of the same size."""
        other = type(self)(self.model, self._kv_bits, self._make_passes)
        other._chunk = self._chunk  # noqa: SLF001 - of the same class
        return other

    def hold(self, tokens: Sequence[int], marks: Mapping[str, Self] = MappingProxyType({})) -> None:
        """Take note that the caches were filled with the rows of a prompt.

        `marks` are the rows at marked places, as `at_mark` returns them.
        """
        self.tokens = list(tokens)
        self._marks = {
            name: (len(rows.tokens), rows.rollback.save()) for name, rows in marks.items()
        }

    @property
    def marks(self) -> dict[str, int]:
        """Return the marked places, in rows, by name."""
        return {name: held for name, (held, _) in self._marks.items()}

    def at_mark(self, name: str) -> Self:
        """Return the rows at a marked place, whose arrays are not evaluated yet."""
        held, saved = self._marks[name]
        other = self.empty()
        other.rollback.copy(self.rollback, saved)
        other.tokens = self.tokens[:held]
        return other

    def rest(self) -> None:
        """Hold nothing but the rows of `tokens`, between two replies."""

    @property
    def nbytes(self) -> int:
        """Return the bytes of all arrays held here, marked places included."""
        found = {
            id(array): array.nbytes
            for array in _arrays([[vars(leaf) for leaf in leaves(self.caches)], self._marks])
        }
        return sum(found.values())

    def reach(self, length: int) -> int:
        """Return how many of the first `length` rows `go_back` would keep."""
        if not self.settled:
            return 0
        surplus = len(self.tokens) - length
        if surplus <= 0:
            return len(self.tokens)
        if self.rollback.can_drop(surplus):
            return length
        return max((held for held, _ in self._marks.values() if held <= length), default=0)

    def copy(self, length: int) -> Self:
        """Return a copy of as many rows as `reach(length)`; the rows here stay as they are.

        Later passes over one do not change the other. Raises RollbackError for caches of unknown
        kinds.
        """
        other = self.empty()
        held = self.reach(length)
        surplus = len(self.tokens) - held
        if self.rollback.by_length:
            saved, surplus = [held] * len(self.rollback.save()), 0
        elif self.rollback.can_drop(surplus):
            saved = self.rollback.save()
        else:
            surplus = 0
            saved = next(saved for place, saved in self._marks.values() if place == held)
        with other.changing():
            other.rollback.copy(self.rollback, saved)
            other.tokens = self.tokens[: held + surplus]
            other._marks = {  # noqa: SLF001 - of the same class
                name: mark for name, mark in self._marks.items() if mark[0] <= held
            }
            if surplus:
                other.drop(surplus)
            # Now, since views would keep the memory that they look at.
            mx.eval(list(_arrays([vars(leaf) for leaf in leaves(other.caches)])))
        return other

    def close(self) -> None:
        """Drop the model and its caches."""
        self.model = None
        del self._passes
        self.caches = []
        self.rollback = RollbackCaches([])
        self._marks = {}

    @contextlib.contextmanager
    def changing(self) -> Iterator[None]:
        """Frame every change of the caches or `tokens`: passes and rollbacks.

        An interrupt can come between any two steps of Python. Then it is unknown which layers have
        taken in a pass or dropped rows, and whether `tokens` was updated.
        """
        before, self.settled = self.settled, False
        yield
        self.settled = before

    @property
    def takes_trees(self) -> bool:
        """Whether a pass over a tree may be run on `model` and `caches`."""
        return self._passes.takes_trees

    @property
    def replays(self) -> bool:
        """Whether rows cannot be dropped: caches are restored, and rows to keep are fed again."""
        return self.rollback.replays

    @property
    def room(self) -> int:
        """Number of rows the next pass can take."""
        return sys.maxsize

    def feed(self, rows: mx.array) -> mx.array:
        """Run a pass over rows [n]; return their logits [1, n, vocab], not yet evaluated."""
        return self._passes.feed(rows)

    def undo(self, count: int) -> None:
        """Drop the last `count` rows fed, which are not in `tokens` yet.

        Raises RollbackError where the caches cannot drop them.
        """
        self.rollback.drop(count)

    def feed_apart(self, tokens: Sequence[int]) -> None:
        """Run a pass without its logits, and wait for it."""
        self._passes.feed_apart(mx.array(list(tokens)))
        self.tokens += tokens

    def prefill(self, rows: Sequence[int], progress: Progress | None = None) -> None:
        """Hold these rows: their beginning stays as far as it is cached, the rest is fed.

        `progress` is called with the number of rows held and the total, before the first chunk and
        after each. The end is marked where caches cannot go back to every row.
        """
        for held in self.prefilling(rows):
            if progress:
                progress(held, len(rows))

    def prefilling(
        self,
        rows: Sequence[int],
        checkpoints: Mapping[str, int] = NO_CHECKPOINTS,
        *,
        short_passes: bool = False,
    ) -> Iterator[int]:
        """Hold these rows as `prefill` does, one pass at a time.

        Yields the number of rows held, before the first pass and after each. `checkpoints` are
        further places to mark, by name: numbers of rows at which a pass then ends. Short passes
        take less than half a second each, for callers that act between them; on a slow machine that
        makes a prompt up to a sixth slower.
        """
        self._keep_common_prefix(rows)
        if not self._has_marks:
            checkpoints = NO_CHECKPOINTS
        total = len(rows)
        self._mark_here(checkpoints)
        yield len(self.tokens)
        while (start := len(self.tokens)) < total:
            end = min([total, *(place for place in checkpoints.values() if place > start)])
            size = self._next_pass(end - start, short_passes=short_passes)
            chunk = list(rows[start : start + size])
            started = time.perf_counter()
            with self.changing():
                self.feed_apart(chunk)
            mx.clear_cache()
            self._fit_chunk(len(chunk), time.perf_counter() - started)
            self._mark_here(checkpoints)
            yield len(self.tokens)
        self.mark("prompt")

    def _mark_here(self, checkpoints: Mapping[str, int]) -> None:
        for name, place in checkpoints.items():
            if place == len(self.tokens):
                self.mark(name)

    def _next_pass(self, remaining: int, *, short_passes: bool) -> int:
        """Return the rows of the next prompt pass.

        Short passes are about equal: a few rows left for the last would read all weights once more.
        """
        if not short_passes:
            return min(PREFILL_CHUNK, remaining)
        chunk = min(self._chunk, PREFILL_CHUNK)
        passes = math.ceil(remaining / chunk)
        return min(remaining, math.ceil(remaining / passes / _CHUNK_STEP) * _CHUNK_STEP)

    def _fit_chunk(self, size: int, seconds: float) -> None:
        """Fit the most rows of a prompt pass to the time that one of `size` rows took."""
        # A much smaller pass says little of the pace: most of its time reads the weights.
        if 2 * size < self._chunk:
            return
        pace = size / max(seconds, 1e-6)
        if not _SHORT_PASS_S <= self._chunk / pace <= _LONG_PASS_S:
            fitting = int(pace * _PASS_S) // _CHUNK_STEP * _CHUNK_STEP
            self._chunk = min(PREFILL_CHUNK, max(_CHUNK_STEP, fitting))

    def _keep_common_prefix(self, rows: Sequence[int]) -> None:
        """Go back to the longest prefix of `rows` that the caches can go back to."""
        common = 0
        for ours, theirs in zip(self.tokens, rows, strict=False):
            if ours != theirs:
                break
            common += 1
        # Some caches cannot be emptied.
        if common == 0:
            self.reset()
        else:
            self.go_back(common)

    @property
    def _has_marks(self) -> bool:
        """Whether there are places to go back to, since rows cannot be dropped at will."""
        return self.rollback.supported and not self.rollback.by_length

    def mark(self, name: str) -> None:
        """Remember this place for `go_back`, in place of the last one of that name.

        Does nothing where any row can be dropped.
        """
        if self._has_marks:
            self._marks[name] = (len(self.tokens), self.rollback.save())

    def go_back(self, length: int) -> None:
        """Keep the first `length` rows, or fewer where the caches cannot go back exactly there.

        They then go back to the last marked place before `length`, or to the beginning.
        """
        surplus = len(self.tokens) - length
        if surplus <= 0 and self.settled:
            return
        marks = [mark for mark in self._marks.values() if mark[0] <= length]
        if not self.settled or not (self.rollback.can_drop(surplus) or marks):
            self.reset()
            return
        with self.changing():
            if self.rollback.can_drop(surplus):
                self.drop(surplus)
            else:
                held, saved = max(marks, key=lambda mark: mark[0])
                self.rollback.restore(saved)
                del self.tokens[held:]
            self._marks = {
                name: mark for name, mark in self._marks.items() if mark[0] <= len(self.tokens)
            }

    def drop(self, count: int) -> None:
        """Drop the last `count` rows; raise RollbackError where the caches cannot."""
        with self.changing():
            self.rollback.drop(count)
            del self.tokens[len(self.tokens) - count :]


def _arrays(value: Any) -> Iterator[mx.array]:
    """Yield the arrays in caches and in what `RollbackCaches.save` returns."""
    if isinstance(value, mx.array):
        yield value
    elif isinstance(value, Mapping):
        yield from _arrays(list(value.values()))
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _arrays(part)
    elif is_dataclass(value) and not isinstance(value, type):
        yield from _arrays([getattr(value, field.name) for field in fields(value)])
