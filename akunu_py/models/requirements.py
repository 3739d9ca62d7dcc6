"""What a model will need and can do, before its weights are read.

The model is built from metadata, and one row is passed through it without evaluation: that gives
all shapes without computing anything. Freed buffers, which MLX keeps for the next pass and gives
back where memory is short, are not counted.
"""

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import mlx.core as mx
from mlx import nn

from akunu_py.models.adapter_files import Adapter, open_adapter
from akunu_py.models.cache import (
    Cache,
    CacheNeeds,
    cache_needs,
    cached_bytes,
    drop_numbers,
    make_caches,
)
from akunu_py.models.cached_rows import PREFILL_CHUNK
from akunu_py.models.head_places import head_place
from akunu_py.models.library_errors import explain_errors
from akunu_py.models.pass_memory import PassShape, pass_shape
from akunu_py.models.passes.seams import install
from akunu_py.models.rank_split import PlannedGroup, Way, plan
from akunu_py.models.rollback.caches import RollbackCaches, leaves
from akunu_py.models.sources.source import EmptyModel, ModelFigures, ModelSource, source_of
from akunu_py.system.errors import ConfigError
from akunu_py.values.load_options import KVBits, LoadOptions

if TYPE_CHECKING:
    from akunu_py.models.heads.found import HeadNeeds


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirements(ModelFigures):
    """What a model needs and can do."""

    caches: tuple[CacheNeeds, ...]
    """One entry for each cache that holds rows."""

    quantizable: bool
    """Whether its caches can be quantized (`kv_bits`)."""

    rollback: tuple[str, ...]
    """The ways its caches roll back; empty where they cannot, and nothing is drafted."""

    shape: PassShape
    way: Way | None = None
    """How the model is split over ranks; None for the whole model."""

    head: "HeadNeeds | None" = None
    """What the prediction head needs that drafts for it; None without one."""

    def cache_bytes(self, tokens: int, *, kv_bits: KVBits | None = None) -> int:
        """Return the bytes of the caches after `tokens`, quantized as `kv_bits` says.

        Where they cannot be quantized, bits do not matter. The cache of a head counts too; it is
        never quantized.
        """
        kv_bits = kv_bits if self.quantizable else None
        own = cached_bytes(self.caches, tokens, self.number_bytes, kv_bits=kv_bits)
        return own if self.head is None else own + self.head.cache_bytes(tokens)

    def total_bytes(self, tokens: int, *, kv_bits: KVBits | None = None) -> int:
        """Return the bytes of weights, caches and the largest pass together."""
        return (
            self.weights_bytes
            + (0 if self.head is None else self.head.weights_bytes)
            + self.cache_bytes(tokens, kv_bits=kv_bits)
            + self.working_bytes(tokens, kv_bits=kv_bits)
        )

    def working_bytes(self, tokens: int, *, kv_bits: KVBits | None = None, replies: int = 1) -> int:
        """Return the additional bytes of the largest pass with a context of `tokens`.

        That of `replies` which share passes, where there are several.
        """
        columns = max(
            (
                tokens if cache.window is None else min(tokens, cache.window + PREFILL_CHUNK)
                for cache in self.caches
                if cache.per_token
            ),
            default=0,
        )
        # A growing cache is in memory twice for a moment, one layer's at a time; and a quantized
        # one has a dense form, in passes over many positions.
        growing = max((cache.per_token for cache in self.caches), default=0)
        quantized = kv_bits is not None and self.quantizable
        grown = replies * (1 + quantized) * growing * columns * self.number_bytes
        return grown + self.shape.working_bytes(
            tokens,
            columns=columns,
            number_bytes=self.number_bytes,
            quantized_cache=quantized,
            replies=replies,
        )


def requirements(
    path: Path,
    options: LoadOptions | None = None,
    group: PlannedGroup | None = None,
    *,
    heads: str | Path | None = None,
) -> Requirements:
    """Return the memory that the model of a GGUF file or an MLX folder needs.

    With a `group` these are the needs of one of several ranks. With `heads`, "own" or the path of a
    file or folder, they include those of the prediction head there, if there is one. Raises
    ConfigError and ModelFormatError as `load_model` and `load_head` do, except for damaged weights.
    """
    options = options or LoadOptions()
    head = None if heads is None else head_place(path, heads)
    with explain_errors(path):
        source = source_of(path)
        empty = source.empty_model(options, group)
        if options.adapter is not None:
            empty = _with_adapter(empty, source, open_adapter(options.adapter, group))
        with source.errors():
            return _count(empty, group, head)


def _with_adapter(empty: EmptyModel, source: ModelSource, adapter: Adapter) -> EmptyModel:
    """Return a model without weights whose figures count an adapter; dense ones take it in."""
    from akunu_py.models.adapters import check_adapter

    check_adapter(empty.model, adapter, source)
    figures = empty.figures
    more = 0 if figures.dense else adapter.num_weights * figures.number_bytes
    return replace(empty, figures=replace(figures, weights_bytes=figures.weights_bytes + more))


def _count(empty: EmptyModel, group: PlannedGroup | None, head: Path | None) -> Requirements:
    """Return requirements, by the caches of an empty model and by the head at `head`.

    With a `group` they are those of a rank's part.
    """
    model, figures, way = empty.model, asdict(empty.figures), None
    if group is not None:
        way, share = plan(model, group, empty.figures.architecture)
        figures["weights_bytes"] = round(figures["weights_bytes"] * share)
    drop_numbers(model)
    caches = make_caches(model)
    rollback = RollbackCaches(caches)
    logits = model(mx.zeros((1, 1), dtype=mx.int32), cache=caches)
    kept = tuple(cache_needs(leaf) for leaf in leaves(caches))
    head_found = None
    if head is not None:
        from akunu_py.models.heads.found import head_needs  # for a model with a head

        head_found = head_needs(
            model, figures["architecture"], head, figures["number_bytes"],
            dense=figures["dense"],
        )  # fmt: skip
    try:
        make_caches(model, kv_bits=8)
        quantizable = True
    except ConfigError:
        quantizable = False
    return Requirements(
        **figures,
        caches=kept,
        quantizable=quantizable,
        rollback=tuple(rollback.methods),
        shape=pass_shape(
            model,
            head_width=max((cache.head_width for cache in kept), default=0),
            vocabulary=logits.shape[-1],
            planes=empty.planes,
            record_bytes=_record_bytes(model, caches, rollback),
        ),
        way=way,
        head=head_found,
    )


def _record_bytes(model: nn.Module, caches: list[Cache], rollback: RollbackCaches) -> int:
    """Return what a pass holds for each of its rows so that it can be undone, 0 where rows drop.

    The caches hold a row. Nothing is evaluated.
    """
    if rollback.drops_rows:
        return 0
    install(model)
    held: list[int] = []
    for rows in (2, 3):
        with rollback.record(rows) as record:
            model(mx.zeros((1, rows), dtype=mx.int32), cache=caches)
        record.close()
        held.append(record.nbytes)
    return held[1] - held[0]
