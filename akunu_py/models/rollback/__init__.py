"""Rolling back caches: the rows of accepted tokens stay, those of rejected ones go.

    parts       KVCache, QuantizedKVCache: by length
                ChunkedKVCache: by length, as far back as the front still reaches
                ArraysCache: replayed within the last pass, restored to earlier states
                DeepSeek V4.1's LayerCache: restored, and the accepted rows are fed again
                RotatingKVCache: rows are cut off its arrays, also after the window was full
    recurrence  the states of an ArraysCache after the first rows of a pass
    caches      the caches of one model together

With a cache of an unknown kind nothing is drafted: decoding is then plain and correct.
"""
