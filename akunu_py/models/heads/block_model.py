"""A head that guesses blocks, as a model that draws tokens."""

from collections.abc import Sequence

import mlx.core as mx

from akunu_py.drafting.draft_model import DrawnToken, GoesOn, Guess
from akunu_py.models.heads.dflash import DFlashHead
from akunu_py.models.heads.token_model import HeadTokenModel


class BlockTokenModel(HeadTokenModel):
    """Draws with a head that guesses a block of tokens in one pass.

    Its cache has the target's states alone, and a block leaves nothing in it. Each token is drawn
    by its own row of the block, whatever was drawn before it.
    """

    def __init__(self, head: DFlashHead, *, context: int, vocabulary_size: int) -> None:
        super().__init__(head, context=context, vocabulary_size=vocabulary_size)
        self.at_once = head.block - 1
        # Rows whose logits a draw may need, those logits, and how many were used.
        self._limit = self._place = 0
        self._block = mx.zeros((1, 0, self.common))

    def draw(
        self,
        limit: int,
        goes_on: GoesOn | None = None,
        guess: Guess | None = None,
        *,
        after: Sequence[int] = (),
    ) -> list[DrawnToken]:
        """Draw tokens to follow the text and `after`, which take places of the block."""
        self._limit = min(limit, self.at_once - len(after))
        return super().draw(self._limit, goes_on, guess, after=after)

    def _catch_up(self, after: Sequence[int], guessed: Sequence[int] = ()) -> mx.array:  # noqa: ARG002
        states, tokens = self._last_pairs()
        known = mx.concatenate([tokens, mx.array(list(after), dtype=tokens.dtype)])
        self._block = self._logits(self._run(states, known)[:, : self._limit])
        self._place = 0
        return self._next_row()

    def _feed(self, tokens: mx.array) -> mx.array:  # noqa: ARG002 - the whole block was guessed
        return self._next_row()

    def _next_row(self) -> mx.array:
        """Return the logits of the next token, [1, 1, common]."""
        self._place += 1
        return self._block[:, self._place - 1 : self._place]
