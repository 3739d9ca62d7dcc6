"""A strict GGUF reader over a memory map: every number is checked before it is used.

Crafted files make other readers crash, hang or read wrong bytes: counts of 2**63, alignment 0,
offsets that wrap. Here a count or length cannot exceed what the remaining bytes can hold, so no
file makes the reader allocate or loop beyond a small multiple of its own size.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Self

import numpy as np
from numpy.typing import NDArray

from akunu_py.gguf.cursor import MetadataValue
from akunu_py.gguf.header import TensorInfo
from akunu_py.gguf.mapped_file import MappedFile
from akunu_py.gguf.split import merge_metadata, merge_tensors, open_parts
from akunu_py.system.errors import ModelFormatError

__all__ = ["GGUFFile", "TensorInfo"]


_ENCODERS = ("v.", "a.", "mm.")


class GGUFFile:
    """An open GGUF model: checked metadata and tensor table, with weights still on disk.

    Any part of a split model opens the whole model: `paths` are those of all parts in order, and
    `metadata` is without the keys about parts, and `tensors` without those that are `left_out`.

    The files must not be shortened while they are open. `tensor_bytes` checks it, but the operating
    system ends a process that accesses mapped bytes that are gone.
    """

    def __init__(self, path: Path, parts: list[MappedFile]) -> None:
        self.path = path
        self.paths = tuple(part.path for part in parts)
        self.nbytes = sum(part.size for part in parts)
        self.version = parts[0].header.version
        self.metadata: Mapping[str, MetadataValue] = MappingProxyType(merge_metadata(parts))
        found = merge_tensors(parts)
        # Of encoders of pictures and sounds, which Ollama stores with the model.
        self.left_out = frozenset(name for name in found if name.startswith(_ENCODERS))
        self.tensors: Mapping[str, TensorInfo] = MappingProxyType(
            {name: info for name, info in found.items() if name not in self.left_out}
        )
        self._parts = parts

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Self:
        """Map a file, or all parts of a split model, and read the headers.

        Raises ConfigError for an unreadable path, ModelFormatError, naming the field and byte
        offset, for malformed GGUF or a part that is missing or of another model, and
        UnsupportedQuantizationError for a tensor of a type unknown to this version of akunu.
        """
        path = Path(path)
        parts = open_parts(path)
        try:
            return cls(path, parts)
        except BaseException:
            for part in parts:
                part.close()
            raise

    @property
    def num_weights(self) -> int:
        return sum(info.rows * info.cols for info in self.tensors.values())

    @property
    def is_quantized(self) -> bool:
        return any(info.type.block_elements > 1 for info in self.tensors.values())

    def tensor_bytes(self, name: str) -> NDArray[np.uint8]:
        """Return a tensor's bytes, uint8 [rows, row_bytes], read-only and without copying.

        Raises ModelFormatError for an unknown name or a file that was shortened meanwhile,
        ConfigError after `close`.
        """
        info = self.tensors.get(name)
        if info is None:
            raise ModelFormatError(
                f"{self.path} has no tensor {name!r}: the model is incomplete; download it again"
            )
        return self._parts[info.part].tensor_bytes(info)

    def close(self) -> None:
        """Unmap the files; may be called again.

        A map stays until the last view from `tensor_bytes` is gone.
        """
        for part in self._parts:
            part.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
