"""Whether trees can be verified with a model, found by trying it."""

import logging
from collections.abc import Sequence
from typing import Any

import mlx.core as mx
from mlx import nn

from akunu_py.errors import AkunuError
from akunu_py.models.rollback import RollbackCaches, leaves
from akunu_py.models.tree.compaction import keep_rows
from akunu_py.models.tree.forward import TreeForward
from akunu_py.models.tree.masks import MASKED
from akunu_py.models.tree.rows import TreeRows

_log = logging.getLogger(__name__)

TOLERANCE = 1e-4
HALF_TOLERANCE = 2e-2
"""Largest difference of logits between a tree and its chains, of the largest logit of a row: for
float32, and for the 16-bit types, whose rows differ by up to 0.012 between passes of other sizes.
On a CPU trees of all families tried are bit-equal to chains; a wrong position, a sibling in sight
or a window too wide makes 0.27 and more."""

_LEAD = 3
"""Rows fed at least before the tried tree, so that it is not at the beginning of a text."""

_TRIED = TreeRows((-1, 0, 0, 1, 1, 2, 3))
_KEPT_LEAF = 5
"""The end of a path whose rows are not next to each other: what compaction is tried with."""

_FAILURES = (AkunuError, ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError,
             ValueError)  # fmt: skip
"""What models raise that make nothing of a mask as an array or of a position for each row."""


class Trees:
    """Passes over trees with one model, where its logits are those of chains.

    Tried on the caches at hand when a tree is first offered, and once more when the text first
    outgrows a sliding window: a small tree is fed, compacted to one of its paths and fed on, and
    each root-to-leaf path is fed as a chain. What came out is remembered as long as this object.

    `context` bounds the rows that the model can be fed: a model with learned positions has no more.
    Where a try would go beyond it trees are refused, until a shorter text is tried.

    Attributes:
        refusal: why trees were refused last; empty while they were not.

    """

    def __init__(self, model: nn.Module, context: int) -> None:
        self._forward = TreeForward(model)
        self._model = model
        self._context = context
        self._found: dict[frozenset[int], str] = {}
        self.refusal = ""

    def usable(
        self, caches: Sequence[Any], rollback: RollbackCaches, vocabulary_size: int, depth: int
    ) -> bool:
        """Return whether a tree of that depth can be fed to these caches now.

        The caches are as before afterwards.
        """
        refusal = self._known_to_fail(caches, rollback)
        if not refusal:
            length = max(int(cache.offset) for cache in leaves(caches))
            # The first try also finds out which windows there are.
            while (known := self._found.get(outgrown := self._outgrown(length + depth))) is None:
                # So many rows that the tried tree lies beyond these windows, too.
                lead = max(_LEAD, *(window - length for window in outgrown), 0)
                if length + lead + len(_TRIED) > self._context:
                    known = "the context has no room left for a try"
                    break
                found = self._try(caches, rollback, vocabulary_size, lead)
                self._found[outgrown] = self._found[self._outgrown(length + lead)] = found
            refusal = known
        self.refusal = refusal
        return not refusal

    def forward(self, tokens: Sequence[int], rows: TreeRows, caches: Sequence[Any]) -> mx.array:
        """Return the logits [1, n, vocabulary] after each row; the caches take in n rows."""
        return self._forward(tokens, rows, caches)

    def _known_to_fail(self, caches: Sequence[Any], rollback: RollbackCaches) -> str:
        kinds = {type(cache) for cache in leaves(caches)}
        if not rollback.supported or rollback.replays or not kinds.issubset(MASKED):
            names = ", ".join(sorted(kind.__name__ for kind in kinds.difference(MASKED)))
            return f"the model keeps its context in {names or 'nothing'}"
        if self._forward.positions.by_slot:
            return "the model's attention goes by the places of rows in the cache"
        return ""

    def _outgrown(self, position: int) -> frozenset[int]:
        """Return the windows through which a row at that position does not see the whole text."""
        return frozenset(window for window in self._forward.windows if position >= window)

    def _try(
        self, caches: Sequence[Any], rollback: RollbackCaches, size: int, num_lead: int
    ) -> str:
        """Feed a tree behind so many rows; return why trees are refused, or an empty text."""
        before = rollback.save()
        try:
            refusal = self._compare(caches, rollback, size, num_lead)
        except _FAILURES as error:
            refusal = f"{type(error).__name__}: {error}"
        finally:
            rollback.restore(before)
        if refusal:
            _log.info("trees are verified as chains: %s", refusal)
        return refusal

    def _compare(
        self, caches: Sequence[Any], rollback: RollbackCaches, size: int, num_lead: int
    ) -> str:
        # Any tokens would do that are not all one. (7919 is a prime that no vocabulary divides.)
        tokens = [(1 + 7919 * number) % size for number in range(num_lead + len(_TRIED) + 1)]
        lead, tokens, after = tokens[:num_lead], tokens[num_lead:-1], tokens[-1]
        self._chain(lead, caches)
        saved = rollback.save()
        chains: dict[int, mx.array] = {}
        followed = mx.array(0.0)
        for leaf in _TRIED.leaves():
            path = _TRIED.path(leaf)
            rows = self._chain([tokens[row] for row in path], caches)
            chains.update(zip(path, rows, strict=True))
            if leaf == _KEPT_LEAF:
                followed = self._chain([after], caches)[0]
            rollback.restore(saved)
        tree = self._forward(tokens, _TRIED, caches)[0]
        keep_rows(caches, len(_TRIED), _TRIED.path(_KEPT_LEAF))
        found = [*tree, self._chain([after], caches)[0]]
        expected = [*(chains[row] for row in range(len(_TRIED))), followed]
        distance = _distance(mx.stack(found), mx.stack(expected))
        allowed = TOLERANCE if tree.dtype == mx.float32 else HALF_TOLERANCE
        # Written so that a NaN is refused.
        if distance <= allowed:
            return ""
        return f"logits of a tree differ from those of chains by {distance:.1e} of the largest"

    def _chain(self, tokens: Sequence[int], caches: Sequence[Any]) -> mx.array:
        logits: mx.array = self._model(mx.array(list(tokens))[None], cache=caches)
        return logits[0]


def _distance(found: mx.array, expected: mx.array) -> float:
    """Return the largest difference of a row's logits, of the row's largest magnitude."""
    found, expected = found.astype(mx.float32), expected.astype(mx.float32)
    largest = mx.abs(expected).max(axis=-1)
    return float((mx.abs(found - expected).max(axis=-1) / largest).max())
