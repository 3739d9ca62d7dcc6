"""Joins the ranks that were started together, and loads this rank's part of a model."""

import dataclasses
import os
import sys
from pathlib import Path

import mlx.core as mx
from mlx import nn
from mlx.utils import tree_flatten

from akunu_py.models.cached_rows import MakePasses, Passes
from akunu_py.models.load import LoadedModel, load_model
from akunu_py.models.ranks.comparison import RanksDifferError, agree, files_digest, versions
from akunu_py.models.ranks.link import Link
from akunu_py.models.ranks.passes import CacheKinds, Follower, Leader
from akunu_py.system.errors import AkunuError, ConfigError
from akunu_py.values.load_options import EngineOptions, KVBits

RANK = "MLX_RANK"
"""The variable by which mlx.launch tells a process its rank."""


def started_as_rank() -> int | None:
    """Return the number of the rank that this process was started as; None if it stands alone."""
    value = os.environ.get(RANK)
    if not value:
        return None
    if not value.isdecimal():
        raise ConfigError(f"{RANK} is {value!r}; it is a rank's number, set by mlx.launch")
    return int(value)


def join() -> Link | None:
    """Connect the ranks that were started together; None for a process that stands alone.

    Raises ConfigError where they do not find each other.
    """
    rank = started_as_rank()
    if rank is None:
        return None
    try:
        group = mx.distributed.init()
    except (RuntimeError, ValueError) as error:
        raise ConfigError(
            f"the ranks do not find each other: {error}; check the addresses in the file of hosts, "
            "and start all ranks at the same time"
        ) from None
    if group.size() == 1 and rank == 0:
        return None
    if group.size() == 1 or group.rank() != rank:
        raise ConfigError(
            f"{RANK} is {rank}, but MLX finds no group with it; start the ranks with mlx.launch"
        )
    return Link(group)


def load_part(link: Link, path: Path, options: EngineOptions) -> LoadedModel:
    """Load this rank's part of a model; all ranks call it with the same values.

    Raises ConfigError where ranks differ in anything, and as `load_model` does; the other ranks
    then end as well.
    """
    given = {
        **dataclasses.asdict(options.of_model()), "context": options.context,
        "kv_bits": options.kv_bits, "reproducible": options.reproducible,
    }  # fmt: skip
    agree(
        link,
        {
            **versions(),
            "model": files_digest(path),
            **{f"option {name}": str(value) for name, value in given.items()},
        },
    )
    loaded = load_model(path, options.of_model(), context=options.context, group=link.group)
    kinds = sorted({str(array.dtype) for _, array in tree_flatten(loaded.model.parameters())})
    agree(
        link,
        {
            "device": str(mx.default_device().type),
            "form of weights": loaded.description.weights_text,
            "types of numbers": ", ".join(kinds),
            "way of splitting": "a pipeline" if _in_pipeline(loaded.model) else "every layer",
        },
    )
    return dataclasses.replace(
        loaded, make_passes=passes_on_ranks(link, loaded.model, options.kv_bits)
    )


def passes_on_ranks(link: Link, model: nn.Module, kv_bits: KVBits | None = None) -> MakePasses:
    """Return how rank 0 runs passes on all ranks; all of them call this with their parts."""
    kinds = CacheKinds(link, model, kv_bits, pipeline=_in_pipeline(model))
    return Leader(link, kinds).passes if link.rank == 0 else Passes


def follow(link: Link, path: Path, options: EngineOptions) -> None:
    """Load this rank's part, and do what rank 0 does with it until rank 0 stops.

    Ends the process where that fails, or a rank is lost.
    """
    try:
        loaded = load_part(link, path, options)
        Follower(link, loaded.model).run()
    except RanksDifferError:
        # Rank 0 says so.
        sys.exit(1)
    except (AkunuError, RuntimeError) as error:
        link.fail_by(error)


def _in_pipeline(model: nn.Module) -> bool:
    inner = getattr(model, "model", None)
    return getattr(inner, "pipeline_size", 1) > 1
