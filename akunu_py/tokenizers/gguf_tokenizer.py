"""The tokenizer of a GGUF file: special tokens around the codec for its `tokenizer.ggml.model`."""

import hashlib
import threading
from array import array
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from akunu_py.protocols import TemplateVariable
from akunu_py.system.errors import ConfigError, ModelFormatError
from akunu_py.tokenizers.bpe import BPECodec, split_rule
from akunu_py.tokenizers.chat_template import read_templates
from akunu_py.tokenizers.special_tokens import SpecialTextGuard, fill_ids
from akunu_py.tokenizers.spm import ModelKind, SPMCodec
from akunu_py.tokenizers.vocabulary import (
    ByteDetokenizer,
    TokenBytes,
    TokenType,
    Vocabulary,
    get_flag,
    get_scores,
    get_text,
    get_texts,
    read_vocabulary,
)
from akunu_py.values.messages import GivenMessage, GivenTool
from akunu_py.values.recent_texts import RecentTexts

_LONG = 256
"""Characters of a text from which on looking it up takes less time than tokenizing it."""


class KeptIds:
    """Tokenizes as `encode` does; any thread may call it."""

    def __init__(self, encode: Callable[[str], Sequence[int]]) -> None:
        self._encode = encode
        self._kept = RecentTexts[bytes]()
        self._lock = threading.Lock()

    def __call__(self, text: str) -> Sequence[int]:
        if len(text) < _LONG:
            return self._encode(text)
        key = hashlib.sha256(text.encode()).digest()
        with self._lock:
            kept = self._kept.get(key)
        if kept is not None:
            return array("i", kept).tolist()
        ids = self._encode(text)
        with self._lock:
            self._kept.keep(key, array("i", ids).tobytes())
        return ids


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
            f"a vocabulary of the kind {model!r} has no pre-tokenizer; leave pre_tokenizer out"
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


_NOT_TEXT = (TokenType.CONTROL, TokenType.UNKNOWN)
_C_SPACES = " \t\n\v\f\r"


