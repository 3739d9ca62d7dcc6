"""Metadata and tensor names to a `ModelPlan`, by the reader of the architecture; a file a family.

Which class rotates which rows together, which norms are stored plus one and where a family has a
hidden constant was taken from llama.cpp's converters and graphs and mlx-lm's classes, and is tested
against llama.cpp's logits (`tests/models/test_architectures.py`).

To add an architecture, write its reader in the file of its family and add it to READERS there.
"""

import importlib
import pkgutil
from collections.abc import Mapping

from akunu_py.gguf.cursor import MetadataValue
from akunu_py.gguf.keys import Keys
from akunu_py.gguf.parts.decoder import Decoder, Reader
from akunu_py.gguf.plan import ModelPlan
from akunu_py.gguf.reader import TensorInfo
from akunu_py.system.errors import ModelFormatError, UnsupportedArchitectureError

ASSISTANT = "gemma4-assistant"
"""Files of small models that only draft for another, whose caches they read."""

_COLLECTIONS = ("dense", "mixtures", "hybrids")
"""Files of single models. Every other file has the name that its architectures begin with."""


def read_plan(
    metadata: Mapping[str, MetadataValue], tensors: Mapping[str, TensorInfo]
) -> ModelPlan:
    """Return the plan of a model, from `GGUFFile.metadata` and `GGUFFile.tensors`.

    Raises UnsupportedArchitectureError, naming the unsupported property, for a valid file of a
    model that akunu cannot run, and ModelFormatError, naming key or tensor, for a damaged one.
    """
    architecture = metadata.get("general.architecture")
    if not isinstance(architecture, str):
        raise ModelFormatError(
            "the metadata has no general.architecture: this is not a language model's file"
        )
    reader = find_reader(architecture)
    if architecture == ASSISTANT:
        raise UnsupportedArchitectureError(
            "this is an assistant for Gemma 4, which cannot run alone; load the Gemma 4 that it is "
            "made for, and give the assistant as its head (--heads)"
        )
    if reader is None:
        raise UnsupportedArchitectureError(
            f"the model is of the architecture {architecture[:80]!r}; akunu runs "
            f"{', '.join(supported_architectures())} from GGUF"
        )
    keys = Keys(metadata, architecture)
    # Embedding models of any architecture have this key.
    if not keys.flag("attention.causal", True):
        raise keys.unsupported("attention.causal", False, "attention to earlier tokens")
    plan = reader(Decoder(keys, tensors))
    keys.check_unused()
    return plan


def find_reader(architecture: str) -> Reader | None:
    """Return the reader of an architecture, None for an unknown one.

    Only the families that can have it are imported.
    """
    named = [family for family in _families() if architecture.startswith(family)]
    for family in (*sorted(named, key=len, reverse=True), *_COLLECTIONS):
        if (reader := _readers(family).get(architecture)) is not None:
            return reader
    return None


def supported_architectures() -> tuple[str, ...]:
    """Return the values of `general.architecture` that akunu can run, sorted."""
    return tuple(sorted(name for family in _families() for name in _readers(family)))


def _families() -> list[str]:
    return [found.name for found in pkgutil.iter_modules(__path__)]


def _readers(family: str) -> Mapping[str, Reader]:
    readers: Mapping[str, Reader] = importlib.import_module(f"{__name__}.{family}").READERS
    return readers
