"""Token ids to their bytes, and bytes to text step by step, never half a character."""

import codecs
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from akunu_py.system.errors import ConfigError
from akunu_py.tokenizers.vocabulary import TokenType, Vocabulary

_SILENT = (TokenType.CONTROL, TokenType.UNKNOWN, TokenType.UNUSED)


class BytesById(Protocol):
    """The bytes of each token id, empty for control tokens; a list or similar."""

    def __len__(self) -> int: ...

    def __getitem__(self, id_: int, /) -> bytes: ...


class TokenBytes:
    """Bytes by token id, empty for control, unknown and unused tokens.

    They are computed when first asked for: a reply uses few of a vocabulary's tokens, and a loaded
    model should be ready at once.

    Args:
        vocabulary: the vocabulary of the tokens.
        byte_ids: token id -> byte value of the tokens that are one byte.
        decode: the text of a NORMAL token -> its bytes.
        raw: whether user-defined tokens stand for their text as written.

    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        byte_ids: Mapping[int, int],
        decode: Callable[[str], bytes],
        *,
        raw: bool = False,
    ) -> None:
        self._tokens = vocabulary.tokens
        self._decode = decode
        self._known = {id_: bytes((byte,)) for id_, byte in byte_ids.items()}
        for text, id_, kind in vocabulary.uncommon:
            if kind in _SILENT:
                self._known[id_] = b""
            elif kind is TokenType.USER_DEFINED and raw:
                self._known[id_] = text.encode()

    def __len__(self) -> int:
        return len(self._tokens)

    def __getitem__(self, id_: int) -> bytes:
        """Return the bytes of a token; raise IndexError outside 0 to `len(self) - 1`."""
        found = self._known.get(id_)
        if found is None:
            if id_ < 0:
                raise IndexError(id_)
            found = self._known[id_] = self._decode(self._tokens[id_])
        return found


class ByteDetokenizer:
    """Joins the bytes of tokens and returns whole UTF-8 characters. Implements `Detokenizer`.

    Args:
        token_bytes: bytes of each token id, empty for control tokens.
        strip_space: whether to drop one space at the very beginning, which tokenizers like
            SentencePiece put in front of a text.

    """

    def __init__(self, token_bytes: BytesById, *, strip_space: bool) -> None:
        self._token_bytes = token_bytes
        self._strip_space = strip_space
        # "replace" gives U+FFFD for bytes that can no longer become a character, and waits while
        # further bytes could complete one.
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, token_ids: Iterable[int]) -> str:
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
        return self._decoder.decode(b"", final=True)
