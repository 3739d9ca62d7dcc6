"""A model's caches, and the tokens whose rows they hold.

A row is one place of a text: in the pass that computes it, and then in the caches. Ids are called
tokens.
"""

import contextlib
import sys
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, Self

import mlx.core as mx
from mlx import nn
from mlx.utils import tree_flatten

from akunu_py.models.cache import make_caches
from akunu_py.models.device import on_cpu
from akunu_py.models.passes.forward import forward_of
from akunu_py.models.passes.plan import PassPlan, PassRows
from akunu_py.models.passes.trees import TreeRows
from akunu_py.models.rollback.caches import RollbackCaches, Saved, alias, leaves, take_over
from akunu_py.models.row_choices import SCORED_ROWS, PromptScores, Scoring
from akunu_py.system.errors import ConfigError
from akunu_py.values.load_options import KVBits

PREFILL_CHUNK = 512
"""Most positions of one prompt pass: enough for full speed."""

BLOCK_ROWS = 8
"""Rows of every pass where replies are reproducible, which allows drafts of up to 7 tokens. Metal's
attention kernel for few rows takes up to 8 (mlx, scaled_dot_product_attention: query length); more
rows use another kernel."""

_LONG_KEYS = 4096
"""Rows in the caches up to which a prompt's passes have `PREFILL_CHUNK` positions on a CPU."""

_TURN_S = 0.15
"""Seconds of a prompt pass between two pauses; a layer that takes longer is not divided.

Ctrl-C, progress and the replies of others wait for a pause. Pauses change no result, so they may
depend on the clock; the positions of a pass, on which bits may depend, do not.
"""


def prompt_rows(held: int, *, quantized: bool = False) -> int:
    """Return the most positions of a prompt pass behind `held` entries, `quantized` or not.

    On a CPU they become fewer in long contexts: attention of a layer takes time by rows and keys,
    nobody's turn comes before its end, and without a kernel its scores are all in memory. Each pass
    makes quantized rows dense, so behind those it takes twice as many.
    """
    rows = PREFILL_CHUNK
    held //= 1 + quantized
    while on_cpu() and held > _LONG_KEYS and rows > 1:
        rows, held = rows // 2, held // 2
    return rows


def usable_context(context: int | None, longest: int, block_rows: int | None = None) -> int:
    """Return the context to use: the one asked for, or all that the model has (`longest`).

    With `block_rows` it is a whole number of blocks. Raises ConfigError for a context that the
    model does not have.
    """
    if block_rows is not None:
        # The padding of the last block needs positions as well.
        longest -= longest % block_rows
    if context is None:
        return longest
    whole = isinstance(context, int) and not isinstance(context, bool)
    if not whole or not 2 <= context <= longest:
        raise ConfigError(f"context is {context!r}; this model allows 2 to {longest} tokens")
    return context


Progress = Callable[[int, int], None]
"""Called with the number of tokens done and the total."""

ReadLogits = Callable[[mx.array], None]

NO_CHECKPOINTS: Mapping[str, int] = MappingProxyType({})


class Passes:
    """Passes of a model over one set of fresh caches."""

    takes_trees = True
    """Whether a pass over a tree may be run on the model and `caches`."""
    joins = True
    """Whether passes may be joined with those over other caches."""

    def __init__(self, model: nn.Module, kv_bits: KVBits | None) -> None:
        self._forward = forward_of(model)
        self.caches = make_caches(model, kv_bits)
        self.rollback = RollbackCaches(self.caches)

    @property
    def replays(self) -> bool:
        """Whether recorded passes over the model can be undone; the first call tries it."""
        return self._forward.replays

    def run(self, rows: PassRows) -> mx.array:
        """Run a pass over rows of `caches`; return the wanted logits, not yet evaluated."""
        (logits,) = self._forward(PassPlan([rows]))
        return logits

    def feeding(
        self, tokens: mx.array, read: ReadLogits | None = None
    ) -> Generator[int, None, None]:
        """Run a pass over tokens [n], with a pause behind a layer every `_TURN_S`.

        With tokens [texts, n], `caches` hold as many texts. Yields, at a pause, the number of
        layers done. Closed there, the caches are to be restored. `read` is called with the logits
        [1, n, vocab] at the end.
        """
        known = self.rollback.supported
        fed = [alias(cache) for cache in self.caches] if known else self.caches
        # Without a reader the logits are never evaluated, so they are not computed.
        (logits,) = self._forward(PassPlan([PassRows(tokens, fed)]))
        since = before = time.perf_counter()
        longest = 0.0
        for layer, (cache, new) in enumerate(zip(self.caches, fed, strict=True)):
            # First, so that nothing else holds the arrays that MLX writes rows into.
            take_over(cache, new)
            # Queued before the wait for the layer below, so that a GPU has work meanwhile.
            mx.async_eval(cache.state)  # type: ignore[no-untyped-call]
            if layer:
                mx.eval(self.caches[layer - 1].state)
            now = time.perf_counter()
            longest, before = max(longest, now - before), now
            # One more layer is queued already, and a pass of other replies would wait for it.
            if now + longest - since >= _TURN_S:
                yield layer
                since = before = time.perf_counter()
        mx.eval(self.caches[-1].state)
        if read is not None:
            read(logits)


