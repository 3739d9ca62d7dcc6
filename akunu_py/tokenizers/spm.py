"""SentencePiece vocabularies, through the `sentencepiece` package.

`tokenizer.ggml.model` "llama" merges the pair with the best score first (BPE); "t5" takes the
pieces with the best sum of scores (unigram).
"""

import re
from collections.abc import Mapping
from typing import Any

import sentencepiece

from akunu_py.system.errors import ModelFormatError
from akunu_py.tokenizers.charsmap import read_charsmap
from akunu_py.tokenizers.detokenizer import TokenBytes
from akunu_py.tokenizers.sentencepiece_model import ModelKind, Normalization, build_model
from akunu_py.tokenizers.vocabulary import TokenType, Vocabulary, get_flag, get_scores

_SPACE = "\u2581"
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
        self.token_bytes = TokenBytes(vocabulary, byte_ids, _decode)
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


def _decode(text: str) -> bytes:
    return text.replace(_SPACE, " ").encode()


def decode_piece(text: str) -> bytes:
    """Return the bytes of a piece as the vocabulary writes it: <0x0A> is one byte."""
    match = _BYTE.fullmatch(text)
    return bytes((int(match[1], 16),)) if match else _decode(text)


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