class GGUFTokenizer:
    """Text to token ids and back, as in llama.cpp for the same file. Implements `Tokenizer`.

    An instance may be shared between threads; its detokenizers may not.

    Args:
        metadata: `GGUFFile.metadata`.
        pre_tokenizer: how text is split, in place of `tokenizer.ggml.pre`; one of
            `split_rule_names`.

    Raises ModelFormatError, naming the key, for a vocabulary that is damaged or of an unknown kind;
    ConfigError for a `pre_tokenizer` that is unknown or does not apply.

    """

    def __init__(self, metadata: Mapping[str, Any], *, pre_tokenizer: str | None = None) -> None:
        self._vocabulary = vocabulary = read_vocabulary(metadata)
        self._codec, begins = make_codec(metadata, vocabulary, pre_tokenizer)
        self._bos_id = vocabulary.special_ids.get("bos")
        stated = get_flag(metadata, "add_bos_token", default=begins.usually)
        self._add_bos = stated or begins.always
        if self._add_bos and self._bos_id is None:
            if begins.required or "tokenizer.ggml.add_bos_token" in metadata:
                raise ModelFormatError(
                    "texts should begin with a begin token, but tokenizer.ggml.bos_token_id is "
                    "missing; convert the model again"
                )
            self._add_bos = False
        self._user_defined = vocabulary.texts(TokenType.USER_DEFINED)
        self._special = vocabulary.texts(
            TokenType.CONTROL, TokenType.USER_DEFINED, TokenType.UNKNOWN
        )
        self._strips = ids_that_strip(metadata, self._special)
        self._guard = SpecialTextGuard(
            text for text, _ in vocabulary.texts(TokenType.CONTROL, TokenType.UNKNOWN)
        )
        self._templates = read_templates(metadata, vocabulary)
        self._kept_ids = KeptIds(self._codec.encode)

    @property
    def vocabulary_size(self) -> int:
        return len(self._vocabulary.tokens)

    @property
    def end_ids(self) -> frozenset[int]:
        return self._vocabulary.end_ids

    @property
    def special_ids(self) -> Mapping[str, int]:
        """Return the named ids: "bos", "eos", "eot", "eom", "unknown", "padding", "fim_pre", ..."""
        return dict(self._vocabulary.special_ids)

    @property
    def fim_ids(self) -> Mapping[str, int]:
        """Return the tokens for filling in code: "pre", "suf", "mid", "pad", "rep", "sep" -> id.

        Most vocabularies have none.
        """
        return dict(fill_ids(self._vocabulary.special_ids))

    @property
    def chat_template(self) -> str:
        """Return the text of the main chat template; "" for none."""
        return self._templates.main

    @property
    def has_chat_template(self) -> bool:
        return self._templates.has_main

    @property
    def template_source(self) -> str | None:
        """Return the origin of the chat template: "file", "fallback:chatml" and so on, or None."""
        return self._templates.source

    def encode(self, text: str, *, parse_special: bool = False) -> list[int]:
        special = self._special if parse_special else self._user_defined
        return self._encode_fragments(partition(text, special, self._strips))

    def encode_fill(self, prefix: str, suffix: str) -> list[int]:
        """Return the ids that ask for the code between `prefix` and `suffix`.

        The order is prefix, suffix, middle, as in llama.cpp. Control tokens written out in the
        texts are text. Raises ConfigError for a vocabulary without tokens for filling in.
        """
        fill = self.fim_ids
        if missing := [f"fim_{name}" for name in ("pre", "suf", "mid") if name not in fill]:
            raise ConfigError(
                "the model was not made for filling in code, its vocabulary has no "
                f"{', '.join(missing)} token; use a model for code, or continue a prompt"
            )
        texts = (partition(text, self._user_defined, self._strips) for text in (prefix, suffix))
        before, after = texts
        return self._encode_fragments([fill["pre"], *before, fill["suf"], *after, fill["mid"]])

    def encode_chat(
        self,
        messages: Sequence[GivenMessage],
        *,
        tools: Sequence[GivenTool] | None = None,
        variables: Mapping[str, TemplateVariable] | None = None,
        continued: bool = False,
    ) -> list[int]:
        text, hidden = self._templates.lay_out(
            messages, tools, variables, self._guard, continued=continued
        )
        fragments = partition(text, self._special, self._strips)
        return self._encode_fragments(
            (hidden.reveal(part) if isinstance(part, str) else part for part in fragments),
            self._kept_ids,
        )

    def chat_text(
        self, messages: Sequence[GivenMessage], *, tools: Sequence[GivenTool] | None = None
    ) -> str:
        return self._templates.text(messages, tools)

    def _encode_fragments(
        self, fragments: Iterable[str | int], encode: Callable[[str], Sequence[int]] | None = None
    ) -> list[int]:
        encode = encode or self._codec.encode
        ids: list[int] = []
        for fragment in fragments:
            if isinstance(fragment, int):
                ids.append(fragment)
                continue
            try:
                fragment.encode()
            except UnicodeEncodeError:
                raise ConfigError(
                    "the text has half of a surrogate pair, which is not a character; decode it "
                    "properly first"
                ) from None
            ids += encode(fragment)
        if self._add_bos and self._bos_id is not None and ids[:1] != [self._bos_id]:
            ids.insert(0, self._bos_id)
        return ids

    def decode(self, token_ids: Iterable[int], *, with_control: bool = False) -> str:
        detokenizer = self.detokenizer()
        if not with_control:
            return detokenizer.feed(token_ids) + detokenizer.finish()
        ids = list(token_ids)
        if self._add_bos and ids[:1] == [self._bos_id]:
            del ids[0]
        uncommon = self._vocabulary.uncommon
        controls = {id_: text for text, id_, kind in uncommon if kind is TokenType.CONTROL}
        pieces = [controls.get(token, "") or detokenizer.feed((token,)) for token in ids]
        return "".join(pieces) + detokenizer.finish()

    def token_texts(self) -> Sequence[str]:
        return self._vocabulary.tokens

    def token_bytes(self) -> Sequence[bytes]:
        return [self._codec.token_bytes[id_] for id_ in range(len(self._vocabulary.tokens))]

    def control_tokens(self) -> Mapping[int, str]:
        uncommon = self._vocabulary.uncommon
        return {id_: text for text, id_, kind in uncommon if kind in _NOT_TEXT}

    def detokenizer(self, *, continues: bool = False) -> ByteDetokenizer:
        """Return a fresh incremental detokenizer; see the protocol for `continues`."""
        strip_space = self._codec.strip_space and not continues
        return ByteDetokenizer(self._codec.token_bytes, strip_space=strip_space)


def ids_that_strip(
    metadata: Mapping[str, Any], special: Sequence[tuple[str, int]]
) -> frozenset[int]:
    """Return the tokens that strip the white space after them.

    GGUF cannot express this property. Like llama.cpp, akunu knows by its name the one family whose
    `tokenizer.json` has it (`llama-vocab.cpp`, MIT).
    """
    name = (get_text(metadata, "general.name") or "").lower()
    if "phi-3" not in name and "phi3" not in name:
        return frozenset()
    keep = {"<unk>", "<s>", "<|endoftext|>"}
    return frozenset(id_ for text, id_ in special if text not in keep)


def partition(
    text: str, special: Sequence[tuple[str, int]], strips: Collection[int] = ()
) -> list[str | int]:
    """Split a text at special tokens into the texts between them and their ids.

    The longest token is searched first in the whole text, then the next in the rest, as in
    llama.cpp; where two overlap, the leftmost match would differ. White space after a token in
    `strips` is dropped.
    """
    fragments: list[str | int] = [text] if text else []
    for token, id_ in special:
        # Searching the whole text is fast, and most tokens do not occur in most texts.
        if not token or token not in text:
            continue
        split: list[str | int] = []
        for fragment in fragments:
            if isinstance(fragment, int):
                split.append(fragment)
                continue
            first, *others = fragment.split(token)
            if first:
                split.append(first)
            for part in others:
                split.append(id_)
                if rest := part.lstrip(_C_SPACES) if id_ in strips else part:
                    split.append(rest)
        fragments = split
    return fragments


def from_gguf(metadata: Mapping[str, Any], *, pre_tokenizer: str | None = None) -> GGUFTokenizer:
    """Return the tokenizer in `GGUFFile.metadata`; raise as `GGUFTokenizer` does."""
    return GGUFTokenizer(metadata, pre_tokenizer=pre_tokenizer)
