"""Byte-level BPE (`tokenizer.ggml.model` "gpt2"), through the `tokenizers` package.

A text is split by the expressions that `tokenizer.ggml.pre` names, its bytes are written as
characters (GPT-2's alphabet), and pairs are merged in the order of the list of merges.
"""

from collections.abc import Mapping
from typing import Any

from tokenizers import Regex, Tokenizer
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel, PreTokenizer, Sequence, Split

from akunu_py.errors import ModelFormatError
from akunu_py.tokenizers.split_rules import SplitRule
from akunu_py.tokenizers.vocabulary import TokenType, Vocabulary, get_texts

_ADVICE = "download or convert the model again"


def _byte_alphabet() -> dict[int, int]:
    """Return code point -> byte of GPT-2's alphabet, other code points below 256 -> none.

    Bytes that print stand for themselves, the others for 256, 257, ... in order (`encoder.py` of
    GPT-2).
    """
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = [byte for byte in range(256) if byte not in printable]
    # A code point that is not of the alphabet becomes one that latin-1 refuses.
    alphabet = dict.fromkeys(others, 0xFFFF) | {byte: byte for byte in printable}
    return alphabet | {256 + index: byte for index, byte in enumerate(others)}


class BPECodec:
    """Text without control tokens to ids, and the bytes of each id.

    Attributes:
        token_bytes: bytes of each token id, empty for control, unknown and unused tokens.
        strip_space: False: nothing is put in front of a text.

    Raises ModelFormatError for merges that do not fit the vocabulary.

    """

    strip_space = False

    def __init__(
        self, metadata: Mapping[str, Any], vocabulary: Vocabulary, rule: SplitRule
    ) -> None:
        self.token_bytes = _token_bytes(vocabulary)
        # Control tokens stay out of the vocabulary that text is merged into, so no text, however
        # it is merged, becomes one.
        controls = frozenset(text for text, _ in vocabulary.texts(TokenType.CONTROL))
        ids = {
            text: id_
            for id_, (text, kind) in enumerate(
                zip(vocabulary.tokens, vocabulary.types, strict=True)
            )
            if kind is not TokenType.CONTROL
        }
        merges = _read_merges(get_texts(metadata, "merges"), ids, controls)
        try:
            model = BPE(vocab=ids, merges=merges, ignore_merges=rule.ignore_merges)
        except Exception as error:  # the package raises nothing narrower
            raise ModelFormatError(
                f"the merges do not fit the vocabulary ({error}); {_ADVICE}"
            ) from error
        self._tokenizer = Tokenizer(model)
        steps: list[PreTokenizer] = [Split(Regex(pattern), "isolated") for pattern in rule.patterns]
        steps.append(ByteLevel(add_prefix_space=False, use_regex=False))
        self._tokenizer.pre_tokenizer = Sequence(steps)

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text."""
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return ids


def _read_merges(
    lines: list[str], ids: Mapping[str, int], controls: frozenset[str]
) -> list[tuple[str, str]]:
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
                f"tokenizer.ggml.merges[{rank}] {line!r} has a part or a result that is no token; "
                f"{_ADVICE}"
            )
    return merges


def _token_bytes(vocabulary: Vocabulary) -> list[bytes]:
    alphabet = _byte_alphabet()
    table: list[bytes] = []
    for text, kind in zip(vocabulary.tokens, vocabulary.types, strict=True):
        if kind in (TokenType.CONTROL, TokenType.UNKNOWN, TokenType.UNUSED):
            table.append(b"")
        elif kind is TokenType.USER_DEFINED:
            # Written as it is, not in the byte alphabet: "ö" here is the letter, not a byte.
            table.append(text.encode())
        else:
            try:
                table.append(text.translate(alphabet).encode("latin-1"))
            except UnicodeEncodeError:
                table.append(text.encode())
    return table
