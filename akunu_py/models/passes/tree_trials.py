"""A test whether trees can be verified with a model, and passes over trees where they can."""

import logging
from collections.abc import Sequence
from typing import Any

import mlx.core as mx
from mlx import nn
from mlx_lm.models.cache import QuantizedKVCache

from akunu_py.models.passes.forward import forward_of
from akunu_py.models.passes.plan import PassPlan, PassRows
from akunu_py.models.passes.trees import MASKED, TreeRows
from akunu_py.models.passes.trials import Pair, refusal, varied
from akunu_py.models.rollback.caches import RollbackCaches, leaves

_log = logging.getLogger(__name__)

BY_SLOT = frozenset({"mlx_lm.models.phi3small", "mlx_lm.models.minimax_m3_vl"})
"""Modules of attention that selects blocks by the place of a row in the cache. In a tree the place
differs from the position, and a try on a short text would not show it."""

_LEAD = 3
"""Least number of rows before the tried tree, so that it is not at the beginning of a text."""

_TRIED = TreeRows((-1, 0, 0, 1, 1, 2, 3))
_KEPT_LEAF = 5
"""The end of a path whose rows are not adjacent, to try compaction."""


class Trees:
    """Passes over trees with one model, if their logits equal those over chains.

    This is tried when a tree is first offered, and again when the text first outgrows a sliding
    window: a small tree is fed and compacted to one of its paths, which is continued, and each
    root-to-leaf path is fed as a chain. The results are remembered as long as this object.

    `context` bounds the rows of a try, since a model with learned positions has no further ones.
    Where a try would exceed it, trees are refused until a shorter text is tried.
    """

    def __init__(self, model: nn.Module, context: int) -> None:
        self._model = model
        self._by_slot = any(type(module).__module__ in BY_SLOT for module in model.modules())
        # Lengths of the sliding windows that its layers asked for in passes so far.
        self._windows: set[int] = set()
        self._context = context
        self._found: dict[frozenset[int], str] = {}
        # Why trees were last refused; empty if they were not.
        self.refusal = ""

    def usable(
        self, caches: Sequence[Any], rollback: RollbackCaches, vocabulary_size: int, depth: int
    ) -> bool:
        """Return whether a tree of that depth can be fed to these caches now.

        The caches are unchanged afterwards.
        """
        said = self._known_to_fail(caches, rollback)
        if not said:
            length = max(int(cache.offset) for cache in leaves(caches))
            # The first try also finds the windows.
            while (known := self._found.get(outgrown := self._outgrown(length + depth))) is None:
                # Enough rows that the tried tree lies beyond these windows as well.
                lead = max(_LEAD, *(window - length for window in outgrown), 0)
                if length + lead + len(_TRIED) > self._context:
                    known = "the context has no room left for a try"
                    break
                found = self._try(caches, rollback, vocabulary_size, lead)
                self._found[outgrown] = self._found[self._outgrown(length + lead)] = found
            said = known
        self.refusal = said
        return not said

    def forward(self, tokens: Sequence[int], rows: TreeRows, caches: Sequence[Any]) -> mx.array:
        """Return the logits [1, n, vocabulary] after each row; the caches take in n rows."""
        plan = PassPlan([PassRows(mx.array(list(tokens)), caches, rows)])
        (logits,) = forward_of(self._model)(plan)
        self._windows |= plan.windows
        return logits

    def _known_to_fail(self, caches: Sequence[Any], rollback: RollbackCaches) -> str:
        kinds = {type(cache) for cache in leaves(caches)}
        if not rollback.supported or not rollback.drops_rows or not kinds.issubset(MASKED):
            names = ", ".join(sorted(kind.__name__ for kind in kinds.difference(MASKED)))
            return f"the model keeps its context in {names or 'nothing'}"
        if self._by_slot:
            return "the model's attention selects rows by their places in the cache"
        return ""

    def _outgrown(self, position: int) -> frozenset[int]:
        """Return the windows that a text reaching that position exceeds."""
        return frozenset(window for window in self._windows if position >= window)

    def _try(
        self, caches: Sequence[Any], rollback: RollbackCaches, size: int, num_lead: int
    ) -> str:
        """Feed a tree behind `num_lead` rows; return why trees are refused, or an empty text."""
        before = rollback.save()
        try:
            said = refusal(
                lambda: self._pairs(caches, rollback, size, num_lead),
                "logits over a tree differ from chains",
                quantized=any(isinstance(cache, QuantizedKVCache) for cache in leaves(caches)),
            )
        finally:
            rollback.restore(before)
        if said:
            _log.info("trees are verified as chains: %s", said)
        return said

    def _pairs(
        self, caches: Sequence[Any], rollback: RollbackCaches, size: int, num_lead: int
    ) -> list[Pair]:
        tokens = varied(num_lead + len(_TRIED) + 1, size)
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
        tree = self.forward(tokens, _TRIED, caches)[0]
        rollback.keep(len(_TRIED), _TRIED.path(_KEPT_LEAF))
        found = [*tree, self._chain([after], caches)[0]]
        expected = [*(chains[row] for row in range(len(_TRIED))), followed]
        return [(mx.stack(found), mx.stack(expected))]

    def _chain(self, tokens: Sequence[int], caches: Sequence[Any]) -> mx.array:
        logits: mx.array = self._model(mx.array(list(tokens))[None], cache=caches)
        return logits[0]
