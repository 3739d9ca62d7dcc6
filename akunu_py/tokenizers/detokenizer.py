"""Token ids to text, step by step, without ever emitting half a character."""

import codecs
from collections.abc import Iterable
from typing import Protocol

from akunu_py.errors import ConfigError


class BytesById(Protocol):
    """The bytes of each token id, empty for control tokens: a list, or what acts like one."""

    def __len__(self) -> int: ...

    def __getitem__(self, id_: int, /) -> bytes: ...


class ByteDetokenizer:
    """Joins the bytes of tokens and gives out what is whole UTF-8. Implements `Detokenizer`.

    Args:
        token_bytes: bytes of each token id, empty for control tokens.
        strip_space: whether one space at the very beginning is dropped: tokenizers in the manner
            of SentencePiece put one in front of a text.

    """

    def __init__(self, token_bytes: BytesById, *, strip_space: bool) -> None:
        self._token_bytes = token_bytes
        self._strip_space = strip_space
        # "replace" gives U+FFFD for bytes that can no longer become a character, and only waits
        # where more bytes could complete one.
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, token_ids: Iterable[int]) -> str:
        """Return the text that these tokens complete.

        Raises ConfigError for an id outside the vocabulary, without taking in any token.
        """
        size = len(self._token_bytes)
        parts = []
        for token in token_ids:
            if not 0 <= token < size:
                raise ConfigError(f"token id {token} is not in the vocabulary of {size} tokens")
            parts.append(self._token_bytes[token])
        data = b"".join(parts)
        if self._strip_space and data:
            self._strip_space = False
            data = data.removeprefix(b" ")
        return self._decoder.decode(data)

    def finish(self) -> str:
        """Return what is left; an incomplete character becomes U+FFFD."""
        return self._decoder.decode(b"", final=True)
