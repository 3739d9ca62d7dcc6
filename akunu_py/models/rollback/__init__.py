"""Rolling back caches: the rows of accepted tokens stay, those of rejected ones go.

    parts       KVCache, QuantizedKVCache, parts of a LateQuantizedCache: by length
                ChunkedKVCache: by length, as far back as the front still reaches
                ArraysCache: replayed within the last pass, restored to earlier states
                DeepSeek V4.1's LayerCache: restored, and the accepted rows are fed again
    recurrence  the states of an ArraysCache after the first rows of a pass
    rotating    RotatingKVCache: rows are cut off its arrays, also after the window was full
    caches      the caches of one model together

With a cache of an unknown kind nothing is drafted: decoding is then plain and correct.
"""

from akunu_py.models.rollback.caches import (
    RollbackCaches,
    Saved,
    alias,
    by_length,
    leaves,
    take_over,
    with_exact_sinks,
)
from akunu_py.models.rollback.recurrence import Record, watch
from akunu_py.models.rollback.rotating import rows_in_order

__all__ = [
    "Record",
    "RollbackCaches",
    "Saved",
    "alias",
    "by_length",
    "leaves",
    "rows_in_order",
    "take_over",
    "watch",
    "with_exact_sinks",
]
