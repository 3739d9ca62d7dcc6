"""What must be the same on all ranks, and a prompt on all of them compared with one model.

Networks were seen to corrupt messages in silence, always in the same way, beyond the first pass
of a long prompt (mlx issue 4342). The text then looks like that of a poor model.
"""

import hashlib
import json
import logging
import os
from collections.abc import Mapping
from pathlib import Path

import mlx.core as mx
import numpy as np
from mlx.utils import tree_flatten

from akunu_py.gguf.reader import paths_of_parts
from akunu_py.models.cached_rows import PREFILL_CHUNK
from akunu_py.models.load import LoadOptions, load_model
from akunu_py.models.measured_file import Measured, MeasuredFile, installed_version
from akunu_py.models.memory_check import PlannedModel, check_memory
from akunu_py.models.passes.trials import varied
from akunu_py.models.ranks.link import Link
from akunu_py.models.session import Session
from akunu_py.system.errors import AkunuError, ConfigError, MemoryLimitError
from akunu_py.system.shown_text import one_line
from akunu_py.values.load_options import KVBits

_PACKAGES = ("akunu_py", "mlx", "mlx-lm")
_BEGINNING = 16 * 2**20
"""Bytes of each file that are compared, besides its size: the header, and some of the weights."""


class RanksDifferError(ConfigError):
    """Ranks have different versions, files or options."""


def versions() -> dict[str, str]:
    """Return the installed versions of what computes."""
    return {f"version of {package}": installed_version(package) for package in _PACKAGES}


def files_digest(path: Path) -> str:
    """Return a digest of a model's files, by their names, sizes and beginnings."""
    digest = hashlib.sha256()
    if path.is_dir():
        files = sorted(place for place in path.iterdir() if place.is_file())
    else:
        files = list(paths_of_parts(path))
    for file in files:
        # A file may have another name on another machine; those of a folder have fixed ones.
        name = file.name if path.is_dir() else ""
        digest.update(f"{name!r} {file.stat().st_size} ".encode())
        with file.open("rb") as stream:
            digest.update(stream.read(_BEGINNING))
    return digest.hexdigest()[:16]


def agree(link: Link, facts: Mapping[str, str]) -> None:
    """Compare facts with those of all ranks, which call this as well.

    Raises RanksDifferError on every rank, naming the first fact that differs and the rank.
    """
    given = link.exchange(json.dumps(dict(facts)))
    verdict = ""
    if link.rank == 0:
        found = (_difference(link.name(rank), facts, text) for rank, text in given.items())
        verdict = next(filter(None, found), "")
    told = link.exchange(verdict)
    verdict = verdict if link.rank == 0 else told[0]
    if verdict:
        link.stop()
        raise RanksDifferError(one_line(verdict))


def _difference(name: str, ours: Mapping[str, str], text: str) -> str:
    """Return how another rank's facts differ from rank 0's, an empty text if they do not."""
    theirs = json.loads(text)
    for fact in dict.fromkeys([*ours, *theirs]):
        mine, other = ours.get(fact, "-"), theirs.get(fact, "-")
        if mine != other:
            return (
                f"the {fact} is {other} on {name} and {mine} on rank 0; all ranks need the same "
                "versions, the same files and the same options"
            )
    return ""


_log = logging.getLogger(__name__)

_CONNECTIONS = ("MLX_HOSTFILE", "MLX_JACCL_COORDINATOR", "MLX_IBV_COORDINATOR")
"""Variables by which mlx.launch tells how ranks are connected."""

_TOKENS = 2 * PREFILL_CHUNK + PREFILL_CHUNK // 2
_COMPARED = 16
_TOLERANCE = 1e-3
_HALF_TOLERANCE = 5e-2
"""Largest difference of a logit, relative to the largest, in float32 and in 16 bits."""


class RanksDisagreeError(AkunuError):
    """All ranks together compute other numbers than one."""


class _Ranks(Measured, kw_only=True):
    agree: bool = False


def compare_once(
    link: Link,
    session: Session,
    path: Path,
    options: LoadOptions,
    *,
    context: int,
    kv_bits: KVBits | None,
) -> None:
    """Compare as `compare_with_one` does, unless these ranks were found to agree about this model.

    That is remembered in the cache folder. Nothing is compared where the whole model does not fit.
    Raises RanksDisagreeError.
    """
    key = {
        "ranks": ", ".join(link.name(rank) for rank in range(1, link.size)),
        "connection": ", ".join(name for name in _CONNECTIONS if name in os.environ),
        "model": files_digest(path),
        "options": f"{options}, kv_bits {kv_bits}",
        **versions(),
    }
    file = MeasuredFile("ranks", _Ranks, key)
    if file.load().agree:
        return
    _log.info("comparing what all ranks compute with the whole model, once")
    try:
        compare_with_one(session, path, options, context=context, kv_bits=kv_bits)
    except MemoryLimitError:
        _log.info("the ranks are not compared: the whole model does not fit beside this part")
        return
    file.save(agree=True)


def compare_with_one(
    session: Session, path: Path, options: LoadOptions, *, context: int, kv_bits: KVBits | None
) -> float:
    """Return the largest difference of the last logits of a prompt, relative to the largest logit.

    `session` is that of rank 0, and loses its conversation. The prompt takes several passes, if the
    context holds it. The whole model is in memory meanwhile.

    Raises RanksDisagreeError where the difference is more than rounding makes, MemoryLimitError
    where the whole model does not fit beside this rank's part.
    """
    check_memory([PlannedModel(path, options, kv_bits)], context=_TOKENS)
    size = session.vocabulary_size
    ids = varied(min(_TOKENS, context), size)
    start = max(1, len(ids) - _COMPARED)
    session.reset()
    found = session.logits(ids, start)
    session.reset()
    loaded = load_model(path, options, context=context)
    alone = Session(loaded.model, context=context, kv_bits=kv_bits)
    expected = alone.logits(ids, start)
    alone.close()
    kinds = {array.dtype for _, array in tree_flatten(loaded.model.parameters())}
    difference = float(np.abs(found - expected).max() / np.abs(expected).max())
    allowed = _TOLERANCE if kinds <= {mx.float32, mx.uint32} else _HALF_TOLERANCE
    # False for a NaN.
    if difference <= allowed:
        return difference
    raise RanksDisagreeError(
        f"after a prompt of {len(ids)} tokens all ranks together compute other numbers than one "
        f"(by {difference:.1e} of the largest); check cables and the version of mlx, or take "
        "another --backend of mlx.launch"
    )
