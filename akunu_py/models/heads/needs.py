"""What a prediction head needs, before its weights are read."""

from dataclasses import dataclass
from pathlib import Path

import mlx.core as mx
from mlx import nn
from mlx.utils import tree_flatten, tree_map

from akunu_py.gguf.reader import GGUFFile
from akunu_py.models.cache_needs import CacheNeeds, cache_needs, cached_bytes
from akunu_py.models.expansion import num_parameters
from akunu_py.models.heads.assistant import Assistant
from akunu_py.models.heads.families import set_draft_vocabulary
from akunu_py.models.heads.kinds import Head, find_planned, find_stored
from akunu_py.models.heads.loading import kind_of, of_gguf_head
from akunu_py.models.library_errors import explained
from akunu_py.models.rollback import leaves
from akunu_py.models.weight_bytes import bytes_in_forms, forms_of


@dataclass(frozen=True, slots=True)
class HeadNeeds:
    """What a prediction head needs beside its target.

    Attributes:
        weights_bytes: size of its weights in memory. Copies of the target's embedding and output
            head count, since only their numbers show that they are copies. Rows that a head takes
            of the output head of a GGUF file count as dense.
        fitted_bytes: the same if types with a smaller, fitted form get it.
        caches: one entry for each cache that holds rows; an assistant has none.
        number_bytes: size of a number in them; they are never quantized.

    """

    weights_bytes: int
    fitted_bytes: int
    caches: tuple[CacheNeeds, ...]
    number_bytes: int

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

    Arguments:
        target: the model it drafts for; its weights are not read.
        architecture: the target's, for messages.
        place: the file or folder with the head, which may be the target's own.
        number_bytes: size of the numbers in which the target computes.
        dense: whether the target's weights are dense.
        fitted: whether types with a smaller, fitted form get it.

    Raises as `load_head` does, except for damaged weights.
    """
    with explained(place):
        kind = kind_of(place)
        if kind == "stored":
            return _of_stored(target, architecture, place, number_bytes, dense=dense)
        if kind == "gguf":
            return _of_gguf(target, architecture, place, number_bytes, dense=dense, fitted=fitted)
    return None


def _of_gguf(
    target: nn.Module,
    architecture: str,
    path: Path,
    number_bytes: int,
    *,
    dense: bool,
    fitted: bool,
) -> HeadNeeds | None:
    with GGUFFile.open(path) as file, of_gguf_head(file):
        found = find_planned(file, target, architecture)
        if found is None:
            return None
        _, head, plan = found
        used = {name for placement in plan.placements for name in placement.tensors}
        tensors = [file.tensors[name] for name in used]

    def size(*, fitted: bool) -> int:
        forms = forms_of(tensors, number_bytes, dense=dense, fitted=fitted)
        return bytes_in_forms(tensors, forms, number_bytes)

    return HeadNeeds(size(fitted=fitted), size(fitted=True), _caches_of(head), number_bytes)


def _of_stored(
    target: nn.Module, architecture: str, place: Path, number_bytes: int, *, dense: bool
) -> HeadNeeds | None:
    found = find_stored(place, target)
    if found is None:
        return None
    kind, stored = found
    head = kind.make(stored, target, architecture)
    takes_rows = stored.num_guessed is not None and "lm_head" not in head
    if stored.num_guessed is not None:
        set_draft_vocabulary(head, target, mx.zeros((stored.num_guessed,), dtype=mx.int32))
    # As `load_head` decides.
    if dense and number_bytes == 4:
        size = number_bytes * num_parameters(head)
    else:
        size = stored.num_bytes(number_bytes)
        if takes_rows:
            size += _bytes_of(head.lm_head.rows, number_bytes)
    return HeadNeeds(size, size, _caches_of(head), number_bytes)


def _bytes_of(layer: nn.Module, number_bytes: int) -> int:
    """Return the bytes of a layer whose codes keep their type; a number has `number_bytes`."""
    arrays = [array for _, array in tree_flatten(layer.parameters())]
    return sum(
        array.size * (number_bytes if mx.issubdtype(array.dtype, mx.floating) else array.itemsize)
        for array in arrays
    )


def _caches_of(head: Head) -> tuple[CacheNeeds, ...]:
    """Return the sizes of a head's caches after one pair, of which nothing is computed."""
    if isinstance(head, Assistant):
        return ()
    # Numbers that take no memory, in case a class evaluates something.
    head.update(
        tree_map(
            lambda array: mx.broadcast_to(mx.zeros((), array.dtype), array.shape),
            head.parameters(),
        )
    )
    caches = head.make_cache()
    head(mx.zeros((1, 1, head.width)), mx.zeros((1, 1), dtype=mx.int32), caches)
    return tuple(cache_needs(leaf) for leaf in leaves(caches))
