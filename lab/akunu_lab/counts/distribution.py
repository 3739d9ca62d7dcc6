"""A distribution over a large vocabulary: some tokens are listed, the others are equal.

Counts tell seen tokens apart; all other tokens share the rest equally. So the cost depends on the
number of seen tokens, not on a vocabulary of 150,000, and a dense row is made only for a verifier
that needs it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from akunu_lab.adjustment import Adjustment
from akunu_py.api import ConfigError, NoiseKey

# Hash bits that are turned back into tokens at once; a typical draw needs few.
_BATCH_BITS = 1 << 14


@dataclass(frozen=True, slots=True)
class SparseDistribution:
    """Probabilities of the next token."""

    tokens: NDArray[np.int64]
    """Listed ids, int64 [n], without duplicates, in any order."""

    probabilities: NDArray[np.float64]
    rest: float
    """Probability of each unlisted token."""

    vocabulary_size: int

    @classmethod
    def uniform(cls, vocabulary_size: int) -> "SparseDistribution":
        """Return the uniform distribution."""
        return cls(np.empty(0, np.int64), np.empty(0), 1 / vocabulary_size, vocabulary_size)

    @property
    def num_unlisted(self) -> int:
        """Return the number of unlisted tokens."""
        return self.vocabulary_size - self.tokens.size

    def probability(self, token: int) -> float:
        found = np.flatnonzero(self.tokens == token)
        return float(self.probabilities[found[0]]) if found.size else self.rest

    def dense(self) -> NDArray[np.float64]:
        """Return all probabilities, float64 [vocab]."""
        row = np.empty(self.vocabulary_size)
        self.fill(row)
        return row

    def fill(self, row: NDArray[np.float64]) -> None:
        """Write all probabilities into a row, float64 [vocab]."""
        row.fill(self.rest)
        row[self.tokens] = self.probabilities

    def largest(self) -> float:
        listed = float(self.probabilities.max(initial=0.0))
        return max(listed, self.rest) if self.num_unlisted else listed

    def entropy(self) -> float:
        listed = self.probabilities[self.probabilities > 0]
        total = -float((listed * np.log(listed)).sum())
        if self.rest > 0:
            total -= self.num_unlisted * self.rest * math.log(self.rest)
        return max(total, 0.0)

    def likeliest(self) -> int:
        """Return the likeliest token, the lowest id among equals."""
        largest = self.largest()
        best = self.tokens[self.probabilities == largest].min(initial=self.vocabulary_size)
        if self.num_unlisted and self.rest == largest:
            best = min(best, self.lowest_unlisted(1)[0])
        return int(best)

    def lowest_unlisted(self, count: int) -> NDArray[np.int64]:
        """Return the lowest `count` unlisted ids, or all if there are fewer, ascending."""
        # Among the first n + count ids at most n are listed.
        reach = min(self.vocabulary_size, self.tokens.size + count)
        unlisted = np.ones(reach, dtype=bool)
        unlisted[self.tokens[self.tokens < reach]] = False
        return np.flatnonzero(unlisted)[:count]

    def listing(self, tokens: NDArray[np.int64]) -> "SparseDistribution":
        """Return the same distribution with these tokens listed as well; ids may repeat."""
        new = np.setdiff1d(tokens, self.tokens)
        return SparseDistribution(
            np.concatenate((self.tokens, new)),
            np.concatenate((self.probabilities, np.full(new.size, self.rest))),
            self.rest,
            self.vocabulary_size,
        )

    def adjust(self, adjustment: Adjustment, recent: Sequence[int] = ()) -> "SparseDistribution":
        """Return the distribution after a chain of transforms, as `Adjustment` defines it.

        `recent` has the preceding tokens for the penalties' window. Raises ConfigError for a bias
        or recent token outside the vocabulary.
        """
        if adjustment.changes_nothing:
            return self
        size = self.vocabulary_size
        moved = adjustment.moved_tokens(recent) if adjustment.has_history else ()
        if moved and not 0 <= min(moved) <= max(moved) < size:
            raise ConfigError(f"a bias or penalty names a token outside 0 to {size - 1}")
        listed = self.listing(np.array(moved, dtype=np.int64)) if moved else self
        if adjustment.temperature == 0 or 0 < adjustment.top_k < size:
            room = 1 if adjustment.temperature == 0 else adjustment.top_k
            # A penalty may move a token below the unlisted ones.
            if np.count_nonzero(self.probabilities > self.rest) < room + len(moved):
                # The edge of top-k may lie among them, so as many as it may keep get entries.
                listed = listed.listing(listed.lowest_unlisted(room))
        tokens, probabilities = listed.tokens, listed.probabilities
        if moved or adjustment.temperature == 0 or adjustment.top_k:
            # Ties go to the lowest id.
            order = np.argsort(tokens)
            tokens, probabilities = tokens[order], probabilities[order]
        with np.errstate(divide="ignore"):
            logits = np.log(np.append(probabilities, listed.rest))
        if moved:
            at = np.searchsorted(tokens, moved)
            before = dict(zip(moved, logits[at].tolist(), strict=True))
            logits[at] = list(adjustment.moved_logits(before, recent).values())
        if not listed.num_unlisted:
            logits = logits[:-1]
        multiplicity = np.ones(logits.size)
        multiplicity[tokens.size :] = listed.num_unlisted
        row = adjustment.adjust(logits, multiplicity)
        rest = float(row[-1]) if listed.num_unlisted else 0.0
        return SparseDistribution(tokens, row[: tokens.size], rest, size)

    def draw(self, key: NoiseKey) -> int:
        """Return argmax over all tokens of log probability + noise of this key.

        By the Gumbel-max trick this is a draw from the distribution. With the key of a target's
        draw both agree most often (arXiv:2408.07978). Among equals the lowest id wins.

        Among unlisted tokens the lowest hash bits give the most noise, and the best listed score
        bounds the bits that could still win. The search goes through the bits from 0 and inverts
        the hash to find their tokens. About 2**32 / vocab * m / (1 - m) steps find the winner or
        exclude one, with the unlisted mass m. If this exceeds vocab steps, all tokens are hashed.
        """
        best, score = self._best_listed(key)
        if self.rest > 0 and self.num_unlisted:
            token, noise = self._noisiest_unlisted(key, score - math.log(self.rest))
            rival = math.log(self.rest) + noise
            if token >= 0 and (rival > score or (rival == score and token < best)):
                best = token
        return best

    def _best_listed(self, key: NoiseKey) -> tuple[int, float]:
        """Return the listed token with the highest score, and its score; (-1, -inf) for none."""
        if not self.tokens.size:
            return -1, -math.inf
        bits = key.all_bits(self.tokens)
        # The score is highest where E / q is lowest, and E = -log(1 - v) is at least v. So v / q
        # excludes all but a few tokens without a logarithm.
        with np.errstate(divide="ignore", over="ignore"):
            bounds = NoiseKey.uniforms_of(bits) / self.probabilities
            first = int(bounds.argmin())
            if bounds[first] == math.inf:
                return -1, -math.inf
            arrival = np.exp(-NoiseKey.gumbels_of(bits[first : first + 1]))
            near = np.flatnonzero(bounds <= arrival / self.probabilities[first] * (1 + 1e-9))
        scores = np.log(self.probabilities[near]) + NoiseKey.gumbels_of(bits[near])
        score = float(scores.max())
        return int(self.tokens[near[scores == score]].min()), score

    def _noisiest_unlisted(self, key: NoiseKey, least: float) -> tuple[int, float]:
        """Return the unlisted token with the most noise, and its noise.

        (-1, -inf) if the noise of all is below `least`.
        """
        # -log E >= least if the bits are below 2**32 (1 - exp(-exp(-least))); one cell more allows
        # for rounding.
        reach = -math.expm1(-math.exp(-least)) if least > -700 else 1.0
        bound = int(reach * 2**32) + 2 if reach < 1 - 2**-24 else 2**32
        if min(bound, 2**32 // self.num_unlisted) > self.vocabulary_size:
            return self._noisiest_of_all(key)
        for start in range(0, bound, _BATCH_BITS):
            bits = np.arange(start, min(bound, start + _BATCH_BITS)).astype(np.uint32)
            found = key.tokens(bits)
            for place in np.flatnonzero(found < self.vocabulary_size):
                token = int(found[place])
                if not (self.tokens == token).any():
                    return token, float(NoiseKey.gumbels_of(bits[place : place + 1])[0])
        return -1, -math.inf

    def _noisiest_of_all(self, key: NoiseKey) -> tuple[int, float]:
        bits = key.all_bits(np.arange(self.vocabulary_size, dtype=np.uint32))
        free = np.ones(self.vocabulary_size, dtype=bool)
        free[self.tokens] = False
        ids = np.flatnonzero(free)
        token = int(ids[bits[ids].argmin()])
        return token, float(NoiseKey.gumbels_of(bits[token : token + 1])[0])
