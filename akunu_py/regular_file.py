"""Files that are files: opening a pipe would wait for its other end, a device may never end."""

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO


def open_to_read(path: Path) -> BinaryIO:
    """Open a regular file.

    Raises OSError, for anything else too, and ValueError for a path that no file can have.
    """
    return os.fdopen(_open(path, os.O_RDONLY), "rb")


def open_to_append(path: Path) -> int:
    """Return the descriptor of a regular file, open at its end; the caller closes it.

    One that was not there is made for its owner alone; another keeps its mode. Raises as
    `open_to_read` does.
    """
    return _open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)


def _open(path: Path, flags: int) -> int:
    # Looked at once it is open: before, it could be exchanged in between.
    try:
        handle = os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC, 0o600)
    except OSError as error:
        if error.errno == errno.ENXIO:  # a pipe that nobody reads, or a socket
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
