"""Models, their caches, and the Target over both; the only room that knows mlx_lm and mlx.nn."""

import importlib
import importlib.util
import os
import sys
from types import ModuleType

from akunu_py.cpu import load_kernels

# transformers, which parts of mlx-lm import, advises on stderr to install PyTorch, which akunu does
# not need. Values that the user has set are kept.
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")

load_kernels()


class _DeferredPackage(ModuleType):
    """mlx_lm before its own imports, which run when one of its names is first used.

    Its models need MLX only; the whole package needs what `whole_mlx_lm` imports.
    """

    def __getattr__(self, name: str) -> object:
        if name.startswith("__") or self.__spec__ is None or self.__spec__.loader is None:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        self.__class__ = ModuleType  # type: ignore[assignment]
        # Its import is kept quiet there.
        importlib.import_module("akunu_py.models.whole_mlx_lm")
        self.__spec__.loader.exec_module(self)
        return getattr(self, name)


def _defer() -> None:
    spec = importlib.util.find_spec("mlx_lm")
    if spec is not None and spec.name not in sys.modules:
        package = importlib.util.module_from_spec(spec)
        package.__class__ = _DeferredPackage
        sys.modules[spec.name] = package


_defer()
