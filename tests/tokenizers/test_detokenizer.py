"""The detokenizer: fed in any portions, the text is that of all tokens at once."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from akunu_py.system.errors import ConfigError
from akunu_py.tokenizers import ByteDetokenizer

# Parts of characters on purpose: 🦙 is f0 9f a6 99, ö is c3 b6.
TABLE = (
    b"", b"a", b" ", b" a", b"\xc3", b"\xb6", b"\xf0\x9f", b"\xa6", b"\x99", b"\xff",
    b"\xc3\xb6", b"\xed\xa0\x80", b"\xf0", b"\xe4\xbd", b"\n", "🦙".encode(), b"\xc0",
)  # fmt: skip
portions = st.lists(st.lists(st.integers(0, len(TABLE) - 1), max_size=6), max_size=12)


@given(portions=portions, strip=st.booleans())
@example(portions=[[12], [6, 7], [8]], strip=False)
@example(portions=[[0], [2], [2], [1]], strip=True)
def test_portions_do_not_matter(portions, strip):
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
