"""Runs a plan."""

import logging
import weakref
from collections.abc import Iterator
from functools import cached_property
from typing import Any

import mlx.core as mx
from mlx import nn

from akunu_py.cpu.blas import fit_threads
from akunu_py.models.cache import LATENT_LAYERS
from akunu_py.models.device import on_cpu
from akunu_py.models.passes import trials
from akunu_py.models.passes.caches import RowsCache
from akunu_py.models.passes.plan import PassPlan
from akunu_py.models.passes.seams import install, open_plan
from akunu_py.models.rollback.caches import leaves
from akunu_py.models.rollback.recurrence import Record

_log = logging.getLogger(__name__)

MOST_ABSORBED = 65
"""Rows of one text up to which latent attention computes in the width of its cache: the last token
and 64 drafted ones. mlx-lm does so for one row; for several it computes keys and values of all rows
in the cache anew, which is cheaper only for very many."""


_BEGUN_BEHIND = (1, 4, 16, 64)
"""Numbers of layers that are queued before the next ones are built, so that the device begins."""


class _Layers(list[Any]):
    """The caches of a pass that is queued some layers at a time, since building takes milliseconds.

    Classes ask for the next cache when a layer is built.
    """

    def __iter__(self) -> Iterator[Any]:
        for number, cache in enumerate(super().__iter__()):
            if number in _BEGUN_BEHIND:
                built = self[number - 1]
                held = leaves(built.parts if isinstance(built, RowsCache) else [built])
                mx.async_eval([vars(leaf) for leaf in held])  # type: ignore[no-untyped-call]
            yield cache


class Forward:
    """Passes of one model."""

    def __init__(self, model: nn.Module) -> None:
        # Not held: whoever has the model has its passes.
        self._model = weakref.ref(model)
        # Whether the cache has one small vector for all heads, and scores begin before attention.
        self._latent = any(isinstance(part, LATENT_LAYERS) for part in model.modules())
        install(model)

    @cached_property
    def replays(self) -> bool:
        """Whether a recorded pass can be undone; otherwise rows that stay are fed again."""
        model = self._model()
        assert model is not None  # noqa: S101 - of whoever asks for a pass
        said = trials.replays(model)
        if said:
            _log.info("after a rejected draft rows are fed again: %s", said)
        return not said

    def __call__(self, plan: PassPlan) -> list[mx.array]:
        """Return the logits [1, n, vocabulary] of each text's wanted rows, not yet evaluated."""
        fit_threads()
        model = self._model()
        assert model is not None  # noqa: S101 - of whoever asks for a pass
        # On a CPU the device is never idle: its cores build.
        queued = _Layers if any(part.idle for part in plan.parts) and not on_cpu() else list
        absorbed = self._latent and 1 < plan.rows <= MOST_ABSORBED
        if plan.is_chain and (not absorbed or plan.parts[0].tokens.ndim > 1):
            (part,) = plan.parts
            with part.record:
                logits = [model(mx.atleast_2d(part.tokens), cache=queued(part.caches))]
        else:
            layers = zip(*(part.caches for part in plan.parts), strict=True)
            caches = [RowsCache.standing(plan, layer, self._latent) for layer in layers]
            tokens = mx.concatenate([part.tokens for part in plan.parts])
            with open_plan(plan):
                rows = model(tokens[:, None], cache=queued(caches))
            for cache in caches:
                cache.check()
            logits = plan.split(rows.swapaxes(0, 1), 1)
        for part in plan.parts:
            if isinstance(part.record, Record):
                part.record.close()
        return [
            found if part.wanted is None else found[:, part.wanted]
            for part, found in zip(plan.parts, logits, strict=True)
        ]


_known: dict[int, Forward] = {}
"""By the id of a model, which cannot be hashed; an entry goes before its model's id is free."""


def forward_of(model: nn.Module) -> Forward:
    """Return the passes of a model, the same each time."""
    key = id(model)
    if key not in _known:
        _known[key] = Forward(model)
        weakref.finalize(model, _known.pop, key)
    return _known[key]
