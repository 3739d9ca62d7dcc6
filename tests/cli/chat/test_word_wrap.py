"""What is typed wraps between words."""

from itertools import pairwise

from hypothesis import example, given
from hypothesis import strategies as st
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.document import Document
from prompt_toolkit.formatted_text import fragment_list_to_text
from prompt_toolkit.layout.controls import BufferControl
from prompt_toolkit.layout.processors import TransformationInput
from prompt_toolkit.utils import get_cwidth

from akunu_py.cli.chat.typing_aids import WordWrap, row_starts


def rows(text, width):
    starts = [*row_starts(text, width), len(text)]
    return [text[begin:end] for begin, end in pairwise(starts)]


TEXTS = st.text("ab 中", max_size=40)


@given(TEXTS, st.integers(2, 12))
@example("aaaa bbb", 4)
def test_no_row_is_too_wide_and_nothing_is_lost(text, width):
    found = rows(text, width)
    assert "".join(found) == text
    assert all(sum(map(get_cwidth, row.rstrip(" "))) <= width for row in found)
    for row, after in pairwise(found):
        # A word is cut only where it is longer than a row.
        if not row.endswith(" "):
            word = (row.rpartition(" ")[2] + after.partition(" ")[0]).strip()
            assert sum(map(get_cwidth, word)) > width


def shown(text, columns):
    given_ = TransformationInput(
        BufferControl(Buffer()), Document(text), 0, lambda place: place, [("", text)], columns, 10
    )
    return WordWrap(2).apply_transformation(given_)


@given(TEXTS, st.integers(4, 14))
def test_rows_are_filled_up_and_places_go_there_and_back(text, columns):
    transformation = shown(text, columns)
    display = fragment_list_to_text(transformation.fragments)
    width = columns - 2
    begin = 0
    for row in rows(text, width)[:-1]:
        # prompt_toolkit breaks a row where it is full: each but the last is.
        end, cells = begin, 0
        while cells + get_cwidth(display[end]) <= width and cells < width:
            cells += get_cwidth(display[end])
            end += 1
        assert display[begin:end].rstrip(" ") == row.rstrip(" ")[: end - begin].rstrip(" ")
        begin = end
    assert "".join(display.split()) == "".join(text.split())
    places = [transformation.source_to_display(place) for place in range(len(text) + 1)]
    assert places == sorted(places)
    for place, letter in enumerate(text):
        if letter != " ":
            assert display[places[place]] == letter
            assert transformation.display_to_source(places[place]) == place
    assert transformation.source_to_display(len(text)) == len(display)
    assert transformation.display_to_source(len(display)) == len(text)
