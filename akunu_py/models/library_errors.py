"""The errors and output of libraries that read a model's files."""

import contextlib
import io
import logging
from collections.abc import Iterator
from pathlib import Path

from akunu_py.system.errors import AkunuError, ModelFormatError

_log = logging.getLogger(__name__)


@contextlib.contextmanager
def from_library(place: Path, what: str) -> Iterator[None]:
    """Frame calls of mlx-lm and transformers that read a model's files.

    Errors become those of `errors_of`. Their output is logged instead of shown.
    """
    printed = io.StringIO()
    library = logging.getLogger("transformers")
    level = library.level
    try:
        # Its notices quote the folder's files and bypass the redirection.
        library.setLevel(logging.CRITICAL)
        with (
            errors_of(f"the {what} in {place} cannot be loaded"),
            contextlib.redirect_stdout(printed),
            contextlib.redirect_stderr(printed),
        ):
            yield
    finally:
        library.setLevel(level)
        if text := printed.getvalue().strip():
            _log.info("%s", text)


@contextlib.contextmanager
def errors_of(failure: str, advice: str = "download it again") -> Iterator[None]:
    """Frame calls of a library, which can raise anything for unexpected files.

    It becomes a ModelFormatError that begins with `failure` and ends with `advice`.
    """
    try:
        yield
    except (AkunuError, MemoryError, KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        # A panic of tokenizers is not an Exception.
        reason = " ".join(str(error).split())[:500]
        said = isinstance(error, ValueError | RuntimeError | OSError) or type(error) is Exception
        if not (reason and said):
            reason = f"{type(error).__name__} {reason}"
        raise ModelFormatError(f"{failure}: {reason}; {advice}") from error
