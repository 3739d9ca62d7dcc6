"""The vocabulary in a GGUF file's metadata, checked, and the text of its tokens."""

import codecs
import logging
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Protocol

import numpy as np

from akunu_py.system.errors import ConfigError, ModelFormatError
from akunu_py.tokenizers.special_tokens import fill_ids, find_end_ids, find_special_ids

_log = logging.getLogger(__name__)

_ADVICE = "download or convert the model again"
_NEEDED = ("bos", "eos")
_MAX_TOKENS = 1 << 24

_SPECIAL_NAMES = (
    "bos", "eos", "eot", "eom", "unknown", "padding", "seperator", "mask",
    "fim_pre", "fim_suf", "fim_mid", "fim_pad", "fim_rep", "fim_sep",
)  # fmt: skip
# Names in older files.
_OLD_NAMES = {"prefix": "fim_pre", "suffix": "fim_suf", "middle": "fim_mid"}


class TokenType(IntEnum):
    """What a token is for; the numbers are those of `tokenizer.ggml.token_type`."""

    UNDEFINED = 0
    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


# Types whose tokens stand for something other than their text.
_MARKED = (TokenType.CONTROL, TokenType.USER_DEFINED)
# Default special ids by `tokenizer.ggml.model`, with the type each must have.
# Source: `llama-vocab.cpp` of llama.cpp (MIT).
_DEFAULT_IDS: Mapping[str, tuple[tuple[str, int, TokenType], ...]] = {
    "llama": (
        ("bos", 1, TokenType.CONTROL),
        ("eos", 2, TokenType.CONTROL),
        ("unknown", 0, TokenType.UNKNOWN),
    ),
    "t5": (("eos", 1, TokenType.CONTROL), ("unknown", 2, TokenType.UNKNOWN)),
}


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """A checked vocabulary."""

    tokens: tuple[str, ...]  # By id, as the file writes them.
    types: tuple[TokenType, ...]
    special_ids: Mapping[str, int]  # "bos", "eos", "unknown", "fim_pre", ...
    end_ids: frozenset[int]  # Ids that end a reply.
    # Text, id and type of each token that is not NORMAL, by id.
    uncommon: tuple[tuple[str, int, TokenType], ...]

    def texts(self, *types: TokenType) -> list[tuple[str, int]]:
        """Return the tokens of some types other than NORMAL, the longest first.

        llama.cpp searches a text for them in this order. Of tokens with the same text the last id
        counts.
        """
        ids = {text: id_ for text, id_, kind in self.uncommon if kind in types}
        return sorted(ids.items(), key=lambda item: (-len(item[0].encode()), item[1]))

    def text_of(self, name: str) -> str:
        """Return the text of the special token `name`, "" if there is none."""
        id_ = self.special_ids.get(name)
        return "" if id_ is None else self.tokens[id_]


def get_flag(metadata: Mapping[str, Any], key: str, *, default: bool) -> bool:
    """Return the boolean `tokenizer.ggml.<key>`; raise ModelFormatError for another type."""
    value = metadata.get(f"tokenizer.ggml.{key}", default)
    if not isinstance(value, bool):
        raise ModelFormatError(f"tokenizer.ggml.{key} is {value!r}, not a boolean; {_ADVICE}")
    return value


def get_text(metadata: Mapping[str, Any], key: str) -> str | None:
    """Return the text `key`, None if it is missing; raise ModelFormatError for another type."""
    value = metadata.get(key)
    if value is not None and not isinstance(value, str):
        raise ModelFormatError(f"{key} is not a text; {_ADVICE}")
    return value


def get_texts(metadata: Mapping[str, Any], key: str) -> list[str]:
    """Return the list of texts `tokenizer.ggml.<key>`; raise ModelFormatError for another type."""
    value = metadata.get(f"tokenizer.ggml.{key}")
    if not isinstance(value, list) or not value:
        raise ModelFormatError(f"tokenizer.ggml.{key} is missing or not a list of texts; {_ADVICE}")
    return value


def get_scores(metadata: Mapping[str, Any], size: int) -> list[float]:
    """Return the scores of all `size` tokens; raise ModelFormatError if one is unusable."""
    value = metadata.get("tokenizer.ggml.scores")
    if not isinstance(value, np.ndarray) or value.dtype.kind != "f" or value.shape != (size,):
        raise ModelFormatError(
            f"tokenizer.ggml.scores is not a list of {size} numbers, one per token; {_ADVICE}"
        )
    scores: list[float] = value.tolist()
    if not all(map(math.isfinite, scores)):
        raise ModelFormatError(f"tokenizer.ggml.scores has a number that is not finite; {_ADVICE}")
    return scores


