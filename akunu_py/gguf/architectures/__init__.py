"""One file a family: metadata and tensor names to the arguments and parameters of a model class.

Which class rotates which rows together, which norms are stored plus one and where a family hides a
constant was read off llama.cpp's converters and graphs and mlx-lm's classes, and is tested against
llama.cpp's own logits (`tests/models/test_architectures.py`).
"""

import importlib
import pkgutil
from collections.abc import Callable, Mapping

from akunu_py.gguf.parts.decoder import Reader
from akunu_py.gguf.plan import ModelPlan

_COLLECTIONS = ("dense", "mixtures", "hybrids")
"""Files of models that stand alone; each other one is named as its architectures begin."""


# Families that are not yet written with `gguf/parts`.
_OLD = {
    *("afmoe", "bailing", "deepseek", "deepseek_v1", "dots", "ernie", "exaone", "falcon_h1"),
    *("gemma", "glm", "glm_moe", "gpt", "gpt_oss", "granite", "granite_hybrid", "hunyuan"),
    *("hunyuan_moe", "kimi_linear", "lfm2", "mamba", "mimo", "minicpm", "minicpm3", "minimax"),
    *("nemotron", "nemotron_h", "olmo", "olmoe", "phi"),
}
_SHARED = {"blocks", "decoder", "experts", "recurrent", "windows", "gemma3n", "gemma4"}


def find_reader(architecture: str) -> Reader | None:
    """Return the reader of an architecture, None for one that is not known.

    Of the families only those are imported that it can be in.
    """
    named = [family for family in _families() if architecture.startswith(family)]
    for family in (*sorted(named, key=len, reverse=True), *_COLLECTIONS, *sorted(_OLD)):
        if (reader := _readers(family).get(architecture)) is not None:
            return reader
    return None


def architectures() -> tuple[str, ...]:
    """Return the values of `general.architecture` that have a reader, sorted."""
    return tuple(sorted(name for family in _families() for name in _readers(family)))


def _families() -> list[str]:
    return [found.name for found in pkgutil.iter_modules(__path__) if found.name not in _SHARED]


def _readers(family: str) -> Mapping[str, Reader]:
    try:
        module = importlib.import_module(f"{__name__}.{family}")
    except ModuleNotFoundError:
        return {}
    if family in _OLD:
        return {name: _adapted(old) for name, old in module.READERS.items()}
    readers: Mapping[str, Reader] = module.READERS
    return readers


def _adapted(old: Callable[..., ModelPlan]) -> Reader:
    return lambda model: old(model.keys, model.tensors)
