"""A SentencePiece model built from a GGUF vocabulary.

GGUF keeps pieces, scores and types but not the SentencePiece model, which the `sentencepiece`
package needs. Its format is protobuf, written here by hand: the package's generated module needs
protobuf, which is not among its dependencies. Source of the field numbers:
`sentencepiece_model.proto` of SentencePiece (Apache 2.0).
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

from akunu_py.tokenizers.vocabulary import TokenType, Vocabulary

_PIECES, _TRAINER, _NORMALIZER = 1, 2, 3
_PIECE_TEXT, _PIECE_SCORE, _PIECE_TYPE = 1, 2, 3
_MODEL_TYPE, _BYTE_FALLBACK, _UNKNOWN_ID, _BEGIN_ID, _END_ID = 3, 35, 40, 41, 42
_UNKNOWN_PIECE = 45
_NAME, _CHARSMAP, _DUMMY_PREFIX, _REMOVE_SPACES, _ESCAPE_SPACES = 1, 2, 3, 4, 5


class ModelKind(IntEnum):
    """How a text is cut into pieces; the numbers are those of `TrainerSpec.ModelType`."""

    UNIGRAM = 1
    BPE = 2


@dataclass(frozen=True, slots=True)
class Normalization:
    """Changes of a text before it is cut into pieces."""

    charsmap: bytes  # SentencePiece's compiled replacements, may be empty.
    add_prefix: bool  # Whether to put a space in front of a text.
    remove_spaces: bool  # Whether to merge runs of spaces and drop them at the ends.


def _varint(value: int) -> bytes:
    """Encode a number in protobuf's base 128; negative ones as 64-bit two's complement."""
    value &= (1 << 64) - 1
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _block(field: int, content: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(content)) + content


def _float(field: int, value: float) -> bytes:
    return _varint(field << 3 | 5) + struct.pack("<f", value)


def build_model(
    vocabulary: Vocabulary,
    scores: Sequence[float],
    kind: ModelKind,
    normalization: Normalization,
    *,
    byte_fallback: bool,
) -> bytes:
    """Return a serialised `ModelProto` with the ids of the vocabulary.

    `scores` has a score for each token. `byte_fallback` needs all 256 bytes in the vocabulary.
    """
    tokens = vocabulary.tokens
    unknown = vocabulary.special_ids.get("unknown", 0)
    last = {text: id_ for id_, text in enumerate(tokens)}
    parts = []
    for id_, (text, type_, score) in enumerate(zip(tokens, vocabulary.types, scores, strict=True)):
        wanted = TokenType.NORMAL if type_ is TokenType.UNDEFINED else type_
        name = text
        if id_ == unknown:
            wanted = TokenType.UNKNOWN
        elif type_ is TokenType.UNKNOWN:
            wanted = TokenType.UNUSED  # SentencePiece allows only one unknown piece
        if not text or (last[text] != id_):
            # SentencePiece needs a different text for every piece: the last id keeps it, as in
            # llama.cpp, and the others get one that no text can produce.
            name, wanted = f"\ufdd0{id_}", wanted if id_ == unknown else TokenType.CONTROL
        piece = (
            _block(_PIECE_TEXT, name.encode())
            + _float(_PIECE_SCORE, score)
            + _number(_PIECE_TYPE, wanted)
        )
        parts.append(_block(_PIECES, piece))
        if id_ == unknown:
            unknown_piece = name
    trainer = (
        _number(_MODEL_TYPE, kind)
        + _number(_BYTE_FALLBACK, byte_fallback)
        + _number(_UNKNOWN_ID, unknown)
        + _number(_BEGIN_ID, -1)
        + _number(_END_ID, -1)
        + _block(_UNKNOWN_PIECE, unknown_piece.encode())
    )
    normalizer = (
        _block(_NAME, b"gguf" if normalization.charsmap else b"identity")
        + _block(_CHARSMAP, normalization.charsmap)
        + _number(_DUMMY_PREFIX, normalization.add_prefix)
        + _number(_REMOVE_SPACES, normalization.remove_spaces)
        + _number(_ESCAPE_SPACES, 1)
    )
    parts += [_block(_TRAINER, trainer), _block(_NORMALIZER, normalizer)]
    return b"".join(parts)
