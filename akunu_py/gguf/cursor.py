"""Reads a GGUF file field by field; every count and length is checked against the bytes left."""

import mmap
import struct
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from akunu_py.system.errors import ModelFormatError

MetadataValue = bool | int | float | str | list[str] | NDArray[Any]
"""A scalar, a string, a list of strings, or a one-dimensional array of numbers."""

REPAIR = "the file is truncated or damaged; download it again"
"""Advice for most damage."""

_BOOL, _STRING, _ARRAY = 7, 8, 9
_SCALARS: dict[int, str] = {
    0: "<u1", 1: "<i1", 2: "<u2", 3: "<i2", 4: "<u4", 5: "<i4",
    6: "<f4", _BOOL: "<u1", 10: "<u8", 11: "<i8", 12: "<f8",
}  # fmt: skip
_SCALAR_DTYPES = {code: np.dtype(name) for code, name in _SCALARS.items()}


_SHOWN_CHARACTERS = 80


def quote(text: str) -> str:
    """Return a text for a message: quoted, escaped and shortened."""
    return repr(text) if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]!r}..."


def describe(value: object) -> str:
    """Return a short description of any metadata value for a message."""
    if isinstance(value, str):
        return quote(value)
    if isinstance(value, list | np.ndarray):
        return f"an array of {len(value)}"
    return "missing" if value is None else repr(value)


class Cursor:
    """Reads fields one after another; its errors name field and byte offset.

    Every method that reads raises ModelFormatError if the file ends before the field does.

    """

    def __init__(self, data: mmap.mmap | bytes, path: Path) -> None:
        self.data = data
        self.size = len(data)
        self.position = 0
        self.path = path

    @property
    def remaining(self) -> int:
        return self.size - self.position

    def error(
        self, field: str, problem: str, advice: str = REPAIR, position: int | None = None
    ) -> ModelFormatError:
        """Return the error for a field at `position`, by default the cursor's."""
        place = self.position if position is None else position
        return ModelFormatError(f"{self.path}: {field} at byte {place} {problem}; {advice}")

    def need(self, count: int, field: str) -> None:
        """Raise ModelFormatError if fewer than `count` bytes are left."""
        if count > self.remaining:
            raise self.error(field, f"needs {count} bytes where the file has {self.remaining} left")

    def u32(self, field: str) -> int:
        self.need(4, field)
        (value,) = struct.unpack_from("<I", self.data, self.position)
        self.position += 4
        return int(value)

    def u64(self, field: str) -> int:
        self.need(8, field)
        (value,) = struct.unpack_from("<Q", self.data, self.position)
        self.position += 8
        return int(value)

    def count(self, field: str, smallest: int) -> int:
        """Read a count of entries of at least `smallest` bytes each."""
        value = self.u64(field)
        if value > self.remaining // smallest:
            raise self.error(
                field,
                f"is {value}, more than the {self.remaining} bytes left can hold",
                position=self.position - 8,
            )
        return value

    def string(self, field: str, errors: str = "strict") -> str:
        """Read a length and that many bytes of UTF-8; `errors` as in `bytes.decode`."""
        length = self.count(f"the length of {field}", 1)
        raw = self.data[self.position : self.position + length]
        try:
            text = raw.decode("utf-8", errors)
        except UnicodeDecodeError:
            raise self.error(field, "is not UTF-8") from None
        self.position += length
        return text

    def strings(self, length: int, field: str) -> list[str]:
        """Read an array of strings, like `string` but fast enough for 150,000 of them."""
        data, size, position = self.data, self.size, self.position
        unpack = struct.Struct("<Q").unpack_from
        texts: list[str] = []
        for index in range(length):
            start = position + 8
            if start > size or (end := start + unpack(data, position)[0]) > size:
                raise self.error(
                    f"{field}[{index}]", "runs past the end of the file", position=position
                )
            try:
                texts.append(data[start:end].decode("utf-8"))
            except UnicodeDecodeError:
                raise self.error(f"{field}[{index}]", "is not UTF-8", position=start) from None
            position = end
        self.position = position
        return texts

    def value(self, code: int, field: str) -> MetadataValue:
        """Read a metadata value of the type `code`.

        In a text, bytes that are not UTF-8 become U+FFFD, since quantizers store paths in other
        encodings. In a list of texts, which are tokens, they are an error.
        """
        if code == _STRING:
            return self.string(field, errors="replace")
        if code == _ARRAY:
            return self._array(field)
        if code not in _SCALAR_DTYPES:
            raise self.error(
                field,
                f"has the value type {code}, which GGUF does not know",
                position=self.position - 4,
            )
        value: bool | int | float = self._scalars(code, 1, field)[0].item()
        return value

    def _array(self, field: str) -> MetadataValue:
        code = self.u32(f"the element type of {field}")
        if code == _ARRAY:
            raise self.error(
                field, "is an array of arrays, which no model needs", position=self.position - 4
            )
        if code == _STRING:
            return self.strings(self.count(f"the length of {field}", 8), field)
        if code not in _SCALAR_DTYPES:
            raise self.error(
                field,
                f"has the element type {code}, which GGUF does not know",
                position=self.position - 4,
            )
        length = self.count(f"the length of {field}", _SCALAR_DTYPES[code].itemsize)
        return self._scalars(code, length, field)

    def _scalars(self, code: int, length: int, field: str) -> NDArray[Any]:
        dtype = _SCALAR_DTYPES[code]
        self.need(length * dtype.itemsize, field)
        # Copied, so that a metadata value does not keep the whole file mapped.
        values = np.frombuffer(self.data, dtype, length, self.position).copy()
        if code == _BOOL:
            if values.size and values.max() > 1:
                raise self.error(field, f"is the boolean {int(values.max())}, not 0 or 1")
            values = values.astype(np.bool_)
        self.position += length * dtype.itemsize
        return values
