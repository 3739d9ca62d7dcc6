"""The tokenizer of a GGUF file: special tokens around a codec for text."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from akunu_py.errors import ConfigError, ModelFormatError
from akunu_py.tokenizers.bpe import BPECodec
from akunu_py.tokenizers.chat_template import ChatTemplate, SpecialTextGuard, check_messages
from akunu_py.tokenizers.detokenizer import ByteDetokenizer
from akunu_py.tokenizers.split_rules import split_rule
from akunu_py.tokenizers.spm import SPMCodec
from akunu_py.tokenizers.vocabulary import TokenType, get_flag, get_text, read_vocabulary
from akunu_py.types import Message


class _Codec(Protocol):
    token_bytes: list[bytes]
    strip_space: bool

    def encode(self, text: str) -> list[int]: ...


class GGUFTokenizer:
    """Text to token ids and back, as llama.cpp does for the same file. Implements `Tokenizer`.

    An instance may be shared between threads; its detokenizers may not.

    Args:
        metadata: of `GGUFFile`.

    Raises ModelFormatError, naming the key, for a vocabulary that is damaged or of a kind akunu
    does not know.

    """

    def __init__(self, metadata: Mapping[str, Any]) -> None:
        self._vocabulary = vocabulary = read_vocabulary(metadata)
        model = get_text(metadata, "tokenizer.ggml.model")
        self._codec: _Codec
        if model == "llama":
            self._codec = SPMCodec(metadata, vocabulary)
            begins = True
        elif model == "gpt2":
            rule = split_rule(get_text(metadata, "tokenizer.ggml.pre"))
            self._codec = BPECodec(metadata, vocabulary, rule)
            begins = rule.add_bos
        else:
            raise ModelFormatError(
                f"tokenizer.ggml.model is {model!r}; akunu knows 'llama' (SentencePiece) and "
                "'gpt2' (byte-level BPE): use another model"
            )
        self._bos_id = vocabulary.special_ids.get("bos")
        # `add_eos_token` is for training and embedding: an end token after a prompt would ask
        # for a reply to a finished text, so it is not followed.
        self._add_bos = get_flag(metadata, "add_bos_token", default=begins)
        if self._add_bos and self._bos_id is None:
            if "tokenizer.ggml.add_bos_token" in metadata or model == "llama":
                raise ModelFormatError(
                    "texts should begin with a begin token, but tokenizer.ggml.bos_token_id is "
                    "missing; convert the model again"
                )
            self._add_bos = False
        self._user_defined = vocabulary.texts(TokenType.USER_DEFINED)
        self._special = vocabulary.texts(
            TokenType.CONTROL, TokenType.USER_DEFINED, TokenType.UNKNOWN
        )
        self._guard = SpecialTextGuard(
            text for text, _ in vocabulary.texts(TokenType.CONTROL, TokenType.UNKNOWN)
        )
        source = get_text(metadata, "tokenizer.chat_template")
        self._template = None
        if source is not None:
            names = ("bos", "eos", "unknown", "padding")
            self._template = ChatTemplate(source, {name: self._text_of(name) for name in names})

    def _text_of(self, name: str) -> str:
        id_ = self._vocabulary.special_ids.get(name)
        return "" if id_ is None else self._vocabulary.tokens[id_]

    @property
    def vocabulary_size(self) -> int:
        """Return the number of ids."""
        return len(self._vocabulary.tokens)

    @property
    def end_ids(self) -> frozenset[int]:
        """Return the ids that end a reply."""
        return self._vocabulary.end_ids

    @property
    def has_chat_template(self) -> bool:
        """Return whether `encode_chat` can be used."""
        return self._template is not None

    def encode(self, text: str, *, parse_special: bool = False) -> list[int]:
        """Return the ids of a text, begin-of-text first where the model wants it.

        Control tokens written out in the text are taken as such only with `parse_special`;
        user-defined ones always are. Raises ConfigError for a text that is not Unicode.
        """
        special = self._special if parse_special else self._user_defined
        return self._encode_fragments(partition(text, special))

    def encode_chat(self, messages: Sequence[Message]) -> list[int]:
        """Return the ids of a conversation, up to where the reply begins.

        Control tokens written out in a message are text, never control tokens. Raises ConfigError
        for a model without a template or for messages that are not well-formed, ModelFormatError
        for a template that fails.
        """
        if self._template is None:
            raise ConfigError(
                "the model has no chat template, so it was not made for conversations; use "
                "`akunu generate` or --raw"
            )
        check_messages(messages)
        hidden = self._guard.hide(messages, self._template.source)
        fragments = partition(self._template.render(hidden.messages), self._special)
        return self._encode_fragments(
            hidden.reveal(part) if isinstance(part, str) else part for part in fragments
        )

    def _encode_fragments(self, fragments: Iterable[str | int]) -> list[int]:
        ids: list[int] = []
        for fragment in fragments:
            if isinstance(fragment, int):
                ids.append(fragment)
                continue
            try:
                fragment.encode()
            except UnicodeEncodeError:
                raise ConfigError(
                    "the text holds half of a surrogate pair, which is not a character; decode "
                    "it properly first"
                ) from None
            ids += self._codec.encode(fragment)
        if self._add_bos and self._bos_id is not None and ids[:1] != [self._bos_id]:
            ids.insert(0, self._bos_id)
        return ids

    def decode(self, token_ids: Iterable[int]) -> str:
        """Return the text of ids, control tokens left out.

        Raises ConfigError for an id outside the vocabulary.
        """
        detokenizer = self.detokenizer()
        return detokenizer.feed(token_ids) + detokenizer.finish()

    def detokenizer(self, *, continues: bool = False) -> ByteDetokenizer:
        """Return a fresh incremental detokenizer; see the protocol for `continues`."""
        strip_space = self._codec.strip_space and not continues
        return ByteDetokenizer(self._codec.token_bytes, strip_space=strip_space)


def partition(text: str, special: Sequence[tuple[str, int]]) -> list[str | int]:
    """Split a text at special tokens: texts between them, and their ids.

    The longest token is looked for first in the whole text, then the next in what is left, as
    llama.cpp does; the leftmost match of any would differ where two overlap.
    """
    fragments: list[str | int] = [text] if text else []
    for token, id_ in special:
        # One search in the whole is fast; most tokens do not occur in most texts.
        if not token or token not in text:
            continue
        split: list[str | int] = []
        for fragment in fragments:
            if isinstance(fragment, int):
                split.append(fragment)
                continue
            for index, part in enumerate(fragment.split(token)):
                if index:
                    split.append(id_)
                if part:
                    split.append(part)
        fragments = split
    return fragments


def from_gguf(metadata: Mapping[str, Any]) -> GGUFTokenizer:
    """Return the tokenizer in `GGUFFile.metadata`; raises as `GGUFTokenizer` does."""
    return GGUFTokenizer(metadata)
