"""Texts to compare tokenizers on, the same wherever they are made, and a vocabulary that shows cuts.

Only `Random.random` is used: of the module's methods it alone promises the same numbers in every
version of Python.
"""

import functools
import hashlib
import random

CODE = (
    "def f(x: int) -> str:\n    return f'{x!r}'  # ok\n", "for (int i=0;i<n;++i){a[i]+=1;}\r\n",
    '<div class="a-b">&nbsp;</div>', "SELECT * FROM t WHERE a>=10 AND b<>'x';", "x = y**2 // 3\t",
    "#include <stdio.h>\n\nint main(void)\n{\n\treturn 0;\n}\n", "https://example.org/a?b=c&d=%20#e",
    '{"key": [1, 2.50, -3e10, null]}', 'git commit -m "Fix: it\'s done" && make -j8\n', "a::b->c()",
    "fooBarBaz HTTPServer snake_case kebab-case SCREAMING_CASE iPhone McDonald", "0xDEADbeef 1_000_000",
)  # fmt: skip
WORDS = (
    "the", "The", "THE", "it's", "IT'S", "we'll", "don't", "I'm", "they've", "you're", "he'd", "'s", "'same", "'Dive",
    "'LL", "'llama", "'REst", "naïve", "Größe", "ÉCOLE", "œuvre", "İstanbul", "ǅungla", "привет", "Москва", "ΑΒΓδε",
    "你好世界", "日本語のテキスト", "カタカナ", "한국어", "ㄱㄴㄷ", "ไทยภาษา", "ລາວ", "ភាសាខ្មែរ", "မြန်မာ",
    "हिन्दी", "ক্ষ", "தமிழ்", "العَرَبِيَّة", "עִבְרִית", "Việt", "e\u0301", "A\u030a", "\u0301", "x\u20d7", "🦙", "👩‍👩‍👧‍👦",
    "🏳️‍🌈", "🇩🇪", "👍🏽", "☃", "½", "²", "Ⅷ", "٣٤٥", "१२३", "𝟘𝟙", "①②③", "𐐀𐐨", "𠀀𪚥", "々〆", "！？", "…", "—",
    "「」", "€£¥", "←→", "\ufeff", "\u200b", "\u200d", "\u00ad", "\ufffd", "㈠", "ﬁ", "Ａｂｃ", "１２３",
    "tekken", "iOSApp", "éÉeE", "ΣΊΣΥΦΟΣ", "ß", "ẞ", "<sentinel:12>", "IMGIMGABCZ", "<unk>", "▁", "_",
)  # fmt: skip
SPACES = (
    " ", "  ", "   ", "\n", "\n\n", "\n\n\n", "\t", "\t\t", "\r\n", "\r", " \n", "\n ", "  \n  ", "\u00a0",
    "\u3000", "\u2003", "\x85", "\u2028", "\v", "\f", "\n\t\n", "    ",
)  # fmt: skip
PUNCTUATION = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"
# Ranges of characters that have been in Unicode for long: engines differ on what came later.
RANGES = (
    (0x20, 0x7E), (0xA1, 0x17F), (0x391, 0x3A1), (0x3B1, 0x3C9), (0x400, 0x45F), (0x5D0, 0x5EA),
    (0x621, 0x63A), (0x660, 0x669), (0x905, 0x939), (0x93E, 0x94C), (0xE01, 0xE30), (0x10D0, 0x10F0),
    (0x1E00, 0x1EF9), (0x2010, 0x2027), (0x2070, 0x2071), (0x20A0, 0x20B5), (0x2150, 0x215E),
    (0x2160, 0x2188), (0x2190, 0x21FF), (0x2200, 0x22FF), (0x2460, 0x249B), (0x2500, 0x257F),
    (0x3001, 0x303F), (0x3041, 0x3096), (0x30A1, 0x30FA), (0x3105, 0x312C), (0x4E00, 0x9FA5),
    (0xAC00, 0xD7A3), (0xE000, 0xE100), (0xF900, 0xFA2D), (0xFE00, 0xFE0F), (0xFF01, 0xFF5E),
    (0x10400, 0x1044F), (0x1D400, 0x1D454), (0x1F300, 0x1F5FF), (0x1F600, 0x1F64F),
    (0x20000, 0x2A6D6), (0x0, 0x1F), (0x7F, 0x9F), (0xE0001, 0xE007F), (0xF0000, 0xF0100),
    (0x100000, 0x10FFFD),
)  # fmt: skip
RECENT = 0x10D40


class _Source:
    def __init__(self, seed):
        self._random = random.Random(seed)

    def below(self, limit):
        return int(self._random.random() * limit)

    def pick(self, values):
        return values[self.below(len(values))]

    def character(self):
        first, last = self.pick(RANGES)
        return chr(first + self.below(last - first + 1))

    def any_character(self):
        code = self.below(0x110000 - 0x800)
        if RECENT <= code < 0x20000:
            code -= RECENT  # letters were added there lately, and engines do not agree on them yet
        return chr(code + 0x800 if code >= 0xD800 else code)


