"""What a prediction head needs, before its weights are read."""

from dataclasses import dataclass
from pathlib import Path

import mlx.core as mx
from mlx import nn

from akunu_py.models.cache import CacheNeeds, cache_needs, cached_bytes, drop_numbers
from akunu_py.models.heads.assistant import Assistant
from akunu_py.models.heads.found import find_head
from akunu_py.models.heads.kinds import Head
from akunu_py.models.library_errors import explain_errors
from akunu_py.models.rollback import leaves


@dataclass(frozen=True, slots=True)
class HeadNeeds:
    """What a prediction head needs beside its target."""

    weights_bytes: int
    """Size of its weights in memory. Copies of the target's embedding and output head count, since
    only their numbers show that they are copies. Rows that a head takes of the output head of a
    GGUF file count as dense."""

    fitted_bytes: int
    """The same if types with a smaller, fitted form get it."""

    caches: tuple[CacheNeeds, ...]
    """One entry for each cache that holds rows; an assistant has none."""

    number_bytes: int
    """Size of a number in them; they are never quantized."""

    def cache_bytes(self, tokens: int) -> int:
        """Return the bytes of its caches for a text of `tokens` tokens."""
        return cached_bytes(self.caches, tokens, self.number_bytes)


def head_needs(
    target: nn.Module,
    architecture: str,
    place: Path,
    number_bytes: int,
    *,
    dense: bool,
    fitted: bool,
) -> HeadNeeds | None:
    """Return what the head at a place needs; None where there is none, which loading explains.

    `place` may be the target's own file or folder. The target, whose weights are not read, computes
    in numbers of `number_bytes`; whether they are `dense` or `fitted` holds for the head as well.
    Raises as `load_head` does, except for damaged weights.
    """
    with explain_errors(place), find_head(place, target, architecture) as found:
        if found is None:
            return None
        sizes = found.sizes(number_bytes, dense=dense, fitted=fitted)
        return HeadNeeds(*sizes, _caches_of(found.make()), number_bytes)


def _caches_of(head: Head) -> tuple[CacheNeeds, ...]:
    """Return the sizes of a head's caches after one pair, of which nothing is computed."""
    if isinstance(head, Assistant):
        return ()
    drop_numbers(head)
    caches = head.make_cache()
    head(mx.zeros((1, 1, head.width)), mx.zeros((1, 1), dtype=mx.int32), caches)
    return tuple(cache_needs(leaf) for leaf in leaves(caches))
