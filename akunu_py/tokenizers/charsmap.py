"""SentencePiece's compiled replacements of characters, checked before they are used.

`tokenizer.ggml.precompiled_charsmap` is a trie of texts to replace and a list of replacements.
SentencePiece follows the trie unchecked, so a damaged one would make it read outside its memory.

Layout, little-endian: the size of the trie in bytes (uint32); the trie, in units of uint32; texts,
each followed by a zero byte. The trie is a double array as in darts-clone. A unit has the byte that
leads to it in bits 0 to 7 (with bit 31 in units that hold a value), a flag for a following value in
bit 8, and the distance to its children in bits 10 to 30, times 256 if bit 9 is set. Source:
`llama-vocab.cpp` of llama.cpp (MIT).
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from akunu_py.system.errors import ModelFormatError

_KEY = "tokenizer.ggml.precompiled_charsmap"


def read_charsmap(metadata: Mapping[str, Any]) -> bytes:
    """Return the charsmap of `GGUFFile.metadata`, empty without one.

    Raises ModelFormatError for one that leads outside itself.
    """
    value = metadata.get(_KEY)
    if value is None:
        return b""
    if not isinstance(value, np.ndarray) or value.dtype not in (np.int8, np.uint8):
        raise ModelFormatError(f"{_KEY} is not a list of bytes; convert the model again")
    data = value.tobytes()
    if data and not _is_sound(data):
        raise ModelFormatError(f"{_KEY} is damaged; download or convert the model again")
    return data


def _is_sound(data: bytes) -> bool:
    size = int.from_bytes(data[:4], "little")
    # Each text ends with a zero byte; if the last byte is zero, none runs past the end.
    if len(data) < 4 or size % 4 or not 0 < size < len(data) - 4 or data[-1] != 0:
        return False
    units = np.frombuffer(data, "<u4", count=size // 4, offset=4).astype(np.int64)
    texts = len(data) - 4 - size
    bases = (units >> 10) << ((units & (1 << 9)) >> 6)
    labels = units & ((1 << 31) | 0xFF)
    values = units & ((1 << 31) - 1)
    following = np.arange(256)
    seen = np.zeros(len(units), bool)
    front = np.array([0])
    while len(front):
        seen[front] = True
        # A byte can lead to any unit of the block of 256, which is read to compare its label.
        children = (front ^ bases[front])[:, None] ^ following
        if children.max() >= len(units):
            return False
        leaves = children[(units[front] >> 8) & 1 == 1, 0]
        if len(leaves) and values[leaves].max() >= texts:
            return False
        # Byte 0 leads to values; no text has it.
        real = (labels[children] == following) & (following != 0) & ~seen[children]
        front = np.unique(children[real])
    return True
