"""Byte-pair encoding by a list of merges, through the `tokenizers` package.

A text is split by the expressions that `tokenizer.ggml.pre` names, and pairs are merged within the
pieces, in the order of the list. There are two kinds. GPT-2's writes the bytes of a piece as
characters of a special alphabet. The raw kind (Gemma 4) merges the characters themselves, with
spaces written as in SentencePiece, and falls back to tokens of one byte.

Each expression in turn splits the pieces that the previous one left: its matches become pieces, and
so does the text between matches. Source: names, expressions and flags are facts of llama.cpp's
`llama-vocab.cpp` (MIT), which took them from the models' own `tokenizer.json`. Where llama.cpp
adapts an expression to its engine ("tekken", "gpt-4o", "minimax-m2"), or ignores case because its
engine cannot distinguish it ("youtu", "tiny_aya", "kimi-k2"), the models' own expression is used
here, as Hugging Face's `tokenizers` runs it.
"""

import contextlib
import logging
import re
from collections.abc import Container, Mapping
from dataclasses import dataclass
from itertools import repeat
from typing import Any

from tokenizers import Regex, Tokenizer
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel, PreTokenizer, Sequence, Split

from akunu_py.system.errors import ConfigError, ModelFormatError
from akunu_py.tokenizers.spm import SPACE, decode_spaces, read_byte_ids
from akunu_py.tokenizers.vocabulary import TokenBytes, TokenType, Vocabulary, get_texts

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SplitRule:
    """How one kind of byte-level BPE splits a text."""

    # Regular expressions in Oniguruma's syntax, applied one after another.
    patterns: tuple[str, ...]
    # Whether a piece that is a token is taken whole, whatever the merges say.
    ignore_merges: bool = False
    add_bos: bool = False  # Whether texts begin with a begin token unless the file says otherwise.
    always_bos: bool = False  # Whether they do whatever the file says.
    # Whether to merge the characters themselves, with spaces written as in SentencePiece, instead
    # of bytes written as characters.
    raw: bool = False
    whole_newlines: bool = False  # Whether a run of newlines that is a token is taken whole.


def _any_of(*alternatives: str) -> str:
    return "|".join(alternatives)


_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)"
_CONTRACTION = r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
_WORD = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_OTHER = r" ?[^\s\p{L}\p{N}]+[\r\n]*"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_DIGIT = r"\p{N}"
_THREE_DIGITS = r"\p{N}{1,3}"


def _llama(digits: str) -> str:
    """Return Llama 3's expression with `digits` for runs of digits; Qwen 2 splits single digits."""
    return _any_of(_CONTRACTION, _WORD, digits, _OTHER, _SPACES)


_UPPER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
_LOWER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"


def _o200k(digits: str, ending: str) -> str:
    """Return o200k's expression, which also splits before a capital, with `ending` of a word."""
    start = r"[^\r\n\p{L}\p{N}]?"
    words = f"{start}{_UPPER}*{_LOWER}+{ending}|{start}{_UPPER}+{_LOWER}*{ending}"
    return _any_of(words, digits, r" ?[^\s\p{L}\p{N}]+[\r\n/]*", _SPACES)


