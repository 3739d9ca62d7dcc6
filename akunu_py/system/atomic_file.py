"""Atomic replacement of files."""

import contextlib
import os
import secrets
from pathlib import Path

_PRIVATE, _AS_UMASK_SAYS = 0o600, 0o666


def replace_file(path: Path, content: bytes, *, private: bool) -> None:
    """Write a file so that at every moment either the old or the new one is there, complete.

    Only its owner can read a `private` file, such as conversations and settings. The umask decides
    about other files.
    """
    name = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    handle = os.open(name, flags, _PRIVATE if private else _AS_UMASK_SAYS)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        name.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            name.unlink()
        raise
