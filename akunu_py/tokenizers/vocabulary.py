"""The vocabulary in a GGUF file's metadata, checked: tokens, their types, and the special ids."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np

from akunu_py.errors import ModelFormatError

_ADVICE = "download or convert the model again"
_MAX_TOKENS = 1 << 24

# Tokens that end a reply whatever the metadata says: converters name one `eos_token_id`, while
# chat models end a turn with another. Source: llama.cpp, `llama-vocab.cpp` (MIT).
_END_TEXTS = frozenset(
    (
        "<|eot_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<|flush|>", "<|calls|>",
        "<end_of_turn>", "<|endoftext|>", "</s>", "<|eom_id|>", "<EOT>", "_<EOT>", "[EOT]",
        "[EOS]", "<|end_of_text|>", "<end_of_utterance>", "<eos>", "<turn|>", "<|tool_response>",
        "<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<|fim_repo|>", "<|repo_name|>", "<fim-repo>",
        "<|file_sep|>",
    )
)  # fmt: skip
_END_KEYS = ("eos", "eot", "eom", "fim_pad", "fim_rep", "fim_sep")
_OTHER_KEYS = ("bos", "unknown", "padding", "seperator", "mask", "fim_pre", "fim_suf", "fim_mid")


class TokenType(IntEnum):
    """What a token is for; the numbers are those of `tokenizer.ggml.token_type`."""

    UNDEFINED = 0
    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """A checked vocabulary.

    Attributes:
        tokens: text of each id, as the file writes it.
        types: of each id.
        special_ids: the named ids of the metadata: "bos", "eos", "unknown", ...
        end_ids: the ids that end a reply.

    """

    tokens: tuple[str, ...]
    types: tuple[TokenType, ...]
    special_ids: Mapping[str, int]
    end_ids: frozenset[int]

    def texts(self, *types: TokenType) -> list[tuple[str, int]]:
        """Return the tokens of some types, the longest first.

        That is the order in which llama.cpp looks for them in a text. Of tokens with one text the
        last id stands for all.
        """
        ids = {
            text: id_
            for id_, (text, kind) in enumerate(zip(self.tokens, self.types, strict=True))
            if kind in types
        }
        return sorted(ids.items(), key=lambda item: (-len(item[0].encode()), item[1]))


def get_flag(metadata: Mapping[str, Any], key: str, *, default: bool) -> bool:
    """Return the boolean `tokenizer.ggml.<key>`; raise ModelFormatError for another type."""
    value = metadata.get(f"tokenizer.ggml.{key}", default)
    if not isinstance(value, bool):
        raise ModelFormatError(f"tokenizer.ggml.{key} is {value!r}, not a boolean; {_ADVICE}")
    return value


def get_text(metadata: Mapping[str, Any], key: str) -> str | None:
    """Return the text `key`, None where it is missing; raise ModelFormatError for another type."""
    value = metadata.get(key)
    if value is not None and not isinstance(value, str):
        raise ModelFormatError(f"{key} is not a text; {_ADVICE}")
    return value


def get_texts(metadata: Mapping[str, Any], key: str) -> list[str]:
    """Return the list of texts `tokenizer.ggml.<key>`; raise ModelFormatError for another type."""
    value = metadata.get(f"tokenizer.ggml.{key}")
    if not isinstance(value, list) or not value:
        raise ModelFormatError(f"tokenizer.ggml.{key} is missing or no list of texts; {_ADVICE}")
    return value


def get_scores(metadata: Mapping[str, Any], size: int) -> list[float]:
    """Return the score of each of `size` tokens; raise ModelFormatError where one is unusable."""
    value = metadata.get("tokenizer.ggml.scores")
    if not isinstance(value, np.ndarray) or value.dtype.kind != "f" or value.shape != (size,):
        raise ModelFormatError(
            f"tokenizer.ggml.scores is not a list of {size} numbers, one a token; {_ADVICE}"
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
            f"tokenizer.ggml.token_type is not a list of {size} whole numbers, one a token; "
            f"{_ADVICE}"
        )
    known = {int(kind): kind for kind in TokenType}
    try:
        return [known[number] for number in value.tolist()]
    except KeyError as error:
        raise ModelFormatError(
            f"tokenizer.ggml.token_type has the unknown type {error.args[0]}; {_ADVICE}"
        ) from None


def _read_special_ids(metadata: Mapping[str, Any], size: int) -> dict[str, int]:
    ids: dict[str, int] = {}
    for name in (*_END_KEYS, *_OTHER_KEYS):
        key = f"tokenizer.ggml.{name}_token_id"
        value = metadata.get(key)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < size:
            raise ModelFormatError(f"{key} is {value!r}, not one of {size} token ids; {_ADVICE}")
        ids[name] = value
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
    special_ids = _read_special_ids(metadata, size)
    end_ids = {special_ids[name] for name in _END_KEYS if name in special_ids}
    # Only tokens set apart from text: in Qwen's vocabulary "</s>" is ordinary text.
    marked = (TokenType.CONTROL, TokenType.USER_DEFINED)
    for id_, text in enumerate(tokens):
        if text in _END_TEXTS and types[id_] in marked:
            end_ids.add(id_)
    texts = {tokens[id_]: id_ for id_ in end_ids}
    if "<|end|>" in texts and (
        {"<|return|>", "<|call|>"} <= texts.keys() or {"<|flush|>", "<|calls|>"} <= texts.keys()
    ):
        # With these the model ends its analysis, not its reply, by <|end|> (gpt-oss, Solar).
        end_ids.discard(texts["<|end|>"])
    for id_ in end_ids:
        # Converters often mark them as user-defined; as text they would be shown to the user.
        if types[id_] is TokenType.USER_DEFINED:
            types[id_] = TokenType.CONTROL
    return Vocabulary(tuple(tokens), tuple(types), special_ids, frozenset(end_ids))
