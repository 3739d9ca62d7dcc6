"""Draws from a draft model's distribution: tokens, probabilities and entropy."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import mlx.core as mx

from akunu_py.sampling.sampler import gumbel_row, token_strides
from akunu_py.sampling.transforms import TransformChain
from akunu_py.values.keyed_noise import NoiseKey, Purpose


@dataclass(frozen=True, slots=True)
class Draw:
    """The proposals drawn at one position, not yet evaluated.

    `tokens` is uint32 [k]; the draft continues behind the first one. `measures` is float32 [k + 1]:
    each token's probability under q, the distribution after all transforms, and the entropy of q
    relative to a uniform distribution over the vocabulary. `row` is log q up to a constant, [1, n],
    of the tokens that can be drawn; -inf where q is 0.
    """

    tokens: mx.array
    measures: mx.array
    row: mx.array


class DraftSampler:
    """Draws the token at a position, as a function of logits, history, seed and position.

    With the noise of `Purpose.TARGET` draws are coupled: the token is the one that the target's
    sampler would choose from these logits, and so, with q near p, often the target's own choice
    (arXiv:2408.07978). With the noise of `Purpose.DRAFT` draws are independent of the target's, as
    rejection sampling needs.

    Several coupled proposals are different tokens, the first ones by q and the noise; so are greedy
    ones, without noise. Independent proposals are draws from q with separate noise, and may be
    equal.

    `drawable`, int32 [n], ascending, are the tokens that can be drawn, None for the whole
    vocabulary; logits of others are -inf. The draws are the same, for less work. Without `entropy`
    0 is measured in its place.
    """

    def __init__(
        self,
        chain: TransformChain,
        seed: int,
        vocabulary_size: int,
        purpose: Purpose,
        *,
        num_proposals: int = 1,
        drawable: mx.array | None = None,
        entropy: bool = True,
    ) -> None:
        self.chain = chain
        self._seed = self._draw_seed = seed
        self._purpose = purpose
        self._num_proposals = num_proposals
        self._different = chain.greedy or purpose == Purpose.TARGET
        self._drawable = drawable
        self._places = mx.arange(vocabulary_size if drawable is None else drawable.size)[None]
        self._largest_entropy = math.log(max(2, vocabulary_size))
        self._no_entropy = None if entropy else mx.zeros(1)
        strides = token_strides(0 if chain.greedy else vocabulary_size)
        self._strides = strides if chain.greedy else self._of_drawable(strides)
        # A lazy array belongs to this thread's stream; another thread may read the reply.
        mx.eval(self._strides, self._places, self._no_entropy)
        self._draw = mx.compile(self._draw_row)

    def begin_draft(self, start: int) -> None:
        """Begin a draft at a position.

        Independent draws get separate noise in each draft: a discarded token must not affect the
        token drawn at its position later.
        """
        if self._purpose != Purpose.TARGET:
            low, high = NoiseKey.at(self._seed, start, self._purpose)
            self._draw_seed = high << 32 | low

    def draw(self, logits: mx.array, position: int, recent: Sequence[int] = ()) -> Draw:
        """Draw from logits [1, vocab]; `position` and `recent` are as in `Sampler.choose`."""
        chain = self.chain
        keys = mx.array(self._keys(position), dtype=mx.uint32)
        if chain.needs_history:
            row = chain.log_probabilities(logits, recent[-chain.window :])
            return Draw(*self._choose(self._of_drawable(row), keys))
        return Draw(*self._draw(logits, keys))

    def _keys(self, position: int) -> list[NoiseKey]:
        """Return the keys of the noise: one for all proposals if they are different tokens."""
        keys = [NoiseKey.at(self._draw_seed, position, self._purpose)]
        if not self._different:
            for proposal in range(1, self._num_proposals):
                low, high = NoiseKey.at(self._draw_seed, proposal, Purpose.PROPOSAL)
                keys.append(NoiseKey.at(high << 32 | low, position, self._purpose))
        return keys

    def _draw_row(self, logits: mx.array, keys: mx.array) -> tuple[mx.array, mx.array, mx.array]:
        return self._choose(self.chain.log_probabilities(self._of_drawable(logits)), keys)

    def _of_drawable(self, values: mx.array) -> mx.array:
        """Return the values [..., n] of the tokens that can be drawn, of all [..., vocab]."""
        return values if self._drawable is None else values[..., self._drawable]

    def _choose(self, row: mx.array, keys: mx.array) -> tuple[mx.array, mx.array, mx.array]:
        places = mx.concatenate(self._proposals(row, keys))
        log_q = row.astype(mx.float32)
        if self.chain.filters or row.dtype != mx.float32:
            log_q -= mx.logsumexp(log_q, axis=-1, keepdims=True)
        taken = mx.exp(mx.take_along_axis(log_q, places[None], axis=-1))[0]
        entropy = self._no_entropy
        if entropy is None:
            # q log q is 0 where q is 0.
            terms = mx.where(log_q > -math.inf, mx.exp(log_q) * log_q, 0.0)
            entropy = -terms.sum(axis=-1) / self._largest_entropy
        tokens = places if self._drawable is None else self._drawable[places].astype(places.dtype)
        return tokens, mx.concatenate([taken, entropy]), row

    def _proposals(self, row: mx.array, keys: mx.array) -> list[mx.array]:
        # argmax takes the lowest id among equals.
        if not self._different:
            return [
                (row + gumbel_row(keys[proposal], self._strides)[None]).argmax(axis=-1)
                for proposal in range(self._num_proposals)
            ]
        left = row if self.chain.greedy else row + gumbel_row(keys[0], self._strides)[None]
        found = [left.argmax(axis=-1)]
        while len(found) < self._num_proposals:
            left = mx.where(self._places == found[-1][:, None], -math.inf, left)
            found.append(left.argmax(axis=-1))
        return found
