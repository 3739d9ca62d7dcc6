"""Runs a plan."""

import weakref

import mlx.core as mx
from mlx import nn
from mlx_lm.models import gemma2

from akunu_py.cpu.blas import fit_threads
from akunu_py.models.cache import LATENT_LAYERS
from akunu_py.models.passes.caches import RowsCache
from akunu_py.models.passes.plan import PassPlan
from akunu_py.models.passes.seams import install, open_plan

MOST_ABSORBED = 65
"""Rows of one text up to which latent attention computes in the width of its cache: the last token
and 64 drafted ones. mlx-lm does so for one row; for several it computes keys and values of all rows
in the cache anew, which is cheaper only for very many."""


class Forward:
    """Passes of one model."""

    def __init__(self, model: nn.Module) -> None:
        # Not held: whoever has the model has its passes.
        self._model = weakref.ref(model)
        parts = model.modules()
        self._latent = any(isinstance(part, LATENT_LAYERS) for part in parts)
        # Axes of heads, and of one row, in scores: Gemma 2 computes its own, by groups of heads.
        grouped = any(isinstance(part, gemma2.Attention) and part.repeats > 1 for part in parts)
        self._axes = 2 + grouped
        install(model)

    def __call__(self, plan: PassPlan) -> list[mx.array]:
        """Return the logits [1, n, vocabulary] of each text's rows, not yet evaluated."""
        fit_threads()
        model = self._model()
        assert model is not None  # noqa: S101 - of whoever asks for a pass
        if self._as_chain(plan):
            (part,) = plan.parts
            with part.record:
                return [model(part.tokens[None], cache=list(part.caches))]
        layers = zip(*(part.caches for part in plan.parts), strict=True)
        caches = [
            RowsCache.standing(plan, layer, latent=self._latent, axes=self._axes)
            for layer in layers
        ]
        with open_plan(plan):
            logits = model(
                mx.concatenate([part.tokens for part in plan.parts])[:, None], cache=caches
            )
        for cache in caches:
            cache.check()
        return plan.split(logits.swapaxes(0, 1), 1)

    def _as_chain(self, plan: PassPlan) -> bool:
        """Return whether the rows are of one text in order, to be fed as mlx-lm's classes do."""
        return len(plan.parts) == 1 and plan.parts[0].tree is None


_known: dict[int, Forward] = {}
"""By the id of a model, which cannot be hashed; an entry goes before its model's id is free."""


def forward_of(model: nn.Module) -> Forward:
    """Return the passes of a model, the same each time."""
    key = id(model)
    if key not in _known:
        _known[key] = Forward(model)
        weakref.finalize(model, _known.pop, key)
    return _known[key]
