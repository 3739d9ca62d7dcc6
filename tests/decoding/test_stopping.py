"""Stop texts across pieces, and end ids inside a step."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from akunu_py.decoding.stats import cut_step
from akunu_py.decoding.stopping import StopTexts, cut_at_end
from akunu_py.errors import ConfigError
from akunu_py.types import StepStats


@given(
    st.lists(st.text("abc", max_size=4), max_size=12),
    st.lists(st.text("abc", min_size=1, max_size=4), max_size=3),
)
def test_pieces_give_what_the_whole_text_gives(pieces, stops):
    whole = "".join(pieces)
    found = [whole.find(stop) for stop in stops if stop in whole]
    filter_ = StopTexts(stops)
    shown, stopped = "", False
    for piece in pieces:
        text, stopped = filter_.feed(piece)
        shown += text
        if stopped:
            break
    if not stopped:
        shown += filter_.finish()
    assert stopped == bool(found)
    if not found:
        assert shown == whole
    else:
        # The stop text that was completed first decides; nothing of any stop text is shown.
        assert whole.startswith(shown)
        assert not any(stop in shown for stop in stops)
        assert any(whole[len(shown) :].startswith(stop) for stop in stops)


def test_only_what_may_become_a_stop_text_is_held_back():
    stops = StopTexts(["</end>"])
    assert stops.feed("a <") == ("a ", False)
    assert stops.feed("/en") == ("", False)
    assert stops.feed("x") == ("</enx", False)
    assert stops.feed("</end> tail") == ("", True)


def test_the_stop_text_that_begins_first_ends_the_reply_whatever_their_order():
    for stops in (["b", "a"], ["a", "b"]):
        assert StopTexts(stops).feed("xab") == ("x", True)


@pytest.mark.parametrize("stop", ["x", "</", "</end>"])
def test_a_stop_text_is_held_back_to_its_last_character(stop):
    stops = StopTexts(["another", stop])
    assert [stops.feed(character) for character in stop[:-1]] == [("", False)] * (len(stop) - 1)
    assert stops.feed(stop[-1]) == ("", True)


def test_without_stop_texts_everything_passes():
    assert StopTexts(()).feed("abc") == ("abc", False)


@pytest.mark.parametrize("stops", ["abc", ["a", ""]])
def test_malformed_stop_texts(stops):
    with pytest.raises(ConfigError):
        StopTexts(stops)


def test_cut_at_end():
    assert cut_at_end((1, 2, 3), {2, 3}) == ((1, 2), True)
    assert cut_at_end((1, 2, 3), ()) == ((1, 2, 3), False)


def test_a_cut_step_counts_what_the_reply_kept():
    step = StepStats("x", 4, 4, 3, 4, "recovered", 0.0, 0.0, 0.0)
    cut = cut_step(step, 2)
    assert (cut.num_accepted_tokens, cut.num_tested_tokens, cut.num_output_tokens) == (2, 2, 2)
    assert cut_step(step, 4) is step
