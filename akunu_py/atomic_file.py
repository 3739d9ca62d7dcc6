"""Files that are replaced at once or not at all."""

import contextlib
import os
import secrets
from pathlib import Path

_PRIVATE, _AS_UMASK_SAYS = 0o600, 0o666


def replace_file(path: Path, content: bytes, *, private: bool) -> None:
    """Write a file so that at every moment the old one or the new one is there, whole.

    A `private` file can be read by its owner alone: texts of conversations, settings. Any other one
    by whom the umask lets read it, as a file that a shell makes.
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
