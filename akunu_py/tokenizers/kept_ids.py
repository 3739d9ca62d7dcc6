"""Token ids of long texts that were tokenized lately.

A conversation comes again with each of its turns, and its tools and earlier messages are texts that
were tokenized before.
"""

import hashlib
import threading
from array import array
from collections.abc import Callable, Sequence

from akunu_py.values.recent_texts import RecentTexts

_LONG = 256
"""Characters of a text from which on looking it up takes less time than tokenizing it."""


class KeptIds:
    """Tokenizes as `encode` does; any thread may call it."""

    def __init__(self, encode: Callable[[str], Sequence[int]]) -> None:
        self._encode = encode
        self._kept = RecentTexts[bytes]()
        self._lock = threading.Lock()

    def __call__(self, text: str) -> Sequence[int]:
        if len(text) < _LONG:
            return self._encode(text)
        key = hashlib.sha256(text.encode()).digest()
        with self._lock:
            kept = self._kept.get(key)
        if kept is not None:
            return array("i", kept).tolist()
        ids = self._encode(text)
        with self._lock:
            self._kept.keep(key, array("i", ids).tobytes())
        return ids
