"""What a head computes for all places of a text at once, for several depths.

At depth 0 a place is a pair: the model's state of row i and token i + 1. At each further depth the
head's own state takes the place of the model's, and the token is the next one of the text. Drafting
does this with a cache (`akunu_py.models.heads.token_model`): a guess sees the pairs up to its
place, and the guesses before it that began at the same place, but no guess of another place. So
attention of depth d has the keys of all pairs before it and one key of each depth in between, as in
EAGLE-3's training-time test (Li et al. 2025, arXiv:2503.01840, section 3.2).
"""

from collections.abc import Callable

import mlx.core as mx
from mlx import nn

from akunu_py.models.heads.head import CachedHead, PredictionHead
from akunu_py.models.heads.look_ahead import LookAheadHead
from akunu_py.models.heads.parallel import ParallelHead
from head_training.look_ahead import look_ahead_states


def unrolled_logits(
    head: CachedHead, states: mx.array, ids: mx.array, depths: int, places: mx.array
) -> list[Callable[[slice], mx.array]]:
    """Return a function for each depth: the logits [n, vocab] of some of the flat `places`.

    Arguments are as those of `unrolled_states`, but for `ids` [texts, n + depths], whose first
    token is that of the first state.
    """
    width, tokens = states.shape[-1], ids[:, 1:]
    if isinstance(head, ParallelHead):
        flat = states.reshape(-1, width)[places]
        count = min(depths, head.num_guessed)
        return [
            lambda some, depth=depth: head.logits_at(depth, flat[some][None])[0]
            for depth in range(count)
        ]
    if isinstance(head, LookAheadHead):
        found = look_ahead_states(head, ids[:, : states.shape[1]], places, depths)
    else:
        every = unrolled_states(head, states, tokens, depths)
        found = [one.reshape(-1, width)[places] for one in every]
    return [lambda some, flat=flat: head.logits(flat[some][None])[0] for flat in found]


def unrolled_states(
    head: PredictionHead, states: mx.array, tokens: mx.array, depths: int
) -> list[mx.array]:
    """Return the head's states of each depth, [texts, n, width].

    Arguments:
        head: with a layer of llama's kind.
        states: the model's states after its last norm, [texts, n, width].
        tokens: the tokens after each state, [texts, n + depths - 1]: at depth d, place i takes
            token i + d.
        depths: how many.

    """
    (layer,) = head.body.layers
    rows = states.shape[1]
    attention = _Attention(layer.self_attn, rows, states.dtype)
    found = []
    for depth in range(depths):
        inner = head.join(states, tokens[:, depth : depth + rows])
        inner = inner + attention(layer.input_layernorm(inner), depth)
        inner = inner + layer.mlp(layer.post_attention_layernorm(inner))
        states = head.body.norm(inner)
        found.append(states)
    return found


class _Attention:
    """Attention over the pairs of a text and, from place to place, over the depths so far."""

    def __init__(self, part: nn.Module, rows: int, kind: mx.Dtype) -> None:
        self._part = part
        self._mask = nn.MultiHeadAttention.create_additive_causal_mask(rows, kind)
        # Of each depth, [texts, key heads, 1, n, head width].
        self._keys: list[mx.array] = []
        self._values: list[mx.array] = []

    def __call__(self, x: mx.array, depth: int) -> mx.array:
        part = self._part
        queries = self._split(part.q_proj(x), part.n_heads, depth) * part.scale
        self._keys.append(self._split(part.k_proj(x), part.n_kv_heads, depth))
        self._values.append(self._split(part.v_proj(x), part.n_kv_heads, None))
        keys, values = self._keys, self._values
        scores = [queries @ keys[0].swapaxes(-1, -2) + self._mask]
        scores += [(queries * of_depth).sum(axis=-1, keepdims=True) for of_depth in keys[1:]]
        weights = mx.softmax(mx.concatenate(scores, axis=-1), axis=-1)
        rows = x.shape[1]
        summed = weights[..., :rows] @ values[0]
        for number, of_depth in enumerate(values[1:]):
            summed = summed + weights[..., rows + number : rows + number + 1] * of_depth
        joined = summed.reshape(len(x), part.n_heads, rows, -1).swapaxes(1, 2)
        out: mx.array = part.o_proj(joined.reshape(len(x), rows, -1))
        return out

    def _split(self, x: mx.array, heads: int, depth: int | None) -> mx.array:
        """Return projections [texts, n, heads * w] as [texts, key heads, queries each, n, w].

        With a `depth` they are rotated; place i of depth d is at position i + d.
        """
        apart = x.reshape(*x.shape[:2], heads, -1).swapaxes(1, 2)
        if depth is not None:
            apart = self._part.rope(apart, offset=depth)
        return apart.reshape(len(x), self._part.n_kv_heads, -1, *apart.shape[2:])
