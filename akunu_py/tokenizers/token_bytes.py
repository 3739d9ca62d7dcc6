"""The bytes that each token stands for, worked out when they are first asked for."""

from collections.abc import Callable, Mapping

from akunu_py.tokenizers.vocabulary import TokenType, Vocabulary

_SILENT = (TokenType.CONTROL, TokenType.UNKNOWN, TokenType.UNUSED)


class TokenBytes:
    """Bytes by token id: empty for control, unknown and unused tokens.

    A reply uses few of a vocabulary's tokens, and a loaded model should be ready at once.

    Args:
        vocabulary: whose tokens.
        byte_ids: token id -> byte value, of tokens that are one byte.
        decode: the text of a NORMAL token -> its bytes.
        raw: whether user-defined tokens stand for their text as it is written.

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
        """Return the number of ids."""
        return len(self._tokens)

    def __getitem__(self, id_: int) -> bytes:
        """Return the bytes of a token; raises IndexError outside 0 to `len(self) - 1`."""
        found = self._known.get(id_)
        if found is None:
            if id_ < 0:
                raise IndexError(id_)
            found = self._known[id_] = self._decode(self._tokens[id_])
        return found
