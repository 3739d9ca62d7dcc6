"""A trial whether a recorded pass of a model can be undone, once for each model."""

import logging
import weakref
from collections.abc import Sequence
from typing import Any

import mlx.core as mx
from mlx import nn

from akunu_py.models.cache import make_caches
from akunu_py.models.rollback.caches import RollbackCaches
from akunu_py.models.tree.trees import FAILURES, HALF_TOLERANCE, TOLERANCE, distance

_log = logging.getLogger(__name__)

_LEAD, _RECORDED, _KEPT, _AFTER = (0, 1), (2, 3, 0), 1, (1,)
"""Rows fed before the recorded pass, its rows and how many are kept, and rows fed after it. Any
tokens that are not all equal serve."""

_found: dict[int, bool] = {}
"""By the id of a model, which cannot be hashed; an entry goes before its model's id is free."""


def replays(model: nn.Module) -> bool:
    """Return whether a pass of the model can be recorded and undone; the first call tries it.

    The trial feeds a few rows to throwaway caches. A model that fails it feeds rows again.
    """
    key = id(model)
    if key not in _found:
        _found[key] = _try(model)
        weakref.finalize(model, _found.pop, key)
    return _found[key]


def _try(model: nn.Module) -> bool:
    try:
        refusal = _compare(model)
    except FAILURES as error:
        refusal = f"{type(error).__name__}: {error}"
    if refusal:
        _log.info("after a rejected draft rows are fed again: %s", refusal)
    return not refusal


def _compare(model: nn.Module) -> str:
    """Undo a part of a pass and go on; return how that differs from rows fed alone."""
    caches = make_caches(model)
    rollback = RollbackCaches(caches)
    _feed(model, _LEAD, caches)
    with rollback.recording(len(_RECORDED)) as record, record:
        _feed(model, _RECORDED, caches)
    undone = rollback.undo(len(_RECORDED) - _KEPT)
    # Also where that is known to fail: other ranks take part in these passes.
    found = _feed(model, _AFTER, caches)
    other = make_caches(model)
    for rows in (_LEAD, _RECORDED[:_KEPT], _AFTER):
        expected = _feed(model, rows, other)
    if not undone:
        return "how the layers make their states is not known"
    differing = distance(found, expected)
    allowed = TOLERANCE if found.dtype == mx.float32 else HALF_TOLERANCE
    # Written so that a NaN is refused.
    if differing <= allowed:
        return ""
    return f"logits behind a replayed state differ by {differing:.1e} of the largest"


def _feed(model: nn.Module, rows: Sequence[int], caches: list[Any]) -> mx.array:
    logits: mx.array = model(mx.array(list(rows))[None], cache=caches)
    return logits[0]
