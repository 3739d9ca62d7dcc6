"""Rows at fixed places in passes of one size: what `--reproducible` decodes with."""

from collections.abc import Sequence

import mlx.core as mx
from mlx import nn

from akunu_py.errors import ConfigError
from akunu_py.models.cached_rows import PREFILL_CHUNK, CachedRows, Progress
from akunu_py.models.rollback import Saved

BLOCK_ROWS = 8
"""Rows of every pass: drafts of up to 7 tokens. Metal's kernel for attention of few rows takes 8
(mlx, scaled_dot_product_attention: query length up to 8), and beyond them another one is used."""


def usable_context(context: int | None, longest: int, block_rows: int | None = None) -> int:
    """Return the context to use of a model that has `longest`: what is asked for, or all of it.

    Raises ConfigError for one that the model does not have.
    """
    if block_rows is not None:
        # The padding of the last block needs positions, too.
        longest -= longest % block_rows
    if context is None:
        return longest
    whole = isinstance(context, int) and not isinstance(context, bool)
    if not whole or not 2 <= context <= longest:
        raise ConfigError(f"context is {context!r}; this model allows 2 to {longest} tokens")
    return context


class AlignedRows(CachedRows):
    """Rows whose bits depend on the tokens before them, and not on what was fed with them.

    The text is cut into blocks of `BLOCK_ROWS` positions, from its beginning. Every decode pass
    feeds one block whole: its committed tokens again, those to verify, and a padding that no other
    row sees. So a position always has the same row in the pass, every pass over a block has the
    same shapes, and a kernel whose result for a row follows from shapes and from what the row sees
    gives it the same bits, drafted or not. A draft ends with its block.

    Before a pass the caches go back to the beginning of the block, so rows need not be dropped, and
    models with recurrent states can be decoded this way, too.

    A later prompt keeps rows of the last prompt alone, and feeds the reply again: which rows of a
    reply were computed by its end depends on what was drafted.

    Raises ConfigError for a model whose caches cannot go back.
    """

    def __init__(self, model: nn.Module, kv_bits: int | None = None) -> None:
        super().__init__(model, kv_bits)
        self._chunk = PREFILL_CHUNK
        if not self.rollback.supported:
            raise ConfigError(
                "this model keeps its context in a cache that cannot go back, which reproducible "
                "passes need; leave reproducible out"
            )

    def reset(self) -> None:
        """Forget every row."""
        self.settled = False
        # What the caches were at the beginning of the block; None where they hold `tokens` alone.
        self._before_block: Saved | None = None
        self._start = 0
        self._num_prompt_rows = 0
        super().reset()

    @property
    def replays(self) -> bool:
        """Whether rows to keep must be fed again by the caller: never, every pass does it."""
        return False

    @property
    def room(self) -> int:
        """How many rows the next pass can take: those to the end of the block."""
        return BLOCK_ROWS - len(self.tokens) % BLOCK_ROWS

    def feed(self, rows: mx.array) -> mx.array:
        """Run a pass over rows [n], n at most `room`; return their logits [1, n, vocab]."""
        if self._before_block is None or len(self.tokens) - self._start == BLOCK_ROWS:
            # All rows that the caches hold are there to stay.
            self._begin_block()
        else:
            self.rollback.restore(self._before_block)
        held = mx.array(self.tokens[self._start :], dtype=mx.int32)
        first, count = held.size, rows.size
        # Any id of the vocabulary would do for the padding.
        padding = mx.repeat(rows[-1:], BLOCK_ROWS - first - count)
        logits = self._pass(mx.concatenate([held, rows, padding]))
        return logits[:, first : first + count]

    def undo(self, count: int) -> None:
        """Drop the last `count` rows fed: the next pass goes back to where its block begins."""

    def prefill(self, rows: Sequence[int], progress: Progress | None = None) -> None:
        """Hold these rows; the ones after the last whole block are fed by the next pass."""
        if self.settled:
            self._leave_block()
            self.go_back(min(self._num_prompt_rows, len(self.tokens)))
        whole = len(rows) - len(rows) % BLOCK_ROWS
        super().prefill(rows[:whole], progress)
        self._num_prompt_rows = whole
        with self.changing():
            self._begin_block()
            self.tokens += rows[whole:]

    def _fit_chunk(self, size: int, seconds: float) -> None:
        """Leave prompt passes as large as they are: what is reproducible depends on no clock."""

    def _begin_block(self) -> None:
        """Take what the caches hold as the beginning of a block."""
        self._start = len(self.tokens)
        self._before_block = self.rollback.save()

    def _leave_block(self) -> None:
        """Go back to the beginning of the block: then the caches hold `tokens` alone."""
        if self._before_block is not None:
            with self.changing():
                self.rollback.restore(self._before_block)
                del self.tokens[self._start :]
                self._before_block = None
