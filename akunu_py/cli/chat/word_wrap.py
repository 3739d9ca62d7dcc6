"""Typed text that wraps between words; prompt_toolkit wraps anywhere."""

from collections.abc import Sequence
from itertools import pairwise

from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.layout.processors import Processor, Transformation, TransformationInput
from prompt_toolkit.layout.utils import explode_text_fragments
from prompt_toolkit.utils import get_cwidth


def row_starts(text: str, width: int) -> list[int]:
    """Return where the rows of a line begin that holds `width` cells a row.

    Blanks at the end of a row take no place on it, and a word longer than a row is cut.
    """
    starts = [0]
    used = word = 0  # cells of the row, and of its last word
    word_start = 0
    for place, letter in enumerate(text):
        cells = get_cwidth(letter)
        if letter == " ":
            used = min(width, used + 1)
            word, word_start = 0, place + 1
            continue
        if used + cells > width:
            if word_start > starts[-1]:
                starts.append(word_start)
                used = word
            else:
                starts.append(place)
                used = word = 0
                word_start = place
        used += cells
        word += cells
    return starts


class WordWrap(Processor):
    """Fills rows up with blanks, so that the next word begins a row of its own.

    `prefix` is the cells of what stands before each row.
    """

    def __init__(self, prefix: int) -> None:
        self._prefix = prefix

    def apply_transformation(self, transformation_input: TransformationInput) -> Transformation:
        """Return a line as it is shown."""
        fragments = transformation_input.fragments
        width = transformation_input.width - self._prefix
        letters = explode_text_fragments(fragments)
        text = "".join(letter[1] for letter in letters)
        starts = row_starts(text, width) if width > 0 else [0]
        if len(starts) == 1:
            return Transformation(fragments)
        return _filled(letters, text, starts, width)


def _filled(
    letters: StyleAndTextTuples, text: str, starts: Sequence[int], width: int
) -> Transformation:
    shown: StyleAndTextTuples = []
    places: list[int] = []  # where each letter of the text is shown
    letter_at: list[int] = []  # which letter is shown at each place
    for begin, end in pairwise([*starts, len(text)]):
        left = width
        for place in range(begin, end):
            cells = get_cwidth(text[place])
            places.append(len(shown))
            if cells <= left:
                shown.append(letters[place])
                letter_at.append(place)
                left -= cells
        if end < len(text):
            letter_at += [end - 1] * left
            shown += [("", " ")] * left
    places.append(len(shown))
    letter_at.append(len(text))

    def source_to_display(place: int) -> int:
        return places[place] if place < len(places) else len(shown)

    def display_to_source(place: int) -> int:
        return letter_at[place] if place < len(letter_at) else len(text)

    return Transformation(shown, source_to_display, display_to_source)
