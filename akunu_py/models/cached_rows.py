"""A model's caches together with the tokens whose rows they hold."""

import contextlib
import sys
import time
from collections.abc import Callable, Iterator, Sequence

import mlx.core as mx
from mlx import nn

from akunu_py.blas import fit_threads
from akunu_py.models.cache import make_caches
from akunu_py.models.rollback import RollbackCaches, Saved

PREFILL_CHUNK = 512
"""Most rows of one prompt pass: enough for full speed."""

_FIRST_CHUNK, _LEAST_CHUNK = 16, 8
_CHUNK_S = 0.4
"""Seconds that a prompt pass should take at most: Ctrl-C and progress wait for its end."""

Progress = Callable[[int, int], None]
"""Called with tokens done and tokens in all."""


class CachedRows:
    """What was fed to a model, and how to go back in it.

    Attributes:
        model: that rows are fed to.
        caches: the model's, for whoever feeds rows in another way than `feed`.
        tokens: those whose rows the caches hold, in order; whoever feeds rows adds them.
        rollback: how the caches go back.
        settled: whether the caches hold the rows of `tokens`: not inside a change, nor after one
            that was interrupted. Then the caches start afresh before they are used again.

    """

    def __init__(self, model: nn.Module, kv_bits: int | None = None) -> None:
        self.model = model
        self._kv_bits = kv_bits
        self._chunk = _FIRST_CHUNK
        self.reset()

    def reset(self) -> None:
        """Forget every row."""
        self.settled = False
        self.caches = make_caches(self.model, self._kv_bits)
        self.rollback = RollbackCaches(self.caches)
        self.tokens: list[int] = []
        # Places that caches which cannot drop rows go back to: how many tokens they held there.
        self._marks: dict[str, tuple[int, Saved]] = {}
        self.settled = True

    def close(self) -> None:
        """Drop the model and its caches."""
        self.model = None
        self.caches = []
        self.rollback = RollbackCaches([])
        self._marks = {}

    @contextlib.contextmanager
    def changing(self) -> Iterator[None]:
        """Frame whatever changes the caches or `tokens`: passes, and ways back.

        An interrupt can come between any two steps of Python: then nobody knows which layers took
        a pass in, or dropped rows, and whether `tokens` followed.
        """
        before, self.settled = self.settled, False
        yield
        self.settled = before

    @property
    def replays(self) -> bool:
        """Whether rows cannot be dropped: the caches are restored, the rows to keep fed again."""
        return self.rollback.replays

    @property
    def room(self) -> int:
        """How many rows the next pass can take."""
        return sys.maxsize

    def feed(self, rows: mx.array) -> mx.array:
        """Run a pass over rows [n]; return their logits [1, n, vocab], not yet evaluated."""
        return self._pass(rows)

    def undo(self, count: int) -> None:
        """Drop the last `count` rows fed, which are not in `tokens` yet.

        Raises RollbackError where the caches cannot.
        """
        self.rollback.drop(count)

    def _pass(self, rows: mx.array) -> mx.array:
        fit_threads()
        logits: mx.array = self.model(rows[None], cache=self.caches)
        return logits

    def feed_apart(self, tokens: Sequence[int]) -> None:
        """Run a pass whose logits nobody needs, and wait for it."""
        self._pass(mx.array(list(tokens)))
        # The logits are not asked for, and so never computed.
        mx.eval([cache.state for cache in self.caches])
        self.tokens += tokens

    def prefill(self, rows: Sequence[int], progress: Progress | None = None) -> None:
        """Hold these rows: what the caches have of their beginning stays, the rest is fed.

        `progress` is called with the rows held and those in all before the first chunk and after
        each. The end is remembered where caches cannot go back to every row.
        """
        self._keep_common_prefix(rows)
        kept, total = len(self.tokens), len(rows)
        if progress:
            progress(kept, total)
        while len(self.tokens) < total:
            start = len(self.tokens)
            chunk = list(rows[start : start + min(self._chunk, PREFILL_CHUNK)])
            started = time.perf_counter()
            with self.changing():
                self.feed_apart(chunk)
            mx.clear_cache()
            self._fit_chunk(len(chunk), time.perf_counter() - started)
            if progress:
                progress(start + len(chunk), total)
        self.mark("prompt")

    def _fit_chunk(self, size: int, seconds: float) -> None:
        """Choose the rows of the next prompt pass by the pace of one of `size` rows.

        Powers of two: kernels are made for them. The end of a prompt tells nothing, a short pass
        reads the weights for few rows.
        """
        if size < self._chunk:
            return
        fitting = max(1, int(size * _CHUNK_S / max(seconds, 1e-6)))
        self._chunk = min(PREFILL_CHUNK, max(_LEAST_CHUNK, 1 << (fitting.bit_length() - 1)))

    def _keep_common_prefix(self, rows: Sequence[int]) -> None:
        """Go back to the longest beginning of `rows` that the caches can."""
        common = 0
        for ours, theirs in zip(self.tokens, rows, strict=False):
            if ours != theirs:
                break
            common += 1
        # Without a row there is nothing to keep, and some caches cannot be emptied.
        if common == 0:
            self.reset()
        else:
            self.go_back(common)

    def mark(self, name: str) -> None:
        """Remember this place for `go_back`, in the stead of the last one of that name.

        Nothing is done where any row can be dropped.
        """
        if self.rollback.supported and not self.rollback.by_length:
            self._marks[name] = (len(self.tokens), self.rollback.save())

    def go_back(self, length: int) -> None:
        """Keep the first `length` rows, or as many fewer as the caches can go back to.

        That is to a marked place, and if there is none before `length` to the very beginning.
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
        """Drop the last `count` rows; raises RollbackError where the caches cannot."""
        with self.changing():
            self.rollback.drop(count)
            del self.tokens[len(self.tokens) - count :]
