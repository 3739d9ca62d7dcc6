"""Tables of notes."""

from akunu_py.cli.chat.tables import tables

ROWS = {"Title": [("name", "1", "some words about it"), ("other", "22", "more")]}


def test_words_stand_beside_their_value():
    assert tables(ROWS, None) == ("Title\n  name   1   some words about it\n  other  22  more")


def test_on_a_narrow_screen_they_wrap_and_then_stand_below():
    words = {"": [("name", "value", "one two three four five six seven")]}
    assert tables(words, 42).split("\n") == [
        "  name  value  one two three four five six", "               seven",
    ]  # fmt: skip
    assert tables(words, 30).split("\n") == [
        "  name  value", "    one two three four five", "    six seven",
    ]  # fmt: skip
