"""Files: only regular ones are opened, and one is replaced in a single step."""

import contextlib
import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO


def open_to_read(path: Path) -> BinaryIO:
    """Open a regular file.

    Raises OSError, also for anything but a regular file, and ValueError for an impossible path.
    """
    return os.fdopen(_open(path, os.O_RDONLY), "rb")


def open_to_append(path: Path) -> int:
    """Return the descriptor of a regular file, open at its end; the caller closes it.

    A new file is readable only by its owner; an existing one keeps its mode. Raises as
    `open_to_read` does.
    """
    return _open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)


def _open(path: Path, flags: int) -> int:
    # Checked after opening: earlier, the file could be exchanged in between.
    try:
        handle = os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC, 0o600)
    except OSError as error:
        if error.errno == errno.ENXIO:  # a pipe without a reader, or a socket
            raise _not_regular(path) from None
        raise
    mode = os.fstat(handle).st_mode
    if stat.S_ISREG(mode):
        return handle
    os.close(handle)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, "it is a folder", str(path))
    raise _not_regular(path)


def _not_regular(path: Path) -> OSError:
    return OSError(errno.EINVAL, "it is not a regular file", str(path))


_PRIVATE, _AS_UMASK_SAYS = 0o600, 0o666


def replace_file(path: Path, content: bytes, *, private: bool) -> None:
    """Write a file so that at every moment either the old or the new one is there, complete.

    Only its owner can read a `private` file, such as conversations and settings. The umask decides
    about other files. Raises OSError, also where a device or a pipe would be replaced.
    """
    import secrets  # takes 5 ms, and most commands replace no file

    if path.exists() and not path.is_file() and not path.is_dir():
        # Such as the null device for settings, under a name that is not known for it.
        raise _not_regular(path)
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
