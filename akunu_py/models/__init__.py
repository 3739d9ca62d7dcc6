"""The only room that knows mlx_lm and mlx.nn: models, their caches, and the Target over both."""

import importlib.util
import os
import sys
from types import ModuleType

from akunu_py.blas import load_blas

# transformers, which parts of mlx-lm import, advises on stderr to install PyTorch; akunu's users
# never need it. A user who set these variables keeps what was set.
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")

load_blas()


class _DeferredPackage(ModuleType):
    """mlx_lm before its own imports, which are made when one of its names is asked for.

    Its models need MLX alone; the package as a whole needs what `whole_mlx_lm` brings.
    """

    def __getattr__(self, name: str) -> object:
        if name.startswith("__") or self.__spec__ is None or self.__spec__.loader is None:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        self.__class__ = ModuleType  # type: ignore[assignment]
        from akunu_py.models import whole_mlx_lm  # noqa: F401, PLC0415 - quietly

        self.__spec__.loader.exec_module(self)
        return getattr(self, name)


def _defer() -> None:
    spec = importlib.util.find_spec("mlx_lm")
    if spec is not None and spec.name not in sys.modules:
        package = importlib.util.module_from_spec(spec)
        package.__class__ = _DeferredPackage
        sys.modules[spec.name] = package


_defer()
