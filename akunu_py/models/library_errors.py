"""The errors of reading a model's files, and the output of libraries that do."""

import contextlib
import io
import logging
import os
from collections.abc import Iterator
from pathlib import Path

from akunu_py.system.errors import AkunuError, ConfigError, ModelFormatError

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


@contextlib.contextmanager
def explain_errors(path: str | Path | None) -> Iterator[None]:
    """Turn errors of the system and of MLX into a ConfigError that names the path.

    A ModelFormatError gets the path in front if it names no file, as those about metadata.
    """
    try:
        yield
    except ModelFormatError as error:
        named = path is None or os.sep in error.message or Path(path).name in error.message
        if named:
            raise
        raise type(error)(f"{path}: {error.message}") from error
    except PermissionError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
    except OSError as error:
        raise ConfigError(f"{path} cannot be opened: {error.strerror or error}") from None
    except (RuntimeError, MemoryError) as error:
        # MLX's own errors, mostly for failed allocations, and an unknown "~user".
        raise ConfigError(
            f"{path} cannot be loaded: {error}; if memory is short, use a smaller model"
        ) from error