def _part(source, tokens, special):
    kind = source.below(20)
    if kind < 4:
        return source.pick(WORDS)
    if kind < 7:
        return source.pick(SPACES)
    if kind == 7:
        return source.pick(SPACES)[:1] * (1 + source.below(40))
    if kind == 8:
        return "".join(source.pick("0123456789") for _ in range(1 + source.below(14)))
    if kind == 9:
        return source.pick(CODE)
    if kind == 10:
        return "".join(source.pick(PUNCTUATION) for _ in range(1 + source.below(6)))
    if kind == 11:
        return source.pick(special) if special else "<|end|>"
    if kind == 12:
        text = source.pick(special) if special else "<|im_start|>"
        return text[source.below(len(text)) :][: 1 + source.below(6)]
    if kind < 16:
        return source.pick(tokens)
    if kind == 16:
        return "".join(source.character() for _ in range(1 + source.below(12)))
    if kind == 17:
        first, last = source.pick(RANGES)
        return "".join(
            chr(first + source.below(last - first + 1)) for _ in range(1 + source.below(8))
        )
    if kind == 18:
        return "".join(source.pick("aAbBzZéÉñ'-_ .") for _ in range(1 + source.below(12)))
    return source.any_character()


def make_texts(seed, count, tokens=("token",), special=()):
    """Texts mixed of words, code, white space, digits, all planes of Unicode, tokens and parts of
    special ones; every fiftieth is long."""
    source = _Source(seed)
    texts = []
    for index in range(count):
        size = 60 + source.below(60) if index % 50 == 49 else 1 + source.below(8)
        texts.append("".join(_part(source, tokens, special) for _ in range(size)))
    return texts


def vocabulary_texts(metadata, count):
    """The texts for a vocabulary: its own tokens and special tokens are among the parts."""
    tokens = metadata["tokenizer.ggml.tokens"]
    types = metadata["tokenizer.ggml.token_type"].tolist()
    every = max(1, len(tokens) // 4000)
    words = [
        token.replace("▁", " ").replace("Ġ", " ").replace("Ċ", "\n")
        for token, kind in zip(tokens[::every], types[::every], strict=True)
        if kind == 1
    ]
    special = [token for token, kind in zip(tokens, types, strict=True) if kind in (3, 4)]
    return make_texts(len(tokens), count, words, special[:: max(1, len(special) // 60)])


def digest(texts):
    return hashlib.sha256("\0\0".join(texts).encode()).hexdigest()


def _byte_alphabet():
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return [chr(b) if b in printable else chr(256 + others.index(b)) for b in range(256)]


@functools.cache
def pair_vocabulary():
    """Tokens and merges of a byte-level vocabulary in which any two bytes next to one another merge.

    Which pairs do depends on where the text was cut, so the ids show the cuts. Bytes that UTF-8
    does not have are left out of pairs: the ids fit into 16 bits.
    """
    letters = _byte_alphabet()
    usual = [byte for byte in range(256) if byte not in (0xC0, 0xC1) and byte < 0xF5]
    pairs = [(a, b) for a in usual for b in usual]
    source = _Source(1)
    for index in range(len(pairs) - 1, 0, -1):
        other = source.below(index + 1)
        pairs[index], pairs[other] = pairs[other], pairs[index]
    tokens = letters + [letters[a] + letters[b] for a, b in pairs]
    return tokens, [f"{letters[a]} {letters[b]}" for a, b in pairs]


@functools.cache
def gapped_vocabulary():
    """The same without tokens for some bytes, as SmolLM2 and StarCoder have it.

    Those that begin planes 4 and above, and a few that stand within characters.
    """
    letters = _byte_alphabet()
    missing = {letters[byte] for byte in (0x89, 0x9D, 0xAE, 0xF1, 0xF2, 0xF3, 0xF4)}
    tokens, merges = pair_vocabulary()
    return (
        [token for token in tokens if missing.isdisjoint(token)],
        [merge for merge in merges if missing.isdisjoint(merge)],
    )


def white_space_texts():
    """All white space of Unicode beyond ASCII next to letters, punctuation, digits and itself."""
    spaces = [0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F, 0x205F, 0x3000]
    around = ("a", "\u4f60", "\uff0c", ".", "1", " ", "\n", "\u0416", "")
    return [
        before + space * count + after
        for space in map(chr, spaces)
        for before in around
        for after in around
        for count in (1, 2)
    ]


@functools.cache
def raw_vocabulary():
    """Tokens, types and merges of a vocabulary of characters, as `pair_vocabulary` shows cuts.

    Only characters below U+0250 and a few others merge; the rest falls back to bytes.
    """
    tokens = [f"<0x{byte:02X}>" for byte in range(256)]
    types = [6] * 256
    letters = [chr(code) for code in (*range(0x21, 0x7F), 0xE9, 0xC9, 0xF1, 0x2581, 9, 10, 13)]
    pairs = [(a, b) for a in letters for b in letters]
    source = _Source(2)
    for index in range(len(pairs) - 1, 0, -1):
        other = source.below(index + 1)
        pairs[index], pairs[other] = pairs[other], pairs[index]
    tokens += letters + [a + b for a, b in pairs] + ["\n" * size for size in range(3, 9)]
    types += [1] * (len(tokens) - 256)
    return tokens, types, [f"{a} {b}" for a, b in pairs]
