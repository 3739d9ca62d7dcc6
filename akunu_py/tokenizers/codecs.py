"""The codec for each `tokenizer.ggml.model`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from akunu_py.system.errors import ConfigError, ModelFormatError
from akunu_py.tokenizers.bpe import BPECodec
from akunu_py.tokenizers.detokenizer import TokenBytes
from akunu_py.tokenizers.sentencepiece_model import ModelKind
from akunu_py.tokenizers.split_rules import split_rule
from akunu_py.tokenizers.spm import SPMCodec
from akunu_py.tokenizers.vocabulary import (
    Vocabulary,
    get_scores,
    get_text,
    get_texts,
    read_vocabulary,
)

_MERGING = ("gpt2", "gemma4")
_KINDS = (*_MERGING, "llama", "t5")
_KNOWN = (
    "akunu knows 'llama' (SentencePiece), 'gpt2' (byte-level BPE), 'gemma4' (BPE of characters) "
    "and 't5' (unigram): use another model"
)
_UNKNOWN: Mapping[str, str] = {
    "no_vocab": "the file has no vocabulary, so text cannot go in or out",
    "none": "the file has no vocabulary, so text cannot go in or out",
    "bert": "WordPiece is for models that embed text, which akunu does not run",
    "whitespace": "it is for models that embed text, which akunu does not run",
    "hybriddna": "sequences of DNA are not built in",
    "rwkv": "RWKV's own vocabulary is not built in",
    "plamo2": "PLaMo 2's own vocabulary is not built in",
}


class Codec(Protocol):
    """Text without control tokens to ids, and the bytes of each id."""

    token_bytes: TokenBytes  # Bytes of each token id, empty for control, unknown and unused tokens.
    strip_space: bool  # Whether decoding drops the space that encoding puts in front.

    def encode(self, text: str) -> Sequence[int]:
        """Return the ids of a text between special tokens."""


@dataclass(frozen=True, slots=True)
class BeginRule:
    """Whether texts begin with a begin token."""

    usually: bool  # Whether they do if the file does not say.
    always: bool = False  # Whether they do whatever the file says.
    required: bool = False  # Whether a vocabulary without the token is damaged.


def check_vocabulary(metadata: Mapping[str, Any]) -> None:
    """Check the vocabulary in `GGUFFile.metadata`, without the time that a codec takes to make.

    Raises ModelFormatError as `make_codec` does, except for merges that do not fit.
    """
    vocabulary = read_vocabulary(metadata)
    if _known_kind(metadata) in _MERGING:
        get_texts(metadata, "merges")
    else:
        get_scores(metadata, len(vocabulary.tokens))


def _known_kind(metadata: Mapping[str, Any]) -> str:
    """Return `tokenizer.ggml.model`; raise ModelFormatError for an unknown kind."""
    model = get_text(metadata, "tokenizer.ggml.model")
    if model in _KINDS:
        return str(model)
    reason = _UNKNOWN.get(model or "")
    raise ModelFormatError(
        f"tokenizer.ggml.model is {model!r}; {reason + '. ' if reason else ''}{_KNOWN}"
    )


def make_codec(
    metadata: Mapping[str, Any], vocabulary: Vocabulary, pre_tokenizer: str | None
) -> tuple[Codec, BeginRule]:
    """Return the codec of a vocabulary, and whether its texts begin with a begin token.

    `pre_tokenizer` replaces `tokenizer.ggml.pre`. Raises ModelFormatError for an unknown kind and
    for damaged metadata, ConfigError for a `pre_tokenizer` that is unknown or does not apply to the
    vocabulary.
    """
    model = _known_kind(metadata)
    if model not in _MERGING and pre_tokenizer is not None:
        raise ConfigError(
            f"a vocabulary of the kind {model!r} has no pre-tokenizer; leave --pre-tokenizer out"
        )
    if model == "llama":
        codec = SPMCodec(metadata, vocabulary, ModelKind.BPE)
        return codec, BeginRule(usually=True, required=True)
    if model == "t5":
        return SPMCodec(metadata, vocabulary, ModelKind.UNIGRAM), BeginRule(usually=False)
    # Gemma 4's files need no name; another one is ignored.
    name = "gemma4" if model == "gemma4" else get_text(metadata, "tokenizer.ggml.pre")
    rule = split_rule(pre_tokenizer or name, chosen=pre_tokenizer is not None)
    begins = BeginRule(usually=rule.add_bos, always=rule.always_bos)
    return BPECodec(metadata, vocabulary, rule), begins
