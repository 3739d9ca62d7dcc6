"""What a head computes for all places of a text at once, for several depths.

At depth 0 a place is a pair: the model's state of row i and token i + 1. At each further depth the
head's own state takes the place of the model's, and the token is the next one of the text. Drafting
does this with a cache (`akunu_py.models.heads.token_model`): a guess sees the pairs up to its
place, and the guesses before it that began at the same place, but no guess of another place. So
attention of depth d has the keys of all pairs before it and one key of each depth in between, as in
EAGLE-3's training-time test (Li et al. 2025, arXiv:2503.01840, section 3.2).
"""

import mlx.core as mx

from akunu_py.models.heads.head import CachedHead


def unrolled_states(
    head: CachedHead, states: mx.array, tokens: mx.array, depths: int
) -> list[mx.array]:
    """Return the states of each depth, [texts, n, width], of a head with one layer.

    `states` are those that it takes, [texts, n, taken]. `tokens` are the ones after each,
    [texts, n + depths - 1]: at depth d, place i takes token i + d.
    """
    rows, cache, found = states.shape[1], _Depths(), []
    for depth in range(depths):
        states = head(states, tokens[:, depth : depth + rows], [cache])
        found.append(states)
    return found


class _Depths:
    """Keys and values of the pairs of a text, and of each depth behind them, as a cache."""

    def __init__(self) -> None:
        self._held: tuple[list[mx.array], list[mx.array]] = ([], [])

    @property
    def offset(self) -> int:
        return len(self._held[0])

    def make_mask(self, count: int, **_: object) -> mx.array:
        """Return which rows each of `count` sees: pairs up to its place, and its own depths."""
        pairs = mx.tri(count, dtype=mx.bool_)
        return mx.concatenate([pairs] + [mx.eye(count, dtype=mx.bool_)] * self.offset, axis=-1)

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[mx.array, ...]:
        for held, new in zip(self._held, (keys, values), strict=True):
            held.append(new)
        return tuple(mx.concatenate(held, axis=2) for held in self._held)
