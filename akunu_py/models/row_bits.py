"""Whether a row's logits have the same bits whatever was fed in the same pass, found by trying."""

from collections.abc import Callable

import mlx.core as mx
import numpy as np

from akunu_py.models.cached_rows import CachedRows

_APART = (1, 2, 5, 9)
"""Sizes of passes that are compared with one pass over all of their rows: plain decoding, and
drafts of 1, 4, 8 and 16 tokens. Kernels change between them (MLX multiplies few rows by other ones
than many), so a difference shows in some row."""


def rows_bit_equal(new_rows: Callable[[], CachedRows], vocabulary_size: int, context: int) -> bool:
    """Return whether rows fed in passes of several sizes have equal logits, to the bit.

    `new_rows` makes rows of no text. Feeds 17 tokens twice, in five passes; fewer where the context
    is shorter. What longer texts change in a kernel is not seen.
    """
    # Any tokens would do that are not all one. (7919 is a prime that no vocabulary divides.)
    count = min(sum(_APART), context)
    tokens = [(1 + 7919 * number) % vocabulary_size for number in range(count)]
    apart = _logits(new_rows(), tokens, _APART)
    together = _logits(new_rows(), tokens, (count,))
    # As bytes: a NaN is equal to itself, and -0 is not 0.
    return apart.tobytes() == together.tobytes()


def _logits(rows: CachedRows, tokens: list[int], sizes: tuple[int, ...]) -> np.ndarray:
    """Feed tokens in passes of these sizes, or as many as fit; return logits [n, vocabulary]."""
    pieces: list[np.ndarray] = []
    for size in sizes:
        rest = min(size, len(tokens) - len(rows.tokens))
        while rest:
            start = len(rows.tokens)
            fed = tokens[start : start + min(rest, rows.room)]
            pieces.append(np.array(rows.feed(mx.array(fed))[0].astype(mx.float32)))
            rows.tokens += fed
            rest -= len(fed)
    return np.concatenate(pieces)
