"""A multi-token prediction head: one layer that guesses the token after the next."""

from collections.abc import Callable
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


class PredictionHead(nn.Module):  # type: ignore[misc]  # mlx.nn has no types
    """A multi-token prediction head: from the target's state at row i and token i+1, token i+2.

    The state and the embedding of the token are normed, joined and projected to the model's width;
    one decoder layer of the target's own class and a norm follow. The target's output head makes
    logits of that. For a guess further ahead, the head's own state takes the place of the target's.

    Attributes:
        takes: whether it takes the target's states after or before the target's final norm.
        width: H, of the states it takes.
        embed_tokens: an embedding of its own, in place of the target's, if the file has one.
        lm_head: an output head of its own, likewise, or one for some tokens alone (`DraftOutput`).

    """

    takes: Hidden
    width: int

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

        Arguments:
            body: a decoder of one layer that takes embeddings, [1, n, H], in place of token ids and
                ends with the head's own norm, `norm`.
            shared: embedding and output head of the target.
            width: H.
            embedding_first: whether the projection takes the embedding before the state.
            takes: see the class.

        """
        super().__init__()
        self.enorm = nn.RMSNorm(width, eps=body.norm.eps)
        self.hnorm = nn.RMSNorm(width, eps=body.norm.eps)
        self.eh_proj = nn.Linear(2 * width, width, bias=False)
        self.body = body
        self.takes = takes
        self.width = width
        self._shared = shared
        self._embedding_first = embedding_first

    def __call__(
        self, hidden: mx.array, tokens: mx.array, cache: list[Any] | None = None
    ) -> mx.array:
        """Return the head's states [1, n, H], the `hidden` of the next depth.

        Arguments:
            hidden: the target's states, or the head's own, [1, n, H].
            tokens: the token that follows each state, int32 [1, n].
            cache: from `make_cache`; it takes up n rows. None stands for an empty one.

        """
        states: mx.array = self.body(self.join(hidden, tokens), cache)
        return states

    def join(self, hidden: mx.array, tokens: mx.array) -> mx.array:
        """Return what the head's layer takes, [1, n, H], for states and the tokens after them."""
        embed = self.embed_tokens if "embed_tokens" in self else self._shared.embed
        parts = [self.enorm(embed(tokens)), self.hnorm(hidden)]
        if not self._embedding_first:
            parts.reverse()
        joined: mx.array = self.eh_proj(mx.concatenate(parts, axis=-1))
        return joined

    def logits(self, hidden: mx.array) -> mx.array:
        """Return the logits [1, m, vocab] of states [1, m, H] that a call returned."""
        logits: mx.array = (self.lm_head if "lm_head" in self else self._shared.logits)(hidden)
        return logits

    def make_cache(self) -> list[Any]:
        """Return fresh caches of the head's own layer; they can be trimmed."""
        caches: list[Any] = make_prompt_cache(self.body)
        return caches
