"""Rows at fixed places in passes of one size, for `--reproducible`."""

from collections.abc import Generator, Mapping, Sequence
from types import MappingProxyType
from typing import Self

import mlx.core as mx
from mlx import nn

from akunu_py.models.cached_rows import (
    BLOCK_ROWS,
    NO_CHECKPOINTS,
    CachedRows,
    MakePasses,
    Passes,
)
from akunu_py.models.passes.plan import PassRows
from akunu_py.models.passes.trees import TreeRows
from akunu_py.models.rollback.caches import Saved
from akunu_py.models.row_choices import Scoring
from akunu_py.system.errors import ConfigError
from akunu_py.values.load_options import KVBits


class AlignedRows(CachedRows):
    """Rows whose bits depend on the tokens before them, not on the rows fed with them.

    The text is cut into blocks of `BLOCK_ROWS` positions, from its beginning. Every decode pass
    feeds a whole block: its committed tokens again, the tokens to verify, and padding that no other
    row sees. So a position always has the same row in the pass, and all passes over a block have
    the same shapes. A kernel whose result for a row depends only on shapes and on what the row sees
    then computes the same bits, drafted or not. A draft ends with its block.

    Before a pass the caches go back to the beginning of the block. So rows need not be dropped, and
    models with recurrent states can be decoded this way as well.

    A later prompt keeps only the rows of the last prompt and feeds the reply again, because the
    rows of a reply computed by its end depend on what was drafted.

    Raises ConfigError for a model whose caches cannot roll back.
    """

    def __init__(
        self, model: nn.Module, kv_bits: KVBits | None = None, make_passes: MakePasses = Passes
    ) -> None:
        super().__init__(model, kv_bits, make_passes)
        if not self.rollback.supported:
            raise ConfigError(
                "this model keeps its context in a cache that cannot roll back, which reproducible "
                "passes need; leave reproducible out"
            )

    def reset(self) -> None:
        self.settled = False
        # State of the caches at the beginning of the block; None where they hold only `tokens`.
        self._before_block: Saved | None = None
        self._start = 0
        self._num_prompt_rows = 0
        super().reset()

    @property
    def room(self) -> int:
        """Number of rows the next pass can take: the rest of the block."""
        return BLOCK_ROWS - len(self.tokens) % BLOCK_ROWS

    def feed(self, tokens: mx.array) -> mx.array:
        """Run a pass over tokens [n], n at most `room`; return their logits [1, n, vocab]."""
        return self.passes.run(self.planned(tokens))

    def planned(self, tokens: mx.array, tree: TreeRows | None = None) -> PassRows:  # noqa: ARG002
        """Return the rows of a whole block, of which those of the tokens are wanted."""
        if self._before_block is None or len(self.tokens) - self._start == BLOCK_ROWS:
            # All rows in the caches stay.
            self._begin_block()
        else:
            self.rollback.restore(self._before_block)
        held = mx.array(self.tokens[self._start :], dtype=mx.int32)
        end = held.size + tokens.size
        # Any id of the vocabulary serves as padding.
        padding = mx.repeat(tokens[-1:], BLOCK_ROWS - end)
        block = mx.concatenate([held, tokens, padding])
        return PassRows(block, self.caches, wanted=slice(held.size, end))

    @property
    def first_fed(self) -> int:
        """Place of the first row of the last pass: the beginning of its block."""
        return self._start

    def keep(self, fed: Sequence[int], kept: Sequence[int]) -> None:
        """Hold the first rows of those fed: the next pass goes back to before its block."""
        self.tokens += fed[: len(kept)]

    def prefilling(
        self,
        tokens: Sequence[int],
        checkpoints: Mapping[str, int] = NO_CHECKPOINTS,
        scoring: Scoring | None = None,
    ) -> Generator[int, None, None]:
        """Hold the rows of these tokens; the next pass feeds the rows after the last whole block.

        Checkpoints are moved to the beginning of their blocks.
        """
        self.rest()
        whole = len(tokens) - len(tokens) % BLOCK_ROWS
        yield from super().prefilling(
            tokens[:whole],
            {name: place - place % BLOCK_ROWS for name, place in checkpoints.items()},
            scoring,
        )
        self._num_prompt_rows = whole
        with self.changing():
            self._begin_block()
            if scoring is not None and tokens[whole:]:
                # The decode passes over these rows feed them again.
                logits = self.feed(mx.array(list(tokens[whole:])))
                self.scores.add(logits, scoring.prompt[whole + 1 :])
            self.tokens += tokens[whole:]

    def rest(self) -> None:
        """Hold the rows of the prompt alone, which later prompts may keep."""
        if not self.settled:
            return
        if self._before_block is not None:
            with self.changing():
                self.rollback.restore(self._before_block)
                del self.tokens[self._start :]
                self._before_block = None
        self.go_back(min(self._num_prompt_rows, len(self.tokens)))

    def reach(self, length: int) -> int:
        """Return how many of the first `length` rows a later prompt would keep.

        There are none within a reply, whose block is fed anew in every pass.
        """
        if self._before_block is not None:
            return 0
        return super().reach(min(length, self._num_prompt_rows))

    def copy(self, length: int) -> Self:
        """Return a copy of rows of the prompt."""
        other = super().copy(length)
        other._num_prompt_rows = len(other.tokens)  # noqa: SLF001 - of the same class
        return other

    def hold(self, tokens: Sequence[int], marks: Mapping[str, Self] = MappingProxyType({})) -> None:
        """Take note that the caches were filled with the rows of a prompt."""
        super().hold(tokens, marks)
        self._num_prompt_rows = len(tokens)

    def _begin_block(self) -> None:
        """Begin a block with the current state of the caches."""
        self._start = len(self.tokens)
        self._before_block = self.rollback.save()