_DEEPSEEK = (
    "[!\"#$%&'" + r"()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+"
    "|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
    "| ?[\\p{P}\\p{S}]+"
)
_DEEPSEEK_V3 = (
    _THREE_DIGITS,
    "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
    _DEEPSEEK + "[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+",
)
# Without white space beyond ASCII (U+2003, U+2028, U+3000), as in llama.cpp's ranges.
_CJK = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff&&[^\\s]]+"
# The cased letters of Unicode 9, without later additions. They are listed because an engine's own
# class depends on its Unicode version.
_CASED_LETTERS = (
    "A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-"
    "\u02af\u0370-\u0373\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1"
    "\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5\u13f8-"
    "\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77\u1d79-\u1d9a\u1e00-\u1f15"
    "\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d\u1f5f-\u1f7d"
    "\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb"
    "\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102\u2107\u210a-\u2113\u2115\u2119-\u211d"
    "\u2124\u2126\u2128\u212a-\u212d\u212f-\u2134\u2139\u213c-\u213f\u2145-\u2149\u214e\u2183"
    "\u2184\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee\u2cf2\u2cf3\ua640-\ua66d\ua680-\ua69b"
    "\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf\ufb00-\ufb06\ufb13-\ufb17\uff21-"
    "\uff3a\uff41-\uff5a\U00010400-\U0001044f\U000104b0-\U000104d3\U000104d8-\U000104fb"
    "\U00010c80-\U00010cb2\U00010cc0-\U00010cf2\U000118a0-\U000118df\U0001e900-\U0001e943"
)
_BLOOM = " ?[^(\\s|.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c)]+"
_YOUTU = (
    "[\uac00-\ud7a3\u3131-\u318e]+"
    "|[\uff01\u2026\u201c\u201d\u2018\u2019\u2014\uff1a\uff1b\uff0c\u3001-\u303f\ufe30-\ufe4f]+"
    "|[\u3105-\u312f]+|[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"
)
_BAILING = _any_of(
    r"'(?:[sSdDmMtT]|[lL][lL]|[vV][eE]|[rR][eE])", _WORD, _DIGIT, _OTHER, r"\s*[\r\n]|\s+(?!\S)|\s+"
)
_JAIS2_SPACES = _any_of(
    *(rf"\s{{{2**power}}}(?!\S)" for power in range(9, 1, -1)), r"\s{1,2}(?!\S)|\s{1}"
)
_JAIS2 = _any_of(_CONTRACTION, _WORD, _THREE_DIGITS, _OTHER, r"\s*[\r\n]+", _JAIS2_SPACES)
_CHAMELEON = (
    "<sentinel:[0-9]+>",
    "(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z",
    r"([\t\n]|    |  )",
    _DIGIT,
    r"[\p{P}!-/:-@\[-`{-~]",
    _GPT2,
)
_EXAONE_MOE = _any_of(
    _CONTRACTION,
    r"[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+",
    _DIGIT,
    r" ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+",
)
_QWEN35 = _any_of(
    _CONTRACTION,
    r"[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+",
    _DIGIT,
    r" ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*",
    _SPACES,
)
# A run of digits in threes from its right end: first the run, then the rest on its left, and the
# threes. A single expression would take the square of the run's length.
_DIGITS_FROM_RIGHT = (r"\p{N}+", r"\A\p{N}{1,2}(?=(?:\p{N}{3})+\z)|\p{N}{3}")
_AFMOE_SCRIPTS = (
    "[\u4e00-\u9fff\u3400-\u4dbf\u8c48-\ufaff\u3040-\u309f\u30a0-\u30ff\uff65-\uff9f"
    "\u2f00-\u2fdf\u0e40-\u0e7f\u0e80-\u0eff\u1780-\u17ff\u1000-\u109f\uaa60-\uaa7f"
    "\ua9e0-\ua9ff\uac00-\ud7af\u1100-\u11ff]+"
)
_SEED_CODER = _any_of(_CONTRACTION, _WORD, r"\p{N}{1}", r" ?[^\s\p{L}\p{N}\r\n]+", _SPACES)


def _kimi() -> str:
    """Return Kimi K2's expression: o200k's with Han characters in separate pieces.

    Source: `tokenization_kimi.py` of the model, quoted in llama.cpp's `unicode.cpp`.
    """
    upper = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]"
    lower = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]"
    start, ending = r"[^\r\n\p{L}\p{N}]?", _CONTRACTION + "?"
    words = f"{start}{upper}*{lower}+{ending}|{start}{upper}+{lower}*{ending}"
    return _any_of(r"\p{Han}+", words, _THREE_DIGITS, _OTHER, _SPACES)


_LINES = r"[^\n]+|[\n]+"
_PLAIN = SplitRule((_GPT2,))
_SINGLE_DIGITS = SplitRule((_DIGIT, _GPT2))
_LLAMA3 = SplitRule((_llama(_THREE_DIGITS),), ignore_merges=True, add_bos=True)
_LLAMA3_MERGING = SplitRule((_llama(_THREE_DIGITS),))
_QWEN2 = SplitRule((_llama(_DIGIT),))
_O200K = SplitRule((_o200k(_THREE_DIGITS, _CONTRACTION + "?"),))

