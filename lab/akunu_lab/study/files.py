"""Files of studies."""

import os
import secrets
from pathlib import Path

from akunu_py.api import ConfigError


def write_text(path: Path, text: str) -> None:
    """Write a text file so that at every moment either the old or the new one is there, complete.

    Raises ConfigError if that fails.
    """
    new = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        try:
            new.write_bytes(text.encode("utf-8", "replace"))
            os.replace(new, path)  # noqa: PTH105 - onto one that may exist
        finally:
            new.unlink(missing_ok=True)
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror or error}") from error