def _read_types(metadata: Mapping[str, Any], size: int) -> list[TokenType]:
    value = metadata.get("tokenizer.ggml.token_type")
    if value is None:
        return [TokenType.NORMAL] * size
    if not isinstance(value, np.ndarray) or value.dtype.kind not in "iu" or value.shape != (size,):
        raise ModelFormatError(
            f"tokenizer.ggml.token_type is not a list of {size} whole numbers, one per token; "
            f"{_ADVICE}"
        )
    known = {int(kind): kind for kind in TokenType}
    try:
        return [known[number] for number in value.tolist()]
    except KeyError as error:
        raise ModelFormatError(
            f"tokenizer.ggml.token_type has the unknown type {error.args[0]}; {_ADVICE}"
        ) from None


def _read_special_ids(metadata: Mapping[str, Any], types: Sequence[TokenType]) -> dict[str, int]:
    size = len(types)
    model = str(metadata.get("tokenizer.ggml.model"))
    ids = {
        name: id_
        for name, id_, kind in _DEFAULT_IDS.get(model, ())
        if id_ < size and types[id_] is kind
    }
    for name in (*_OLD_NAMES, *_SPECIAL_NAMES):
        key = f"tokenizer.ggml.{name}_token_id"
        value = metadata.get(key)
        if value is None:
            continue
        if name not in _NEEDED and isinstance(value, int) and not 0 <= value < size:
            # Converters write 2**32 - 1 for a missing padding or separator token.
            _log.warning("%s is %d, not one of %d token ids; it is ignored", key, value, size)
            continue
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < size:
            raise ModelFormatError(f"{key} is {value!r}, not one of {size} token ids; {_ADVICE}")
        ids[_OLD_NAMES.get(name, name)] = value
    return ids


def read_vocabulary(metadata: Mapping[str, Any]) -> Vocabulary:
    """Return the vocabulary in `GGUFFile.metadata`.

    Raises ModelFormatError, naming the key, for lists of different lengths, unknown types and ids
    out of range.
    """
    tokens = get_texts(metadata, "tokens")
    size = len(tokens)
    if size > _MAX_TOKENS:
        raise ModelFormatError(f"tokenizer.ggml.tokens has {size} entries; {_ADVICE}")
    types = _read_types(metadata, size)
    marked = {tokens[id_]: id_ for id_, kind in enumerate(types) if kind in _MARKED}
    special_ids = find_special_ids(marked, _read_special_ids(metadata, types))
    end_ids = find_end_ids(marked, special_ids)
    for id_ in end_ids | {id_ for _, id_ in fill_ids(special_ids)}:
        # Converters often mark them as user-defined. Then they would be shown to the user, and a
        # user's text could contain them.
        if types[id_] is TokenType.USER_DEFINED:
            types[id_] = TokenType.CONTROL
    uncommon = tuple(
        (tokens[id_], id_, kind) for id_, kind in enumerate(types) if kind is not TokenType.NORMAL
    )
    return Vocabulary(tuple(tokens), tuple(types), special_ids, frozenset(end_ids), uncommon)


# llama.cpp's converter writes these for rows of the embedding without a token; folders of the same
# model have no text there.
_PADDING = re.compile(r"\[PAD\d+\]|")


def common_ids(target: Sequence[str], draft: Sequence[str]) -> int:
    """Return how many ids, from 0 on, have the same text in two vocabularies.

    `target` and `draft` are `Tokenizer.token_texts()`. Padding at the end is ignored: models of one
    family pad their embeddings to different sizes. One vocabulary may also be longer than the
    other, as with tokens added by a fine-tune.

    Raises ConfigError, naming the first id with different texts.
    """
    size = min(_without_padding(target), _without_padding(draft))
    for token in range(size):
        padding = _PADDING.fullmatch(target[token]) and _PADDING.fullmatch(draft[token])
        if target[token] != draft[token] and not padding:
            raise ConfigError(
                f"the draft model has another vocabulary: id {token} is {target[token]!r} for the "
                f"model and {draft[token]!r} for the draft model; choose a draft model of the same "
                "family"
            )
    if size == 0:
        raise ConfigError(
            "the draft model and the model share no token; choose a draft model of the same family"
        )
    return size


def _without_padding(texts: Sequence[str]) -> int:
    """Return the number of texts up to the last one that is not padding."""
    size = len(texts)
    while size and _PADDING.fullmatch(texts[size - 1]):
        size -= 1
    return size


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
