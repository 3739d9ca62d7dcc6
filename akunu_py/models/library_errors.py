"""The errors and output of libraries that read a model's files."""

import contextlib
import io
import logging
from collections.abc import Iterator
from pathlib import Path

from akunu_py.errors import AkunuError, ModelFormatError

_log = logging.getLogger(__name__)


@contextlib.contextmanager
def from_library(folder: Path, what: str) -> Iterator[None]:
    """Frame calls of mlx-lm and transformers that read a folder's files.

    They can raise anything for unexpected files; it becomes a ModelFormatError. Their output is
    logged instead of shown.
    """
    printed = io.StringIO()
    library = logging.getLogger("transformers")
    level = library.level
    try:
        # Its notices quote the folder's files and bypass the redirection.
        library.setLevel(logging.CRITICAL)
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            yield
    except (AkunuError, MemoryError, KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        # A panic of tokenizers is no Exception.
        reason = " ".join(str(error).split())[:500]
        if not reason or not isinstance(error, ValueError | RuntimeError | OSError):
            reason = f"{type(error).__name__} {reason}"
        raise ModelFormatError(
            f"the {what} in {folder} cannot be loaded: {reason}; download it again"
        ) from error
    finally:
        library.setLevel(level)
        if text := printed.getvalue().strip():
            _log.info("%s", text)
