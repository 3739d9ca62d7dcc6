"""Text that others wrote, next to akunu's own."""

import unicodedata

import pytest

from akunu_py.system.errors import AkunuError, ConfigError, MemoryLimitError, ModelFormatError
from akunu_py.system.shown_text import harmless, one_line

# UAX #9: marks, embeddings, overrides, isolates, and what is deprecated besides.
DIRECTIONS = [0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x2070)]


def test_all_control_characters_but_newline_and_tab_are_replaced():
    control = [code for code in range(0x110000) if unicodedata.category(chr(code)) == "Cc"]
    for code in [*control, *DIRECTIONS, 0x2028, 0x2029]:
        kept = chr(code) in "\n\t"
        assert harmless(f"a{chr(code)}b") == (f"a{chr(code)}b" if kept else "a\ufffdb"), hex(code)


def test_nothing_with_a_strong_or_embedding_direction_of_its_own_is_left():
    """By Unicode's own classes, whatever later versions add."""
    moving = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI", "B"}
    left = [
        code
        for code in range(0x110000)
        if unicodedata.bidirectional(chr(code)) in moving and harmless(chr(code)) == chr(code)
    ]
    assert left == [0x0A]


@pytest.mark.parametrize(
    "text", ["naïve שלום مرحبا 你好", "👩‍👩‍👧‍👦 🏳️‍🌈", "می\u200cخواهم", "a\tb\nc"]
)
def test_other_text_stays(text):
    assert harmless(text) == text


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r", "\v", "\f", "\x85", "\u2028", "\u2029"])
def test_no_text_looks_like_a_second_line(end):
    assert one_line(f"boom{end}Error: all is well") == "boom Error: all is well"
    for kind in (AkunuError, ModelFormatError, ConfigError, MemoryLimitError):
        message = str(kind(f"boom{end}Error: all is well\x1b[2J"))
        assert message.splitlines() == ["boom Error: all is well\ufffd[2J"]


def test_choices_are_lines_of_their_own():
    error = ConfigError("there are two; choose one of", choices=["a\r\nError: b", "c"])
    assert str(error) == "there are two; choose one of\n  a Error: b\n  c"
    assert error.message == "there are two; choose one of"


def test_a_message_with_a_whole_file_in_it_keeps_its_ends():
    message = ConfigError("x is " + "a" * 100_000 + ", not a number; download it again").message
    assert message.startswith("x is aaa")
    assert message.endswith("aaa, not a number; download it again")
    assert 1000 < len(message) <= 2000
    assert ConfigError("a" * 2000).message == "a" * 2000
