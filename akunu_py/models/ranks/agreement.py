"""What must be the same on all ranks: versions, the model's files, options, and what was loaded."""

import hashlib
import json
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from akunu_py.gguf.reader import paths_of_parts
from akunu_py.models.ranks.link import Link
from akunu_py.system.errors import ConfigError
from akunu_py.system.shown_text import one_line

_PACKAGES = ("akunu_py", "mlx", "mlx-lm")
_BEGINNING = 16 * 2**20
"""Bytes of each file that are compared, besides its size: the header, and some of the weights."""


class RanksDifferError(ConfigError):
    """Ranks have different versions, files or options."""


def versions() -> dict[str, str]:
    """Return the installed versions of what computes."""
    return {f"version of {package}": _version(package) for package in _PACKAGES}


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


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"
