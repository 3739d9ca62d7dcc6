"""One file a family: metadata and tensor names to the arguments and parameters of a model class.

Which class rotates which rows together, which norms are stored plus one and where a family hides a
constant was read off llama.cpp's converters and graphs and mlx-lm's classes, and is tested against
llama.cpp's own logits (`tests/models/test_architectures.py`).

To add one, write its reader in the file of its family and add it to READERS there.
"""

import importlib
import pkgutil
from collections.abc import Mapping

from akunu_py.gguf.parts.decoder import Reader

_COLLECTIONS = ("dense", "mixtures", "hybrids")
"""Files of models that stand alone; each other one is named as its architectures begin."""


def find_reader(architecture: str) -> Reader | None:
    """Return the reader of an architecture, None for one that is not known.

    Of the families only those are imported that it can be in.
    """
    named = [family for family in _families() if architecture.startswith(family)]
    for family in (*sorted(named, key=len, reverse=True), *_COLLECTIONS):
        if (reader := _readers(family).get(architecture)) is not None:
            return reader
    return None


def architectures() -> tuple[str, ...]:
    """Return the values of `general.architecture` that have a reader, sorted."""
    return tuple(sorted(name for family in _families() for name in _readers(family)))


def _families() -> list[str]:
    return [found.name for found in pkgutil.iter_modules(__path__)]


def _readers(family: str) -> Mapping[str, Reader]:
    readers: Mapping[str, Reader] = importlib.import_module(f"{__name__}.{family}").READERS
    return readers