MakePasses = Callable[[nn.Module, KVBits | None], Passes]
"""Makes fresh caches of a model with `kv_bits`, and the passes over them."""


class CachedRows:
    """The rows fed to a model, and how to go back to earlier ones."""

    def __init__(
        self, model: nn.Module, kv_bits: KVBits | None = None, make_passes: MakePasses = Passes
    ) -> None:
        self.model = model
        self._kv_bits = kv_bits
        self._make_passes = make_passes
        self.reset()

    def reset(self) -> None:
        # Whether the caches hold the rows of `tokens`. False inside a change, and after an
        # interrupted one; the caches then start afresh before they are used again.
        self.settled = False
        self.passes = self._make_passes(self.model, self._kv_bits)
        self.caches, self.rollback = self.passes.caches, self.passes.rollback
        # In order; the feeder of rows adds them.
        self.tokens: list[int] = []
        # Places that caches without `by_length` go back to, and the number of tokens held there.
        self._marks: dict[str, tuple[int, Saved]] = {}
        # State of the caches before the pass that `keep` may undo.
        self._before: Saved | None = None
        # Of the last prompt that was scored. They hold for any text that begins with it.
        self.scores = PromptScores()
        self.settled = True

    def empty(self) -> Self:
        """Return rows of the same model that hold nothing."""
        return type(self)(self.model, self._kv_bits, self._make_passes)

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
            saved, surplus = self.rollback.save(held), 0
        elif self.rollback.can_drop(surplus):
            saved = self.rollback.save()
        else:
            surplus = 0
            saved = next(saved for place, saved in self._marks.values() if place == held)
        with other.changing():
            other.rollback.copy(self.rollback, saved)
            other.tokens, other.scores = self.tokens[: held + surplus], self.scores
            other._marks = {  # noqa: SLF001 - of the same class
                name: mark for name, mark in self._marks.items() if mark[0] <= held
            }
            if surplus:
                other.drop(surplus)
            # Now, since views would keep the memory that they look at.
            mx.eval(_arrays([vars(leaf) for leaf in leaves(other.caches)]))
        return other

    def close(self) -> None:
        self.model = None
        del self.passes
        self.caches = []
        self.rollback = RollbackCaches([])
        self._marks = {}
        self._before = None

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
    def room(self) -> int:
        """Number of rows the next pass can take."""
        return sys.maxsize

    def feed(self, tokens: mx.array) -> mx.array:
        """Run a pass over tokens [n]; return their logits [1, n, vocab], not yet evaluated."""
        return self.passes.run(PassRows(tokens, self.caches))

    def planned(self, tokens: mx.array, tree: TreeRows | None = None) -> PassRows:
        """Return the rows of a coming pass over tokens [n], of which `keep` will keep some."""
        rows = PassRows(tokens, self.caches, tree)
        if tokens.size > 1 and not self.rollback.drops_rows:
            self._before = self.rollback.save()
            # Layers that hold nothing yet begin in other ways.
            if self.tokens and self.passes.replays:
                rows.record = self.rollback.record(tokens.size)
        return rows

    @property
    def first_fed(self) -> int:
        """Place of the first row of a planned pass, before `tokens` has its rows."""
        return len(self.tokens)

    def keep(self, fed: Sequence[int], kept: Sequence[int]) -> None:
        """Hold the rows with these indices, in order, of those fed in the last pass.

        They are the first ones, or a path of a tree; the others are dropped. Where the pass cannot
        be undone, the caches go back to before it, and take in these rows in a pass of their own.
        Raises RollbackError where the caches drop rows but not these.
        """
        before, self._before = self._before, None
        held = [fed[row] for row in kept]
        if kept and kept[-1] >= len(kept):
            self.rollback.keep(len(fed), kept)
        elif not self.rollback.undo(len(fed) - len(kept)):
            assert before is not None  # noqa: S101 - the pass was `planned`
            self.rollback.restore(before)
            self.feed_apart(held)
            return
        self.tokens += held

    def feed_apart(self, tokens: Sequence[int]) -> None:
        """Run a pass without its logits, and wait for it."""
        for _ in self._feeding(tokens):
            pass

    def _feeding(
        self, tokens: Sequence[int], following: Sequence[int] = ()
    ) -> Generator[int, None, None]:
        """Run a pass with the pauses of `Passes.feeding`; score the tokens `following` its rows.

        Yields, at a pause, the number of rows held, with the share of this pass that is done. The
        rows are not settled then. Closed at a pause, it leaves them as they were before the pass;
        caches of unknown kinds start afresh.
        """
        known = self.rollback.supported
        saved = self.rollback.save() if known else []
        with self.changing():
            try:
                read = partial(self.scores.add, tokens=following) if following else None
                for layer in self.passes.feeding(mx.array(list(tokens)), read):
                    yield len(self.tokens) + len(tokens) * layer // len(self.caches)
            except GeneratorExit:
                if not known:
                    raise
                self.rollback.restore(saved)
                return
            self.tokens += tokens

    def prefill(self, tokens: Sequence[int]) -> None:
        """Hold the rows of these tokens: as many as are cached stay, the rest is fed.

        The end is marked where caches cannot go back to every row.
        """
        for _ in self.prefilling(tokens):
            pass

    def prefilling(
        self,
        tokens: Sequence[int],
        checkpoints: Mapping[str, int] = NO_CHECKPOINTS,
        scoring: Scoring | None = None,
    ) -> Generator[int, None, None]:
        """Hold these tokens' rows as `prefill` does, with pauses in which the caller may act.

        Yields the number of rows held: before the first pass, after each, and within a pass every
        `_TURN_S` seconds. Within a pass the share of its rows is counted that its layers have done.
        Closed there, it drops the positions of that pass alone. `checkpoints` are further places to
        mark, by name: numbers of rows at which a pass then ends. `scoring` is a prompt that begins
        with the tokens: `scores` has the tokens behind them at the end. Rows whose scores are not
        known are fed again.
        """
        self._keep_common_prefix(tokens, scoring)
        if not self._has_marks:
            checkpoints = NO_CHECKPOINTS
        total = len(tokens)
        self._mark_here(checkpoints)
        yield len(self.tokens)
        while (start := len(self.tokens)) < total:
            quantized = self._kv_bits is not None
            fed = prompt_rows(start, quantized=quantized) if scoring is None else SCORED_ROWS
            most = start + fed
            end = min([total, most, *(place for place in checkpoints.values() if place > start)])
            following = () if scoring is None else scoring.prompt[start + 1 : end + 1]
            yield from self._feeding(tokens[start:end], following)
            mx.clear_cache()
            self._mark_here(checkpoints)
            yield len(self.tokens)
        self.mark("prompt")

    def _mark_here(self, checkpoints: Mapping[str, int]) -> None:
        for name, place in checkpoints.items():
            if place == len(self.tokens):
                self.mark(name)

    def _keep_common_prefix(self, tokens: Sequence[int], scoring: Scoring | None) -> None:
        """Go back to the longest prefix of `tokens` that the caches can go back to.

        With `scoring`, that is one behind whose rows all scores are known.
        """
        common = 0
        for ours, theirs in zip(self.tokens, tokens, strict=False):
            if ours != theirs:
                break
            common += 1
        scores = self.scores
        if scoring is not None:
            common = min(common, scores.reach(scoring))
        # Some caches cannot be emptied.
        if common == 0:
            self.reset()
        else:
            self.go_back(common)
        if scoring is not None:
            self.scores = scores.first(len(self.tokens), scoring)

    @property
    def _has_marks(self) -> bool:
        """Whether there are places to go back to, since rows cannot be dropped at will."""
        return self.rollback.supported and not self.rollback.by_length

    def mark(self, name: str) -> None:
        """Remember this place for `go_back`, in place of the last one of that name.

        Does nothing where any row can be dropped.
        """
        if self._has_marks:
            # What is saved stays in memory as long as the mark.
            with self.changing():
                self.rollback.pack(by_length=False)
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
        with self.changing():
            self.rollback.drop(count)
            del self.tokens[len(self.tokens) - count :]


def _arrays(value: Any) -> list[mx.array]:
    """Return the arrays in caches and in what `RollbackCaches.save` returns."""
    return [held for _, held in tree_flatten(value) if isinstance(held, mx.array)]
