"""One GGUF file over a memory map: a checked header, and tensors still on disk."""

import contextlib
import errno
import mmap
import os
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from akunu_py.gguf.cursor import REPAIR, Cursor
from akunu_py.gguf.header import Header, TensorInfo, read_header
from akunu_py.system.errors import ConfigError, ModelFormatError
from akunu_py.system.regular_file import open_to_read


def _map(path: Path) -> mmap.mmap:
    try:
        with open_to_read(path) as file:
            if os.fstat(file.fileno()).st_size == 0:
                raise ModelFormatError(
                    f"{path}: the magic at byte 0 is missing, the file is empty; {REPAIR}"
                )
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        advice = "check the path; it should be a .gguf file"
        if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
            advice = "raise the limit of open files, as with `ulimit -n 4096`"
        raise ConfigError(f"cannot read {path}: {reason}; {advice}") from error


class MappedFile:
    """An open GGUF file, which may be one part of a split model."""

    def __init__(self, path: Path, data: mmap.mmap, header: Header) -> None:
        self.path = path
        self.size = len(data)
        self.header = header
        self._map: mmap.mmap | None = data
        self._bytes: NDArray[np.uint8] | None = np.frombuffer(data, np.uint8)

    @classmethod
    def open(cls, path: Path) -> Self:
        """Map a file and read its header; raise as `GGUFFile.open` does."""
        data = _map(path)
        try:
            return cls(path, data, read_header(Cursor(data, path)))
        except BaseException:
            data.close()
            raise

    def key_error(self, key: str, problem: str, advice: str = REPAIR) -> ModelFormatError:
        """Return the error for a metadata key, or for a missing one."""
        position = self.header.key_positions.get(key)
        # A missing key is reported at the beginning of the metadata.
        place = 24 if position is None else position
        return ModelFormatError(f"{self.path}: {key!r} at byte {place} {problem}; {advice}")

    def tensor_bytes(self, info: TensorInfo) -> NDArray[np.uint8]:
        """Return the bytes of a tensor of this file, uint8 [rows, row_bytes], read-only.

        Raises ConfigError after `close`, ModelFormatError for a file that was shortened meanwhile.
        """
        if self._bytes is None or self._map is None:
            raise ConfigError(f"{self.path} is closed; open it again to read tensors")
        # Access to mapped bytes that are gone ends the process; `mmap.size` is the current size.
        if (size := self._map.size()) < self.size:
            raise ModelFormatError(
                f"{self.path}: tensor {info.name!r} at byte {info.offset} cannot be read: the file "
                f"was cut from {self.size} to {size} bytes while it was open; download it again"
            )
        flat = self._bytes[info.offset : info.offset + info.nbytes]
        return flat.reshape(info.rows, info.row_bytes)

    def close(self) -> None:
        """Unmap the file; may be called again.

        The map stays until the last view from `tensor_bytes` is gone.
        """
        self._bytes = None
        if self._map is not None:
            with contextlib.suppress(BufferError):  # views exist: closed with the last one
                self._map.close()
            self._map = None
