"""What heads with a cache have in common, and the head of multi-token prediction among them.

Heads may guess only some of the target's tokens. A guess of a small layer spends most of its time
on the product with one row for each token of the vocabulary, and few tokens make up most of a text
(FR-Spec, Zhao et al. 2025, arXiv:2502.14856). So EAGLE-3's side-cars name the tokens that are
guessed, their draft vocabulary, in a tensor `d2t`: token i of it is token i + d2t[i] of the target.
"""

import copy
from collections.abc import Callable, Container
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
from mlx import nn
from mlx_lm.models.cache import make_prompt_cache

from akunu_py.protocols import Hidden


@dataclass(frozen=True, slots=True)
class SharedLayers:
    """Layers of the target that a head computes with.

    They are functions and no modules, so that a head's parameters are its own only.
    """

    embed: Callable[[mx.array], mx.array]
    """Token ids [1, n] to embeddings [1, n, H]."""

    logits: Callable[[mx.array], mx.array]
    """States [1, m, H] to logits [1, m, vocab]."""


class CachedHead(nn.Module):  # type: ignore[misc]  # mlx.nn has no types
    """A head with a cache, called with states, the tokens that follow them, and the cache.

    A call returns states of the head's own, whose width is that of the target's. Parameters have
    the names of the published files. A head may have modules `embed_tokens` and `lm_head`, which
    are used in place of the target's; `DraftOutput` is one for some tokens alone.
    """

    def __init__(self, shared: SharedLayers, takes: Hidden, width: int) -> None:
        super().__init__()
        # The target's states that it takes, and their width.
        self.takes = takes
        self.width = width
        self._shared = shared

    def embed(self, tokens: mx.array) -> mx.array:
        """Return the embeddings [1, n, H] of token ids [1, n]."""
        embed = self.embed_tokens if "embed_tokens" in self else self._shared.embed
        embedded: mx.array = embed(tokens)
        return embedded

    def logits(self, hidden: mx.array) -> mx.array:
        """Return the logits [1, m, vocab] of states [1, m, H] that a call returned."""
        logits: mx.array = (self.lm_head if "lm_head" in self else self._shared.logits)(hidden)
        return logits

    def add_own(
        self, names: Container[str], vocabulary: int, width: int, guessed: int | None = None
    ) -> None:
        """Add an embedding and an output head if their weights are among these names.

        The output head is for `guessed` tokens of the vocabulary, by default all.
        """
        if "embed_tokens.weight" in names:
            self.embed_tokens = nn.Embedding(vocabulary, width)
        if "lm_head.weight" in names:
            self.lm_head = nn.Linear(width, guessed or vocabulary, bias=False)

    def make_cache(self) -> list[Any]:
        """Return fresh caches of the head's own layers; they can be trimmed."""
        raise NotImplementedError


WalkStep = Callable[[mx.array], tuple[mx.array, mx.array | None]]
"""Takes the token of a place, [1]; returns the logits of the next place, [1, 1, vocab], and the
chance [1] that its token stays if those before do, None where the head estimates none."""


class BlockHead(CachedHead):
    """A head that guesses a block of tokens in one pass.

    A call takes the target's states of the next rows, [1, n, W], and the token after each, with
    further known ones behind them, int32 [1, n - 1 + k]: the last token of the text is the k-th
    from the end. It returns the states [1, m, H] of the m = `num_guessed` - k + 1 places behind
    them.
    """

    @property
    def num_guessed(self) -> int:
        """Return how many tokens a block guesses behind the last one."""
        raise NotImplementedError

    def walk(self, hidden: mx.array, count: int | None = None) -> WalkStep:
        """Return a function that goes through the first `count` places, one a call.

        `hidden` are the states [1, m, H] that a call returned.
        """
        raise NotImplementedError


class PredictionHead(CachedHead):
    """A multi-token prediction head: from the target's state at row i and token i+1, token i+2.

    The state and the embedding of the token are normed, joined and projected to the model's width;
    one decoder layer of the target's own class and a norm follow. The target's output head makes
    logits of that. For a guess further ahead, the head's own state takes the place of the target's.
    """

    def __init__(
        self,
        body: nn.Module,
        shared: SharedLayers,
        width: int,
        *,
        embedding_first: bool = True,
        takes: Hidden = "normed",
    ) -> None:
        """Make a head without weights.

        `body` is a decoder of one layer that takes embeddings, [1, n, H], in place of token ids and
        ends with the head's own norm, `norm`. `embedding_first` says whether the projection takes
        the embedding before the state.
        """
        super().__init__(shared, takes, width)
        self.enorm = nn.RMSNorm(width, eps=body.norm.eps)
        self.hnorm = nn.RMSNorm(width, eps=body.norm.eps)
        self.eh_proj = nn.Linear(2 * width, width, bias=False)
        self.body = body
        self._embedding_first = embedding_first

    def __call__(
        self, hidden: mx.array, tokens: mx.array, cache: list[Any] | None = None
    ) -> mx.array:
        """Return states for the target's, or the head's own; without a cache, of an empty one."""
        states: mx.array = self.body(self.join(hidden, tokens), cache)
        return states

    def join(self, hidden: mx.array, tokens: mx.array) -> mx.array:
        """Return the input of the head's layer, [1, n, H], for states and the tokens after them."""
        parts = [self.enorm(self.embed(tokens)), self.hnorm(hidden)]
        if not self._embedding_first:
            parts.reverse()
        joined: mx.array = self.eh_proj(mx.concatenate(parts, axis=-1))
        return joined

    def make_cache(self) -> list[Any]:
        caches: list[Any] = make_prompt_cache(self.body)
        return caches


class DraftOutput(nn.Module):  # type: ignore[misc]  # mlx.nn has no types
    """An output head of which only some rows are computed; the logits of all others are -inf."""

    def __init__(self, rows: nn.Module, ids: mx.array, vocabulary: int) -> None:
        super().__init__()
        # An output head, or an embedding that serves as one, with n rows.
        self.rows = rows
        # The target's token of each row, int32 [n], ascending.
        self.ids = ids
        # Number of the target's tokens.
        self.vocabulary = vocabulary

    def __call__(self, states: mx.array) -> mx.array:
        """Return the logits [..., vocabulary] of states [..., H]."""
        found = getattr(self.rows, "as_linear", self.rows)(states)
        return spread(found, self.ids, self.vocabulary)


def spread(found: mx.array, ids: mx.array, vocabulary: int) -> mx.array:
    """Return logits [..., n] of the tokens `ids`, [n] or [..., n], as logits [..., vocabulary].

    Those of all other tokens are -inf.
    """
    everywhere = mx.full((*found.shape[:-1], vocabulary), -mx.inf, dtype=found.dtype)
    places = mx.broadcast_to(ids, found.shape)
    logits: mx.array = mx.put_along_axis(everywhere, places, found, axis=-1)
    return logits


def some_rows(layer: nn.Module, ids: mx.array) -> nn.Module:
    """Return a layer like an output head or an embedding, with some of its rows in their form.

    Every array of such a layer has one entry, or one row of codes, for each token.
    """
    some = copy.copy(layer)
    for name, part in layer.items():
        if isinstance(part, mx.array):
            some[name] = part[ids]
        elif isinstance(part, nn.Module):
            some[name] = some_rows(part, ids)
    return some
