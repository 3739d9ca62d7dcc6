"""The sampler: logits of a row to a token id, independently of other rows.

Its Gumbel noise is a function of (seed, position, token), not a stream. The choice at a position is
argmax over tokens of logit - log E, with E exponential noise (the Gumbel-max trick; Maddison et al.
2014, arXiv:1411.0030). So a token is the same whether it was chosen in a plain step or as the k-th
row of a pass that verifies a draft, and anyone who knows the key can draw with the same noise
(drafter-invariant speculative decoding, arXiv:2408.07978).

The hash has two forms with equal bits: on the device for the whole vocabulary, on the host for
given tokens (`keyed_noise.py`). It needs 32 bits: with 24, on a vocabulary of 150,000, some token
hits the lowest cell in 0.9 % of the steps, and a token of negligible probability is drawn.
"""

import math
import operator
from collections.abc import Sequence
from typing import Any, NamedTuple

import mlx.core as mx

from akunu_py.sampling.transforms import TransformChain
from akunu_py.system.errors import ContractError
from akunu_py.values.generation_config import LogitsProcessor, TokenSampler
from akunu_py.values.keyed_noise import BELOW_ONE, TOKEN_STRIDE, NoiseKey, Purpose


def _mix32_device(value: mx.array) -> mx.array:
    value = (value ^ (value >> 16)) * mx.array(0x7FEB352D, mx.uint32)
    value = (value ^ (value >> 15)) * mx.array(0x846CA68B, mx.uint32)
    return value ^ (value >> 16)


def token_strides(vocabulary_size: int) -> mx.array:
    """Return the first term of every hash of this vocabulary, uint32 [vocab], for reuse."""
    return mx.arange(vocabulary_size, dtype=mx.uint32) * mx.array(TOKEN_STRIDE, mx.uint32)


def hash_row(key: mx.array, strides: mx.array) -> mx.array:
    """Return the 32 hash bits of every token, uint32 [vocab]; `key` is uint32 [2]."""
    value = _mix32_device(strides ^ key[0])
    return _mix32_device(value + key[1])


def gumbel_row(key: mx.array, strides: mx.array) -> mx.array:
    """Return the noise -log E of every token, float32 [vocab]."""
    return gumbel_of_bits(hash_row(key, strides))


def gumbel_of_bits(bits: mx.array) -> mx.array:
    """Return -log E for hash bits, uint32 of any shape, finite for all of them."""
    uniform = (bits.astype(mx.float32) + 0.5) * 2.0**-32
    return -mx.log(-mx.log1p(-mx.minimum(uniform, BELOW_ONE)))


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

    Every row is computed as [1, vocab], whatever the number of positions in the pass. So the
    kernels and the last bits are the same in a plain step and in a verifying pass.
    """

    in_turn = False
    """Whether the sampler sees all earlier tokens, and only positions of plain decoding."""

    def __init__(self, chain: TransformChain, seed: int, vocabulary_size: int) -> None:
        self.chain = chain
        self.seed = seed
        self._strides = token_strides(0 if chain.greedy else vocabulary_size)
        # A lazy array belongs to this thread's stream; another thread may read the reply.
        mx.eval(self._strides)
        # One fused kernel instead of about twenty; shapes are equal in every call.
        self._draw = mx.compile(lambda logits, key: self._choose(logits, (), key))

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
        return mx.array(NoiseKey.at(self.seed, position, Purpose.TARGET), dtype=mx.uint32)

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


class OwnSampler(Sampler):
    """Asks the caller's functions once for each position that plain decoding would ask for.

    They may keep state from call to call: drafts change neither how often nor in which order they
    are asked, nor what they are shown.
    """

    in_turn = True

    def __init__(
        self,
        chain: TransformChain,
        seed: int,
        vocabulary_size: int,
        processors: Sequence[LogitsProcessor],
        choose: TokenSampler | None,
    ) -> None:
        super().__init__(chain, seed, vocabulary_size)
        self._size = vocabulary_size
        self._processors = processors
        self._choose_own = choose

    def choice(
        self,
        logits: mx.array,
        position: int,
        recent: Sequence[int] = (),
        mask: mx.array | None = None,
    ) -> SampledToken:
        """Choose as `Sampler.choice` does; `recent` are all tokens before the choice."""
        if self._processors:
            tokens = mx.array(tuple(recent), dtype=mx.uint32)
        for process in self._processors:
            found = process(tokens, logits)
            if not isinstance(found, mx.array) or found.shape != logits.shape:
                raise ContractError(
                    f"the logits processor {process!r:.60} returned {found!r:.40}; return an MLX "
                    f"array of the shape {logits.shape}"
                )
            logits = found
        if self._choose_own is None:
            return super().choice(logits, position, recent, mask)
        row, total = self.chain.logprobs(logits, recent[-self.chain.window :], mask)
        return SampledToken(self._checked(self._choose_own(row)), total)

    def _checked(self, found: Any) -> mx.array:
        try:
            value: Any = found.item() if isinstance(found, mx.array) else found
            token = operator.index(value)
        except (TypeError, ValueError):
            token = -1
        if not 0 <= token < self._size:
            raise ContractError(
                f"the sampler returned {found!r:.40}; return an id from 0 to {self._size - 1}"
            )
        return mx.array([token], dtype=mx.uint32)


def force_token(choice: mx.array, token: int) -> mx.array:
    """Return a token in place of a choice, which is still computed; uint32 [1]."""
    return choice * 0 + mx.array(token, dtype=choice.dtype)


class ForcedSampler(Sampler):
    """Chooses the tokens of a text in turn, and the model's own tokens after its end.

    It serves measurements of speed, in which the text decides what is accepted. `start` is the
    position of the first token, counted from the beginning of the prompt.
    """

    def __init__(
        self, chain: TransformChain, start: int, tokens: Sequence[int], vocabulary_size: int
    ) -> None:
        super().__init__(chain, 0, vocabulary_size)
        self._start = start
        self._tokens = tuple(tokens)

    def choice(
        self,
        logits: mx.array,
        position: int,
        recent: Sequence[int] = (),
        mask: mx.array | None = None,
    ) -> SampledToken:
        """Return the text's token at a position, after the work of choosing one."""
        own = super().choice(logits, position, recent, mask)
        index = position - self._start
        if not 0 <= index < len(self._tokens):
            return own
        return SampledToken(force_token(own.token, self._tokens[index]), own.total)
