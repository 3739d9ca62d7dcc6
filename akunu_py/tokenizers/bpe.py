"""Byte-pair encoding by a list of merges, through the `tokenizers` package.

A text is split by the expressions that `tokenizer.ggml.pre` names, and pairs are merged within the
pieces, in the order of the list. There are two kinds. GPT-2's writes the bytes of a piece as
characters of a special alphabet. The raw kind (Gemma 4) merges the characters themselves, with
spaces written as in SentencePiece, and falls back to tokens of one byte.
"""

import contextlib
import re
from collections.abc import Container, Mapping
from itertools import repeat
from typing import Any

from tokenizers import Regex, Tokenizer
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel, PreTokenizer, Sequence, Split

from akunu_py.system.errors import ModelFormatError
from akunu_py.tokenizers.detokenizer import TokenBytes
from akunu_py.tokenizers.split_rules import SplitRule
from akunu_py.tokenizers.spm import read_byte_ids
from akunu_py.tokenizers.vocabulary import TokenType, Vocabulary, get_texts

_ADVICE = "download or convert the model again"
_SPACE = "\u2581"
_NEWLINES = re.compile("(\n+)")
_UNKNOWN = "\0unknown"
"""Placeholder for a byte or a character without a token, until its surroundings are merged.

Such a byte is then left out, as in llama.cpp, and its neighbours are never merged with each other.
No text becomes this token: the byte alphabet has no NUL, and no merge makes it.
"""


def _byte_alphabet() -> dict[int, int]:
    """Return code point -> byte of GPT-2's alphabet; other code points below 256 get no byte.

    Bytes that print stand for themselves, the others for 256, 257, ... in order (`encoder.py` of
    GPT-2).
    """
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = [byte for byte in range(256) if byte not in printable]
    # A code point outside the alphabet becomes one that latin-1 refuses.
    alphabet = dict.fromkeys(others, 0xFFFF) | {byte: byte for byte in printable}
    return alphabet | {256 + index: byte for index, byte in enumerate(others)}


_ALPHABET = _byte_alphabet()
_LETTERS = {byte: chr(code) for code, byte in _ALPHABET.items() if byte < 256}


def write_alphabet(text: str) -> str:
    """Return the UTF-8 of a text, written in the byte alphabet."""
    return "".join(_LETTERS[byte] for byte in text.encode())


def missing_letters(tokens: Container[str]) -> str:
    """Return the letters of the byte alphabet that are not tokens."""
    return "".join(letter for letter in _LETTERS.values() if letter not in tokens)


def split_steps(rule: SplitRule) -> list[PreTokenizer]:
    """Return the steps that split a text into pieces and write them as the vocabulary does."""
    steps: list[PreTokenizer] = [Split(Regex(pattern), "isolated") for pattern in rule.patterns]
    if not rule.raw:
        steps.append(ByteLevel(add_prefix_space=False, use_regex=False))
    return steps


def decode_alphabet(text: str) -> bytes:
    """Return the bytes of a text in the byte alphabet; the UTF-8 of any other text."""
    try:
        return text.translate(_ALPHABET).encode("latin-1")
    except UnicodeEncodeError:
        return text.encode()


class BPECodec:
    """The `Codec` of byte-level BPE, and of BPE of characters.

    Raises ModelFormatError for merges that do not fit the vocabulary.
    """

    strip_space = False  # Nothing is put in front of a text.

    def __init__(
        self, metadata: Mapping[str, Any], vocabulary: Vocabulary, rule: SplitRule
    ) -> None:
        byte_ids = read_byte_ids(vocabulary) if rule.raw else {}
        decode = _decode_spaces if rule.raw else decode_alphabet
        # User-defined tokens are not written in the byte alphabet: "ö" is the letter, not a byte.
        self.token_bytes = TokenBytes(vocabulary, byte_ids, decode, raw=True)
        # Without control tokens in the vocabulary of merges, no text can become one.
        ids = dict(zip(vocabulary.tokens, range(len(vocabulary.tokens)), strict=True))
        controls = frozenset(text for text, _ in vocabulary.texts(TokenType.CONTROL))
        for text in (*controls, ""):
            ids.pop(text, None)
        self._unknown = ids[_UNKNOWN] = len(vocabulary.tokens)
        self._tokenizer = Tokenizer(
            _model(ids, controls, get_texts(metadata, "merges"), rule, bytes_known=bool(byte_ids))
        )
        self._tokenizer.pre_tokenizer = Sequence(split_steps(rule))
        self._raw = rule.raw
        self._newlines = (
            {text: id_ for text, id_ in ids.items() if text and not text.strip("\n")}
            if rule.whole_newlines
            else {}
        )

    def encode(self, text: str) -> list[int]:
        if self._raw:
            text = text.replace(" ", _SPACE)
        if not self._newlines:
            return self._merge(text)
        # The expressions split at newlines anyway, so the text can be cut there.
        ids: list[int] = []
        waiting: list[str] = []
        for part in _NEWLINES.split(text):
            if (whole := self._newlines.get(part)) is None:
                waiting.append(part)
                continue
            ids += self._merge("".join(waiting))
            ids.append(whole)
            waiting.clear()
        return ids + self._merge("".join(waiting))

    def _merge(self, text: str) -> list[int]:
        if not text:
            return []
        # Unlike `encode` it lets other threads go on.
        (encoding,) = self._tokenizer.encode_batch_fast([text], add_special_tokens=False)
        ids: list[int] = encoding.ids
        return [id_ for id_ in ids if id_ != self._unknown] if self._unknown in ids else ids


def _decode_spaces(text: str) -> bytes:
    return text.replace(_SPACE, " ").encode()


def _model(
    ids: dict[str, int],
    controls: frozenset[str],
    lines: list[str],
    rule: SplitRule,
    *,
    bytes_known: bool,
) -> BPE:
    options = {
        "ignore_merges": rule.ignore_merges,
        "byte_fallback": bytes_known,
        "unk_token": _UNKNOWN,
    }
    parts = list(map(str.split, lines, repeat(" ")))
    # A result longer than every token makes the package panic, which `Exception` does not catch.
    if set(map(len, parts)) == {2} and ids.keys() >= set(map("".join, parts)):
        # The package raises nothing narrower. Below, the cause is reported, or control tokens
        # are left out.
        with contextlib.suppress(Exception):
            return BPE(vocab=ids, merges=[(left, right) for left, right in parts], **options)
    try:
        return BPE(vocab=ids, merges=_check_merges(lines, ids, controls), **options)
    except (ModelFormatError, KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        # A panic of tokenizers is not an Exception.
        raise ModelFormatError(
            f"the merges do not fit the vocabulary ({error}); {_ADVICE}"
        ) from error


def _check_merges(
    lines: list[str], ids: Mapping[str, int], controls: frozenset[str]
) -> list[tuple[str, str]]:
    """Return the merges except those of control tokens; raise ModelFormatError for bad ones."""
    merges: list[tuple[str, str]] = []
    for rank, line in enumerate(lines):
        left, space, right = line.partition(" ")
        if not (left and space and right) or " " in right:
            raise ModelFormatError(
                f"tokenizer.ggml.merges[{rank}] is {line!r}, not two parts with a space between; "
                f"{_ADVICE}"
            )
        made = left + right
        if left in ids and right in ids and made in ids:
            merges.append((left, right))
        elif controls.isdisjoint((left, right, made)):
            raise ModelFormatError(
                f"tokenizer.ggml.merges[{rank}] {line!r} has a part or result that is not a token; "
                f"{_ADVICE}"
            )
    return merges
