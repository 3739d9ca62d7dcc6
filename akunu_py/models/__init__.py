"""The only room that knows mlx_lm and mlx.nn: models, their caches, and the Target over both."""

import contextlib
import io
import os
import resource
from collections.abc import Iterator

from akunu_py.blas import load_blas

# transformers, which mlx-lm imports, advises on stderr to install PyTorch; akunu's users never need
# it. A user who set these variables keeps what was set.
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")


load_blas()


@contextlib.contextmanager
def _open_files_as_allowed() -> Iterator[None]:
    """Let mlx-lm's import ask for more open files in vain: where that is not allowed it fails."""
    raise_limit = resource.setrlimit

    def ask(kind: int, limits: tuple[int, int]) -> None:
        with contextlib.suppress(ValueError, OSError):
            raise_limit(kind, limits)

    resource.setrlimit = ask
    try:
        yield
    finally:
        resource.setrlimit = raise_limit


with (
    _open_files_as_allowed(),
    contextlib.redirect_stdout(io.StringIO()),
    contextlib.redirect_stderr(io.StringIO()),
):
    import mlx_lm  # noqa: F401 - whatever it prints while it loads is not for akunu's users
