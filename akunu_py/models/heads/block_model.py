"""A head that guesses blocks, as a model that draws tokens."""

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import mlx.core as mx

from akunu_py.drafting.draft_model import DrawnToken, GoesOn, Guess
from akunu_py.models.heads.head import BlockHead, Step
from akunu_py.models.heads.token_model import HeadTokenModel
from akunu_py.sampling.draft_sampler import Draw
from akunu_py.system.errors import ContractError


class BlockTokenModel(HeadTokenModel):
    """Draws with a head that guesses a block of tokens in one pass.

    Its cache, if it has one, has the target's states alone, and a block leaves nothing in it. Each
    token is drawn by its own row of the block. What a head estimates of the token's chance takes
    the place of its probability.
    """

    def __init__(self, head: BlockHead, *, context: int, vocabulary_size: int) -> None:
        super().__init__(head, context=context, vocabulary_size=vocabulary_size)
        self.at_once = head.num_guessed
        # Rows that a draw may need, the way through them, and the chance of the last one's token.
        self._limit = 0
        self._step: Step = _not_begun
        self._chance: mx.array | None = None

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

    def close(self) -> None:
        self._step = _not_begun
        super().close()

    def _catch_up(self, after: Sequence[int], guessed: Sequence[int] = ()) -> mx.array:  # noqa: ARG002
        states, tokens = self._last_pairs()
        known = mx.concatenate([tokens, mx.array(list(after), dtype=tokens.dtype)])
        head = cast("BlockHead", self._open_head)
        self._step = head.walk(self._run(states, known), self._limit)
        return self._feed(known[-1:])

    def _feed(self, tokens: mx.array) -> mx.array:
        """Return the logits of the place behind a token of the block."""
        logits, self._chance = self._step(tokens)
        return logits[..., : self.common]

    def _draw_token(self, logits: mx.array, position: int, recent: Sequence[int] = ()) -> Draw:
        draw = super()._draw_token(logits, position, recent)
        if self._chance is None:
            return draw
        # Where nothing can be drawn, the probability is not a number.
        chance = mx.where(mx.isfinite(draw.measures[0]), self._chance, draw.measures[:1])
        return replace(draw, measures=mx.concatenate([chance, draw.measures[1:]]))


def _not_begun(_: mx.array) -> tuple[mx.array, None]:
    raise ContractError("a place of a block was asked for before the block was begun")
