"""The likeliest tokens of rows of logits, for drafters that learn from them."""

import mlx.core as mx


def top_candidates(logits: mx.array, count: int) -> mx.array:
    """Return the ids of the largest logits of each row, best first, uint32 [n, count].

    `logits` is [n, vocab] with `count` finite ones a row at least; among equals the lowest id comes
    first. Not `argpartition`, which leaves open which of equals it takes, nor a whole sort: `count`
    is small, and comparing is exact whatever the kernel.
    """
    ids = mx.arange(logits.shape[-1], dtype=mx.uint32)
    found: list[mx.array] = []
    for _ in range(count):
        if found:
            logits = mx.where(ids == found[-1], -mx.inf, logits)
        found.append(logits.argmax(axis=-1, keepdims=True))
    return mx.concatenate(found, axis=-1)
