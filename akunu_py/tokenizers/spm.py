"""Vocabularies in the manner of SentencePiece (`tokenizer.ggml.model` "llama").

GGUF keeps pieces, scores and types but no SentencePiece model, so one is put together here and
given to the `sentencepiece` package: BPE that merges the pair with the best score first.
"""

import re
import struct
from collections.abc import Mapping
from typing import Any

import sentencepiece

from akunu_py.errors import ModelFormatError
from akunu_py.tokenizers.vocabulary import TokenType, Vocabulary, get_flag, get_scores

_SPACE = "\u2581"
_BYTE = re.compile(r"<0x([0-9A-F]{2})>")
_BPE = 2  # TrainerSpec.ModelType

# Field numbers of `sentencepiece_model.proto`. Written by hand: the package's own generated
# module needs protobuf, which sentencepiece does not bring along.
_PIECES, _TRAINER, _NORMALIZER = 1, 2, 3
_PIECE_TEXT, _PIECE_SCORE, _PIECE_TYPE = 1, 2, 3
_MODEL_TYPE, _BYTE_FALLBACK, _UNKNOWN_ID, _BEGIN_ID, _END_ID = 3, 35, 40, 41, 42
_UNKNOWN_PIECE = 45
_NAME, _DUMMY_PREFIX, _REMOVE_SPACES, _ESCAPE_SPACES = 1, 3, 4, 5


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


class SPMCodec:
    """Text without control tokens to ids, and the bytes of each id.

    Attributes:
        token_bytes: bytes of each token id, empty for control, unknown and unused tokens.
        strip_space: whether decoding drops the one space that encoding puts in front.

    Raises ModelFormatError for a vocabulary that cannot be used.

    """

    def __init__(self, metadata: Mapping[str, Any], vocabulary: Vocabulary) -> None:
        if "tokenizer.ggml.token_type" not in metadata:
            raise ModelFormatError(
                "tokenizer.ggml.token_type is missing, without which bytes and control tokens "
                "cannot be told from text; convert the model again"
            )
        scores = get_scores(metadata, len(vocabulary.tokens))
        self.strip_space = get_flag(metadata, "add_space_prefix", default=True)
        byte_ids = _byte_ids(vocabulary)
        self.token_bytes = _token_bytes(vocabulary, byte_ids)
        model = _model(vocabulary, scores, byte_fallback=bool(byte_ids))
        try:
            self._processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        except (RuntimeError, ValueError, OSError) as error:
            raise ModelFormatError(
                f"SentencePiece refuses the vocabulary ({error}); convert the model again"
            ) from error

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text that begins the whole or follows a special token.

        There a space goes in front, as llama.cpp does; other texts do not occur, since only
        special tokens divide one.
        """
        if self.strip_space:
            text = " " + text
        ids: list[int] = self._processor.EncodeAsIds(text)
        return ids


def _byte_ids(vocabulary: Vocabulary) -> dict[int, int]:
    """Return token id -> byte value of the byte tokens: all 256 or none."""
    ids: dict[int, int] = {}
    for id_, (text, kind) in enumerate(zip(vocabulary.tokens, vocabulary.types, strict=True)):
        if kind is TokenType.BYTE:
            match = _BYTE.fullmatch(text)
            if match is None:
                raise ModelFormatError(
                    f"token {id_} is a byte token with the text {text!r}, not <0x00> to <0xFF>; "
                    "download or convert the model again"
                )
            ids[id_] = int(match[1], 16)
    if ids and len(set(ids.values())) != 256:
        raise ModelFormatError(
            f"the vocabulary has {len(set(ids.values()))} of 256 byte tokens; convert the model "
            "again"
        )
    return ids


def _token_bytes(vocabulary: Vocabulary, byte_ids: Mapping[int, int]) -> list[bytes]:
    shown = (TokenType.NORMAL, TokenType.USER_DEFINED, TokenType.UNDEFINED)
    table = [
        text.replace(_SPACE, " ").encode() if kind in shown else b""
        for text, kind in zip(vocabulary.tokens, vocabulary.types, strict=True)
    ]
    for id_, byte in byte_ids.items():
        table[id_] = bytes([byte])
    return table


def _model(vocabulary: Vocabulary, scores: list[float], *, byte_fallback: bool) -> bytes:
    """Return a serialised `ModelProto`."""
    tokens = vocabulary.tokens
    unknown = vocabulary.special_ids.get("unknown", 0)
    last = {text: id_ for id_, text in enumerate(tokens)}
    parts = []
    for id_, (text, kind, score) in enumerate(zip(tokens, vocabulary.types, scores, strict=True)):
        wanted = TokenType.NORMAL if kind is TokenType.UNDEFINED else kind
        name = text
        if id_ == unknown:
            wanted = TokenType.UNKNOWN
        elif kind is TokenType.UNKNOWN:
            wanted = TokenType.UNUSED  # SentencePiece allows one unknown piece only
        if not text or (last[text] != id_):
            # SentencePiece wants every piece to have a text of its own: the last id keeps it, as
            # in llama.cpp, and the others get one that no text can produce.
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
        _number(_MODEL_TYPE, _BPE)
        + _number(_BYTE_FALLBACK, byte_fallback)
        + _number(_UNKNOWN_ID, unknown)
        + _number(_BEGIN_ID, -1)
        + _number(_END_ID, -1)
        + _block(_UNKNOWN_PIECE, unknown_piece.encode())
    )
    # GGUF texts are taken as they are: no normalisation, no spaces removed. The space in front is
    # put there by `encode`, since it belongs after special tokens too.
    normalizer = (
        _block(_NAME, b"identity")
        + _number(_DUMMY_PREFIX, 0)
        + _number(_REMOVE_SPACES, 0)
        + _number(_ESCAPE_SPACES, 1)
    )
    parts += [_block(_TRAINER, trainer), _block(_NORMALIZER, normalizer)]
    return b"".join(parts)
