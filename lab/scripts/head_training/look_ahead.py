"""Look-ahead embeddings, to be trained: their rows behind many places of a text at once.

The rows of the text are computed once. Each group of look-ahead rows is a text of a batch: it
follows the row at its place, and sees the rows up to there and its own, but no other group.
"""

import mlx.core as mx
import numpy as np
from mlx import nn
from mlx_lm.models.cache import KVCache

from akunu_py.models.heads.families import decoder_of
from akunu_py.models.heads.look_ahead import LookAheadHead

_GROUPS = 64
"""Groups at once: each has a copy of the text's keys and values in every layer."""


def initial_look_ahead(model: nn.Module, count: int) -> LookAheadHead:
    """Return embeddings that begin as the mean of those of all tokens."""
    head = LookAheadHead(model, count)
    mean = decoder_of(model)[1].embed_tokens.weight.astype(mx.float32).mean(axis=0)
    head.look_ahead = mx.repeat(mean[None], count, axis=0)
    return head


def look_ahead_states(
    head: LookAheadHead, ids: mx.array, starts: mx.array, depths: int
) -> list[mx.array]:
    """Return the states [m, width] of each of the first `depths` embeddings.

    They follow the rows at the flat places `starts`, int32 [m], ascending, of texts [texts, n].
    """
    vectors = head.look_ahead[:depths]
    numbers, places = np.divmod(np.array(starts), ids.shape[1])
    found = []
    for number in np.unique(numbers):
        ends = places[numbers == number] + 1
        caches = head.make_cache()
        head.decode(head.embed(ids[number : number + 1, : ends[-1]]), caches)
        mx.eval([cache.state[:2] for cache in caches])
        for first in range(0, len(ends), _GROUPS):
            some = mx.array(ends[first : first + _GROUPS].astype(np.int32))
            rows = mx.broadcast_to(vectors[None], (len(some), *vectors.shape))
            found.append(head.decode(rows, [_Behind(cache, some) for cache in caches]))
    states = mx.concatenate(found)
    return [states[:, depth] for depth in range(states.shape[1])]


class _Behind:
    """The rows of a text in one layer, to groups of rows that follow different ones of them."""

    def __init__(self, held: KVCache, ends: mx.array) -> None:
        """Let group g follow the first `ends[g]` rows."""
        self._held = held
        self.offset = ends

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[mx.array, ...]:
        pairs = zip(self._held.keys_and_values(), (keys, values), strict=True)
        return tuple(
            mx.concatenate([mx.broadcast_to(held, (len(own), *held.shape[1:])), own], axis=2)
            for held, own in pairs
        )

    def make_mask(self, count: int, **_: object) -> mx.array:
        """Return whether each of `count` rows of a group sees a row, [groups, 1, count, rows]."""
        text = mx.arange(self._held.offset) < self.offset[:, None, None, None]
        own = mx.tri(count, dtype=mx.bool_)[None, None]
        shape = (len(self.offset), 1, count)
        return mx.concatenate(
            [mx.broadcast_to(part, (*shape, part.shape[-1])) for part in (text, own)], axis=-1
        )
