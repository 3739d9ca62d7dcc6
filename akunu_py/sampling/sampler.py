"""The sampler: logits of a row to a token id, independently of other rows."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import mlx.core as mx

from akunu_py.sampling.noise import gumbel_row, token_strides
from akunu_py.sampling.transforms import TransformChain
from akunu_py.values.keyed_noise import Purpose, noise_key


class SampledToken(NamedTuple):
    """The choice at a position, not yet evaluated."""

    token: mx.array
    """An id of the vocabulary, whatever the logits, uint32 [1]. It can be fed before it is known
    whether it is a valid choice."""

    total: mx.array
    """Log-sum-exp of the row's logits, [1, 1]; see `is_choice`."""


def is_choice(total: float) -> bool:
    """Return whether a row with this total has a choice: it is neither NaN nor all -inf."""
    return total > -math.inf


class Sampler:
    """Chooses the token at a position, as a function of only logits, history, seed and position.

    Every row is computed as [1, vocab], whatever the number of rows in the pass. So the kernels and
    the last bits are the same in a plain step and in a verifying pass.
    """

    in_turn = False
    """Whether it sees all tokens before a row, and rows alone that plain decoding would have."""

    def __init__(self, chain: TransformChain, seed: int, vocabulary_size: int) -> None:
        self.chain = chain
        self.seed = seed
        self._strides = token_strides(0 if chain.greedy else vocabulary_size)
        # A lazy array belongs to this thread's stream; another thread may read the reply.
        mx.eval(self._strides)
        # One fused kernel instead of about twenty; shapes are equal in every call.
        self._draw = mx.compile(self._draw_row)

    def choose(self, logits: mx.array, position: int, recent: Sequence[int] = ()) -> mx.array:
        """Return the id chosen for a row, uint32 [1], not yet evaluated.

        `logits` is [1, vocab]. `position` is the chosen token's, counted from the beginning of the
        prompt. `recent` are the tokens before it, of which the chain's window is used.
        """
        return self.choice(logits, position, recent).token

    def choice(
        self,
        logits: mx.array,
        position: int,
        recent: Sequence[int] = (),
        mask: mx.array | None = None,
    ) -> SampledToken:
        """Choose as `choose` does; also return the total for `is_choice`.

        `mask` has the tokens that a constraint allows; see `akunu_py.sampling.transforms.only`.
        """
        chain = self.chain
        if not chain.greedy and not chain.needs_history and mask is None:
            return SampledToken(*self._draw(logits, self._key(position)))
        # Not compiled: the number of recent tokens varies, and greedy choices gain too little.
        window = recent[-chain.window :] if chain.needs_history else ()
        key = None if chain.greedy else self._key(position)
        return SampledToken(*self._choose(logits, window, key, mask))

    def _key(self, position: int) -> mx.array:
        return mx.array(noise_key(self.seed, position, Purpose.TARGET), dtype=mx.uint32)

    def _draw_row(self, logits: mx.array, key: mx.array) -> tuple[mx.array, mx.array]:
        return self._choose(logits, (), key)

    def _choose(
        self,
        logits: mx.array,
        recent: Sequence[int],
        key: mx.array | None,
        mask: mx.array | None = None,
    ) -> tuple[mx.array, mx.array]:
        row, total = self.chain.logprobs(logits, recent, mask)
        row = self.chain.filter_logprobs(row)
        if key is not None:
            row = row + gumbel_row(key, self._strides)[None]
        # argmax takes the lowest id among equals.
        return row.argmax(axis=-1), total