_FAMILIES: tuple[tuple[SplitRule, str], ...] = (
    (SplitRule((r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", "[0-9][0-9][0-9]")), "default"),
    (
        _PLAIN,
        ("gpt-2 phi-2 jina-es jina-de jina-v2-es jina-v2-de gigachat a.x-4.0 mellum modern-bert "
         "mpt olmo jais trillion granite-docling exaone4 jina-v1-en jina-v2-code roberta-bpe"),
    ),
    (_SINGLE_DIGITS, "starcoder refact command-r smollm codeshell exaone minerva-7b mellum2"),
    (_LLAMA3, "llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano"),
    (_LLAMA3_MERGING, "dbrx smaug-bpe chatglm-bpe"),
    (SplitRule(_LLAMA3.patterns, ignore_merges=True), "glm4 glm5"),
    (_QWEN2, "qwen2 deepseek-r1-qwen kormo f2llmv2 megrez stablelm2 hunyuan grok-2 solar-open"),
    (SplitRule((_QWEN35,)), "qwen35"),
    (_O200K, "gpt-4o llama4 kanana2 talkie minimax-m2"),
    (SplitRule(_O200K.patterns, ignore_merges=True), "granite-embed-multi-97m"),
    (SplitRule((_o200k(_DIGIT, ""),), ignore_merges=True, add_bos=True), "tekken"),
    (SplitRule((r"\d{1,3}(?=(?:\d{3})*\b)", *_O200K.patterns)), "tiny_aya cohere2moe"),
    (SplitRule((_YOUTU, _o200k(_DIGIT, _CONTRACTION + "?")), ignore_merges=True), "youtu"),
    (
        SplitRule(
            (
                "[\r\n]",
                f"\\s?[{_CASED_LETTERS}]+",
                "\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3001\u3002]+",
                r"\s+$",
                _CJK,
                r"\p{N}+",
            )
        ),
        "deepseek-llm",
    ),
    (SplitRule(("[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _CJK, _DIGIT)), "deepseek-coder"),
    (SplitRule(_DEEPSEEK_V3), "deepseek-v3 hunyuan-dense hy_v4 joyai-llm"),
    (SplitRule((*_DEEPSEEK_V3[:2], _DEEPSEEK + "|[\r\n]|\\s+(?!\\S)|\\s+", _DIGIT)), "spark2_5"),
    (SplitRule((r"[\p{P}\$\+<=>\^~\|`]+", _GPT2, "[0-9][0-9][0-9]")), "falcon"),
    (SplitRule((_BLOOM,)), "bloom gpt3-finnish poro-chat"),
    (SplitRule((_BLOOM, _DIGIT)), "viking"),
    (SplitRule((_BAILING,)), "bailingmoe bailingmoe2 llada-moe"),
    (SplitRule((_SEED_CODER,)), "seed-coder"),
    (SplitRule((_EXAONE_MOE,)), "exaone-moe"),
    (SplitRule((_JAIS2,)), "jais-2"),
    (SplitRule((_THREE_DIGITS, _llama(r"\p{N}+")), ignore_merges=True), "minicpm5"),
    (SplitRule((_any_of(_WORD, _DIGIT, _OTHER, _SPACES),)), "ufakzeka"),
    (SplitRule((_LINES, _llama(_DIGIT))), "laguna"),
    (SplitRule((_kimi(),)), "kimi-k2"),
    (
        SplitRule((*_DIGITS_FROM_RIGHT, _AFMOE_SCRIPTS, _DEEPSEEK_V3[2].replace("\r\n", r"\r\n"))),
        "afmoe",
    ),
    (
        SplitRule((_LINES,), raw=True, whole_newlines=True, always_bos=True),
        "gemma4 granite-embed-multi-311m",
    ),
    (SplitRule((_LINES,), raw=True), "sarvam-moe"),
    (SplitRule((r"\p{N}+", r"(?=(\d{3})+(?!\d))")), "superbpe"),
    (SplitRule(_CHAMELEON, add_bos=True), "chameleon"),
)  # fmt: skip
"""Rules and the names of each, with spaces between them."""
_RULES = {name: rule for rule, names in _FAMILIES for name in names.split()}


def split_rule(name: str | None, *, chosen: bool = False) -> SplitRule:
    """Return the rule of a `tokenizer.ggml.pre`; None stands for llama.cpp's default.

    The default is logged, since such a file seldom means it.

    Raises ModelFormatError for an unknown name, since a wrong split shows only as bad replies;
    ConfigError if the user has `chosen` the name.
    """
    if name is None:
        name = "default"
        _log.warning(
            "the file does not say how its vocabulary splits text (tokenizer.ggml.pre is missing), "
            "so replies may be worse than they should be; convert the model again, or set "
            "pre-tokenizer"
        )
    if name in _RULES:
        return _RULES[name]
    if chosen:
        raise ConfigError(
            f"there is no pre-tokenizer named {name!r}; give one of {', '.join(split_rule_names())}"
        )
    raise ModelFormatError(
        f"tokenizer.ggml.pre is {name!r}, and akunu cannot split text in this way; give one that "
        "splits alike as pre-tokenizer if you know it, or use another model or a newer akunu. "
        f"Known are {', '.join(split_rule_names())}"
    )


def split_rule_names() -> tuple[str, ...]:
    """Return the names that `split_rule` knows."""
    return tuple(sorted(_RULES))


_ADVICE = "download or convert the model again"
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
        decode = decode_spaces if rule.raw else decode_alphabet
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
            text = text.replace(" ", SPACE)
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
