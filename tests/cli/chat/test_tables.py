"""Tables of notes."""

from akunu_py.cli.chat.tables import tables

ROWS = {"Title": [("name", "1", "some words about it"), ("other", "22", "more")]}


def test_words_stand_beside_their_value():
    assert tables(ROWS, None) == ("Title\n  name   1   some words about it\n  other  22  more")
