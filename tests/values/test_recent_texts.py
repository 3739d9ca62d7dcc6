"""Texts that are kept within a bound."""

import pytest

from akunu_py.values.recent_texts import RecentTexts


@pytest.mark.parametrize("bounds", [{"most_bytes": 4}, {"most": 2}])
def test_the_least_recently_used_go_first(bounds):
    texts = RecentTexts(**bounds)
    texts.keep("a", b"12")
    texts.keep("b", b"12")
    assert texts.get("a") == b"12"
    texts.keep("c", b"12")
    assert [texts.get(key) for key in "abc"] == [b"12", None, b"12"]
    # A text kept again takes its place once.
    texts.keep("c", b"34")
    assert [texts.get(key) for key in "abc"] == [b"12", None, b"34"]


def test_a_text_that_does_not_fit_is_not_kept():
    texts = RecentTexts(most_bytes=4)
    texts.keep("a", b"12345")
    assert texts.get("a") is None
    texts.keep("b", b"1234")
    assert texts.get("b") == b"1234"
