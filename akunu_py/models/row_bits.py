"""A test whether a row's logits have the same bits whatever else its pass feeds."""

from collections.abc import Callable, Sequence

import mlx.core as mx
import numpy as np

from akunu_py.models.cached_rows import CachedRows
from akunu_py.models.passes.trials import varied

MOST_ROWS = (9, 17, 33, 65)
"""Sizes up to which passes are tried; the largest has the last token and 64 drafted ones."""

_GROWING = (2, 5, 9, 17, 33)
"""Sizes of successive passes: kernels change between them (MLX has separate ones for few rows)."""


def rows_bit_equal(new_rows: Callable[[], CachedRows], vocabulary_size: int, most: int) -> bool:
    """Return whether passes of up to `most` rows give the logits of rows fed alone, to the bit.

    `new_rows` makes the same rows each time, empty or with a text: attention to a long text may
    differ where attention to a short one does not. Feeds `most` tokens behind them up to three
    times: one by one, in one pass, and in passes that grow.
    """
    tokens = varied(most, vocabulary_size)
    # As bytes: a NaN is equal to itself, and -0 is not 0.
    alone = _logits(new_rows(), tokens, (1,) * most).tobytes()
    return all(
        _logits(new_rows(), tokens, sizes).tobytes() == alone
        for sizes in ((most,), (*_GROWING, most))
    )


def _logits(rows: CachedRows, tokens: list[int], sizes: Sequence[int]) -> np.ndarray:
    """Feed tokens in passes of these sizes, or as many as fit; return logits [n, vocabulary]."""
    pieces: list[np.ndarray] = []
    held = len(rows.tokens)
    for size in sizes:
        rest = min(size, len(tokens) + held - len(rows.tokens))
        while rest:
            start = len(rows.tokens) - held
            fed = tokens[start : start + min(rest, rows.room)]
            pieces.append(np.array(rows.feed(mx.array(fed))[0].astype(mx.float32)))
            rows.tokens += fed
            rest -= len(fed)
    return np.concatenate(pieces)
