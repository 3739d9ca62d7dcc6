"""Texts that were used lately, within a bound."""

import contextlib
from collections import OrderedDict
from typing import Generic, TypeVar

_Key = TypeVar("_Key")


class RecentTexts(Generic[_Key]):
    """Texts by key; where they are too many or too long, the least recently used go first.

    One thread keeps texts; any may look for one.

    Args:
        most_bytes: size of all texts together.
        most: number of texts.

    """

    def __init__(self, most_bytes: int = 16 << 20, most: int = 10_000) -> None:
        self._most_bytes = most_bytes
        self._most = most
        self._texts: OrderedDict[_Key, bytes] = OrderedDict()
        self._num_bytes = 0

    def keep(self, key: _Key, text: bytes) -> None:
        """Keep a text, in the place of an earlier one of this key, unless it alone is too long."""
        self.drop(key)
        if len(text) > self._most_bytes:
            return
        self._texts[key] = text
        self._num_bytes += len(text)
        while self._num_bytes > self._most_bytes or len(self._texts) > self._most:
            self.drop(next(iter(self._texts)))

    def get(self, key: _Key) -> bytes | None:
        """Return the text of a key; None if it is not kept."""
        with contextlib.suppress(KeyError):
            self._texts.move_to_end(key)
        return self._texts.get(key)

    def drop(self, key: _Key) -> None:
        """Forget a text, if it is kept."""
        self._num_bytes -= len(self._texts.pop(key, b""))
