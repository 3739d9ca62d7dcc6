"""Rolling caches back: the rows of accepted tokens stay, those of rejected ones go.

One file a way to do it:

    by_length   KVCache, QuantizedKVCache: rows lie in order, the length says how many count
    rotating    RotatingKVCache: rows are cut off its arrays, also after the window was full
    chunked     ChunkedKVCache: by length, as far back as the front still reaches
    recurrent   ArraysCache, DeepSeek V4.1's LayerCache: a state has taken the rows in; the state
                before the pass is put back, and the accepted rows are fed again

`caches` puts the caches of one model together. A kind that is not known here cannot roll back: then
nothing is drafted, and decoding is plain and right instead of fast and wrong.
"""

from akunu_py.models.rollback.caches import RollbackCaches, Saved, leaves, with_exact_sinks

__all__ = ["RollbackCaches", "Saved", "leaves", "with_exact_sinks"]
