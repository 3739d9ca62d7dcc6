"""SentencePiece vocabularies, through the `sentencepiece` package.

`tokenizer.ggml.model` "llama" merges the pair with the best score first (BPE); "t5" takes the
pieces with the best sum of scores (unigram).

`tokenizer.ggml.precompiled_charsmap` is a trie of texts to replace and a list of replacements.
SentencePiece follows the trie unchecked, so a damaged one would make it read outside its memory,
and it is checked here. Layout, little-endian: the size of the trie in bytes (uint32); the trie, in
units of uint32; texts, each followed by a zero byte. The trie is a double array as in darts-clone.
A unit has the byte that leads to it in bits 0 to 7 (with bit 31 in units that hold a value), a flag
for a following value in bit 8, and the distance to its children in bits 10 to 30, times 256 if bit
9 is set. Source: `llama-vocab.cpp` of llama.cpp (MIT).

GGUF keeps pieces, scores and types but not the SentencePiece model, which the package needs. Its
format is protobuf, written here by hand: the package's generated module needs protobuf, which is
not among its dependencies. Source of the field numbers: `sentencepiece_model.proto` of
SentencePiece (Apache 2.0).
"""

import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
import sentencepiece

from akunu_py.system.errors import ModelFormatError
from akunu_py.tokenizers.vocabulary import TokenBytes, TokenType, Vocabulary, get_flag, get_scores

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


SPACE = "\u2581"
_BYTE = re.compile(r"<0x([0-9A-F]{2})>")


class SPMCodec:
    """The `Codec` of SentencePiece. Raises ModelFormatError for an unusable vocabulary."""

    def __init__(
        self, metadata: Mapping[str, Any], vocabulary: Vocabulary, kind: ModelKind
    ) -> None:
        if "tokenizer.ggml.token_type" not in metadata:
            raise ModelFormatError(
                "tokenizer.ggml.token_type is missing, so bytes and control tokens cannot be "
                "distinguished from text; convert the model again"
            )
        scores = get_scores(metadata, len(vocabulary.tokens))
        unigram = kind is ModelKind.UNIGRAM
        self.strip_space = get_flag(metadata, "add_space_prefix", default=not unigram)
        byte_ids = read_byte_ids(vocabulary)
        self.token_bytes = TokenBytes(vocabulary, byte_ids, decode_spaces)
        model = build_model(
            vocabulary,
            scores,
            kind,
            # The BPE kind leaves a text unchanged whatever the file says, as in llama.cpp.
            Normalization(
                charsmap=read_charsmap(metadata) if unigram else b"",
                add_prefix=self.strip_space,
                remove_spaces=unigram
                and get_flag(metadata, "remove_extra_whitespaces", default=False),
            ),
            byte_fallback=bool(byte_ids),
        )
        try:
            self._processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        except (RuntimeError, ValueError, OSError) as error:
            raise ModelFormatError(
                f"SentencePiece refuses the vocabulary ({error}); convert the model again"
            ) from error

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text that begins the whole or follows a special token.

        A space goes in front there, as in llama.cpp. Other texts do not occur, since only special
        tokens divide a text.
        """
        ids: list[int] = self._processor.EncodeAsIds(text)
        return ids


def decode_spaces(text: str) -> bytes:
    """Return the bytes of a text with spaces written as in SentencePiece."""
    return text.replace(SPACE, " ").encode()


def decode_piece(text: str) -> bytes:
    """Return the bytes of a piece as the vocabulary writes it: <0x0A> is one byte."""
    match = _BYTE.fullmatch(text)
    return bytes((int(match[1], 16),)) if match else decode_spaces(text)


def read_byte_ids(vocabulary: Vocabulary) -> dict[int, int]:
    """Return token id -> byte value of the byte tokens: all 256 or none.

    Raises ModelFormatError for other texts than <0x00> to <0xFF> and for missing ones.
    """
    ids: dict[int, int] = {}
    for text, id_, kind in vocabulary.uncommon:
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
