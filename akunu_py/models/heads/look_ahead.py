"""Look-ahead embeddings: vectors behind the text, at whose rows the model guesses further tokens.

PaSS (Monea et al. 2023, arXiv:2311.13581, section 3): in one pass the model reads the last token of
the text and, in place of the tokens that may follow, a trained vector for each. The row of the last
token tells the next one, as always, and the row of vector k the k-th behind it. No guess knows the
others. All layers are the model's, so a draft costs a pass of the model itself; of two passes, one
for the draft and one that verifies it, at least two tokens stay.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx import nn
from mlx_lm.models.cache import KVCache, make_prompt_cache

from akunu_py.drafting.draft_model import DrawnToken, DrawSettings, GoesOn, Guess
from akunu_py.models.heads.families import decoder_of, is_of, shared_layers
from akunu_py.models.heads.head import CachedHead
from akunu_py.models.heads.stored_weights import StoredHead
from akunu_py.models.heads.token_model import HeadDrawing
from akunu_py.protocols import KeptRows
from akunu_py.system.errors import ModelFormatError, UnsupportedArchitectureError

NAME = "look_ahead"
"""Of the tensor, [vectors, width]. Embeddings of others were never published."""

_FAMILIES = ("llama", "qwen2", "qwen3", "qwen3_moe")
_MOST = 63


class LookAheadHead(CachedHead):
    """Look-ahead embeddings of a target, whose own layers compute everything."""

    def __init__(self, target: nn.Module, count: int) -> None:
        """Make `count` embeddings without numbers."""
        _, decoder = decoder_of(target)
        width = decoder.norm.weight.shape[0]
        super().__init__(shared_layers(target, decoder), (), width)
        self.look_ahead = mx.zeros((count, width))
        # Functions, so that the head's parameters are its own only.
        self._decode = decoder.__call__
        self._make_cache = partial(make_prompt_cache, target)

    def __call__(
        self,
        hidden: mx.array,  # noqa: ARG002 - it reads the target's rows in place of states
        tokens: mx.array,
        cache: list[Any],
        count: int | None = None,
    ) -> mx.array:
        """Return the states [1, 1 + count, H] of the last of `tokens` and of the vectors behind it.

        The rows of the tokens [1, n] and of `count` vectors, by default all, go into the cache,
        which has those of the text before them.
        """
        rows = mx.concatenate([self.embed(tokens), self.look_ahead[None, :count]], axis=1)
        return self.decode(rows, cache)[:, tokens.shape[1] - 1 :]

    def decode(self, rows: mx.array, cache: list[Any]) -> mx.array:
        """Return the target's states [B, n, H] of input vectors behind the rows of a cache."""
        states: mx.array = self._decode(None, cache, input_embeddings=rows)
        return states

    def make_cache(self) -> list[Any]:
        """Return fresh caches of the target: each draft copies the target's rows into them."""
        return list(self._make_cache())


class LookAheadTokenModel(HeadDrawing[LookAheadHead]):
    """Draws continuations of a text with look-ahead embeddings.

    A draw runs one pass of the target's layers, over copies of the keys and values that the
    target's caches have. So nothing has to be rolled back, and nothing is read with a prompt.

    `vocabulary_size` is the number of the target's logits.
    """

    def __init__(self, head: LookAheadHead, *, context: int, vocabulary_size: int) -> None:
        self._head = head
        self._rows: KeptRows | None = None
        self.at_once = 1 + len(head.look_ahead)
        # Of a draw: copies of the target's rows, its tokens at most, and the logits of the rest.
        self._caches: list[Any] = []
        self._limit = 0
        self._logits = mx.zeros((1, 0, vocabulary_size))
        super().__init__(context=context, common=vocabulary_size, target_size=vocabulary_size)

    def use_rows(self, rows: KeptRows) -> None:
        """Read the target's rows here; see `akunu_py.drafting.prediction_head.RowReader`."""
        self._rows = rows

    def begin_states(self, prompt: Sequence[int], held: int) -> None:
        """Do nothing: the rows are read with each draw."""

    def observe_states(self, states: object, start: int, end: int) -> None:
        """Do nothing: no states are asked for."""

    def beginning(self, prompt: Sequence[int], sampling: DrawSettings) -> Iterator[None]:
        self._begin(prompt, sampling)
        return iter(())

    def draw(
        self,
        limit: int,
        goes_on: GoesOn | None = None,
        guess: Guess | None = None,
        *,
        after: Sequence[int] = (),
    ) -> list[DrawnToken]:
        self._limit = min(limit, self.at_once)
        try:
            return super().draw(self._limit, goes_on, guess, after=after)
        finally:
            # The target writes into the arrays that they began with.
            self._caches = []

    def close(self) -> None:
        self._rows = None
        super().close()

    def _go_back(self) -> bool:
        """Copy the rows before the last token's; return whether the target holds them."""
        end = len(self._text) - 1
        self._caches = self._open_head.make_cache()
        for number, cache in enumerate(self._caches):
            kept = None if self._rows is None else self._rows.read(number, end)
            if kept is None:
                return False
            cache.state = (*kept, end)
        return True

    def _catch_up(self, after: Sequence[int], guessed: Sequence[int] = ()) -> mx.array:  # noqa: ARG002
        self.num_passes += 1
        head, tokens = self._open_head, mx.array([[self._text[-1], *after]])
        self._logits = head.logits(head(tokens, tokens, self._caches, self._limit - 1))
        return self._feed(tokens[0, -1:])

    def _feed(self, tokens: mx.array) -> mx.array:  # noqa: ARG002 - no guess knows another
        logits, self._logits = self._logits[:, :1], self._logits[:, 1:]
        return logits


def find_look_ahead(source: Path, _: nn.Module) -> StoredHead | None:
    """Return the embeddings in a file or folder, None where there are none.

    Raises ModelFormatError for a damaged file.
    """
    stored = StoredHead.of(source, lambda name: name if name == NAME else None, f"{NAME}*")
    return stored if stored.tensors else None


def make_look_ahead(stored: StoredHead, target: nn.Module, architecture: str) -> LookAheadHead:
    """Return embeddings without numbers.

    `architecture` names the target in messages. Raises UnsupportedArchitectureError for a target
    whose pass cannot take them, ModelFormatError for a number of them that is out of range.
    """
    caches = {type(cache) for cache in make_prompt_cache(target)}
    if not any(is_of(target, name) for name in _FAMILIES) or caches != {KVCache}:
        raise UnsupportedArchitectureError(
            f"{stored.place} has look-ahead embeddings, and the model is a {architecture} model; "
            f"akunu runs them with {', '.join(_FAMILIES)} without sliding windows: leave the head "
            "out"
        )
    count = stored.shape(NAME)[0]
    if not 1 <= count <= _MOST:
        raise ModelFormatError(
            f"tensor {NAME!r} in {stored.place} has {count} vectors, not 1 to {_MOST}; give a file "
            "that lab/scripts/train_heads.py wrote"
        )
    return LookAheadHead(target, count)
