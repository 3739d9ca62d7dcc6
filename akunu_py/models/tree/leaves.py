"""The caches of a model that hold rows themselves."""

from collections.abc import Iterator, Sequence
from typing import Any

from mlx_lm.models.cache import CacheList


def leaves(caches: Sequence[Any]) -> Iterator[Any]:
    """Yield caches, and in place of a list of caches those in it."""
    for cache in caches:
        if type(cache) is CacheList:
            yield from leaves(cache.caches)
        else:
            yield cache
