"""The only room that knows mlx_lm and mlx.nn: models, their caches, and the Target over both."""

import contextlib
import importlib.util
import io
import os
import resource
import sys
from collections.abc import Iterator
from types import ModuleType

from akunu_py.blas import load_blas

# transformers, which parts of mlx-lm import, advises on stderr to install PyTorch; akunu's users
# never need it. A user who set these variables keeps what was set.
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")

load_blas()


@contextlib.contextmanager
def quiet_import() -> Iterator[None]:
    """Import parts of mlx-lm that bring transformers: what they print is not for akunu's users.

    They ask for more open files, too, which fails where that is not allowed, and is not needed.
    """
    raise_limit = resource.setrlimit

    def ask(kind: int, limits: tuple[int, int]) -> None:
        with contextlib.suppress(ValueError, OSError):
            raise_limit(kind, limits)

    resource.setrlimit = ask
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            yield
    finally:
        resource.setrlimit = raise_limit


class _DeferredPackage(ModuleType):
    """mlx_lm before its own imports, which are made when one of its names is asked for.

    Its models need MLX alone. The package as a whole imports transformers, for the tokenizers of
    model folders: longer than a small GGUF model takes to load.
    """

    def __getattr__(self, name: str) -> object:
        if name.startswith("__") or self.__spec__ is None or self.__spec__.loader is None:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        self.__class__ = ModuleType  # type: ignore[assignment]
        with quiet_import():
            self.__spec__.loader.exec_module(self)
        return getattr(self, name)


def _defer() -> None:
    spec = importlib.util.find_spec("mlx_lm")
    if spec is not None and spec.name not in sys.modules:
        package = importlib.util.module_from_spec(spec)
        package.__class__ = _DeferredPackage
        sys.modules[spec.name] = package


_defer()
