"""Text to ids and back over all of Unicode, at once and in portions; the detokenizer."""

import pytest
from fuzz_texts import make_texts
from hypothesis import example, given, settings
from hypothesis import strategies as st
from test_gguf_tokenizer import BPE, RAW, SPM
from vocabularies import EACH, NAMES, small

from akunu_py.system.errors import ConfigError
from akunu_py.tokenizers import ByteDetokenizer

TINY = {"bpe": BPE, "spm": SPM, "raw": RAW}
# What comes back is the text, but for this: SentencePiece and Gemma write a space as ▁, so they
# cannot tell one from the other.
SPACED = {"spm", "raw", "llama-spm", "phi-3", "gemma-4"}
# Their vocabularies lack tokens for the bytes of planes 4 and above.
WITHOUT_UPPER_PLANES = {"starcoder"}

texts = st.one_of(
    st.text(max_size=60),
    st.text(
        st.sampled_from("aé▁ \n\t\r\0'<|>🦙👩\u200d\u0301你\ufeff\ud7ff\ue000\U0010ffff"),
        max_size=40,
    ),
    st.text(st.characters(min_codepoint=0x10000), max_size=20),
)
examples = (
    "  two  spaces\n\n\tand\r\n lines ", "\0 nul, ▁ and \ud7ff\ue000\U0010ffff", "\n" * 40,
    " a  b ö 你好 🦙 <|im_end|> </s>", " ", "▁", "👩‍👩‍👧‍👦🏳️‍🌈e\u0301", "<0x0A>", "\r\n\r\n",
)  # fmt: skip


def expected(name, text):
    return text.replace("▁", " ") if name in SPACED else text


def check_small(text):
    for name in NAMES:
        tokenizer, _ = small(name)
        if fits(name, text):
            assert tokenizer.decode(tokenizer.encode(text)) == expected(name, text), name


def fits(name, text):
    return name not in WITHOUT_UPPER_PLANES or max(text, default="") < "\U00040000"


@settings(max_examples=settings.default.max_examples * 5 // 2)
@given(text=texts)
def test_every_text_comes_back(text):
    for name, tokenizer in TINY.items():
        assert tokenizer.decode(tokenizer.encode(text)) == expected(name, text), name


@settings(max_examples=settings.default.max_examples * 2)
@given(text=texts)
def test_every_text_comes_back_from_small_vocabularies(text):
    check_small(text)


@pytest.mark.parametrize("text", examples, ids=ascii)
def test_these_come_back(text):
    for name, tokenizer in TINY.items():
        assert tokenizer.decode(tokenizer.encode(text)) == expected(name, text), name
    check_small(text)


@pytest.mark.slow
@pytest.mark.parametrize(("make", "name"), EACH)
def test_every_character_comes_back(make, name):
    """One by one, and 4096 in a row."""
    tokenizer, _ = make(name)
    characters = [chr(code) for code in range(0x110000) if not 0xD800 <= code < 0xE000]
    characters = [character for character in characters if fits(name, character)]
    for start in range(0, len(characters), 4096):
        text = "".join(characters[start : start + 4096])
        assert tokenizer.decode(tokenizer.encode(text)) == expected(name, text)
    for character in characters[::17]:
        assert tokenizer.decode(tokenizer.encode(character)) == expected(name, character)


def check_portions(tokenizer, ids):
    """Fed in two portions, cut anywhere, and one by one, the text is that of all at once."""
    whole = tokenizer.decode(ids)
    for cut in range(len(ids) + 1):
        detokenizer = tokenizer.detokenizer()
        first = detokenizer.feed(ids[:cut])
        assert whole.startswith(first)
        assert first + detokenizer.feed(ids[cut:]) + detokenizer.finish() == whole
    detokenizer = tokenizer.detokenizer()
    assert "".join(detokenizer.feed([id_]) for id_ in ids) + detokenizer.finish() == whole


@settings(max_examples=settings.default.max_examples * 3 // 2)
@given(text=texts)
@example(text="🦙🦙 ö e\u0301 \U0010ffff")
def test_portions_do_not_matter(text):
    for tokenizer in TINY.values():
        check_portions(tokenizer, tokenizer.encode(text))


@settings(max_examples=settings.default.max_examples)
@given(data=st.data())
def test_portions_of_any_ids_do_not_matter(data):
    """What a model says need not be UTF-8: bytes that belong to no character become U+FFFD."""
    for tokenizer in TINY.values():
        id_ = st.integers(0, tokenizer.vocabulary_size - 1)
        ids = data.draw(st.lists(st.one_of(st.integers(0, 263), id_), max_size=16))
        check_portions(tokenizer, ids)
        data_ = b"".join(tokenizer._codec.token_bytes[id_] for id_ in ids)
        text = data_.decode("utf-8", "replace")
        assert tokenizer.decode(ids) == (text.removeprefix(" ") if tokenizer is SPM else text)


@pytest.mark.parametrize(("make", "name"), EACH)
def test_portions_do_not_matter_in_whole_vocabularies(make, name):
    tokenizer, _ = make(name)
    for text in make_texts(3, 40):
        check_portions(tokenizer, tokenizer.encode(text)[:80])


# Parts of characters on purpose: 🦙 is f0 9f a6 99, ö is c3 b6.
TABLE = (
    b"", b"a", b" ", b" a", b"\xc3", b"\xb6", b"\xf0\x9f", b"\xa6", b"\x99", b"\xff",
    b"\xc3\xb6", b"\xed\xa0\x80", b"\xf0", b"\xe4\xbd", b"\n", "🦙".encode(), b"\xc0",
)  # fmt: skip
portions = st.lists(st.lists(st.integers(0, len(TABLE) - 1), max_size=6), max_size=12)


@given(portions=portions, strip=st.booleans())
@example(portions=[[12], [6, 7], [8]], strip=False)
@example(portions=[[0], [2], [2], [1]], strip=True)
def test_portions_of_all_bytes_do_not_matter(portions, strip):
    detokenizer = ByteDetokenizer(TABLE, strip_space=strip)
    text = "".join(detokenizer.feed(portion) for portion in portions) + detokenizer.finish()
    data = b"".join(TABLE[id_] for portion in portions for id_ in portion)
    if strip:
        data = data.removeprefix(b" ")
    assert text == data.decode("utf-8", "replace")


def test_half_a_character_waits():
    detokenizer = ByteDetokenizer(TABLE, strip_space=False)
    assert [detokenizer.feed([id_]) for id_ in (1, 6, 7, 8, 4)] == ["a", "", "", "🦙", ""]
    assert detokenizer.finish() == "\ufffd"


def test_bytes_that_cannot_become_a_character_do_not_wait():
    detokenizer = ByteDetokenizer(TABLE, strip_space=False)
    assert detokenizer.feed([4, 1]) == "\ufffda"
    assert detokenizer.feed([9]) == "\ufffd"


def test_one_space_at_the_start_only():
    detokenizer = ByteDetokenizer(TABLE, strip_space=True)
    assert [detokenizer.feed([id_]) for id_ in (0, 2, 2, 3)] == ["", "", " ", " a"]


def test_an_id_outside_changes_nothing():
    detokenizer = ByteDetokenizer(TABLE, strip_space=True)
    for wrong in (-1, len(TABLE)):
        with pytest.raises(ConfigError, match="not in the vocabulary"):
            detokenizer.feed([3, wrong])
    assert detokenizer.feed([3]) == "a"
