"""Typing at a prompt, in prompt_toolkit's terms; imported where somebody types.

prompt_toolkit wraps typed text anywhere, here it wraps between words. prompt_toolkit also erases as
many rows as it drew. Most terminals wrap what they show anew when they get narrower, so there are
more rows by then, and the first ones would stay.
"""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from prompt_toolkit.application import Application
from prompt_toolkit.completion import CompleteEvent, Completer
from prompt_toolkit.completion import Completion as Offer
from prompt_toolkit.document import Document
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.history import History
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.layout.processors import Processor, Transformation, TransformationInput
from prompt_toolkit.layout.screen import Char, Screen
from prompt_toolkit.layout.utils import explode_text_fragments
from prompt_toolkit.shortcuts import choice
from prompt_toolkit.utils import get_cwidth

from akunu_py.cli.chat.commands import Completion

Keep = Callable[[str], str | None]


def choose(question: str, options: Sequence[tuple[str, str]]) -> str | None:
    """Let somebody choose by arrows or numbers; None where Esc or Ctrl-C leaves it."""
    keys = KeyBindings()

    @keys.add("escape", eager=True)
    def _(event: KeyPressEvent) -> None:
        event.app.exit(exception=KeyboardInterrupt())

    try:
        return choice(question, options=options, key_bindings=keys)
    except KeyboardInterrupt:
        return None


class HistoryOfThisRun(History):
    """A history for this run; `keep` says what is kept of an entry.

    `earlier` gives the entries of earlier runs, the latest first.
    """

    def __init__(self, earlier: Callable[[], Iterable[str]], keep: Keep) -> None:
        super().__init__()
        self._earlier = earlier
        self._keep = keep

    def append_string(self, string: str) -> None:
        kept = self._keep(string)
        if kept is not None:
            super().append_string(kept)

    def load_history_strings(self) -> Iterable[str]:
        return self._earlier()

    def store_string(self, string: str) -> None:
        """Do nothing: conversations are kept, and not what was typed."""


class AskingCompleter(Completer):
    """A completer that asks a function of the text before the cursor."""

    def __init__(self, complete: Callable[[str], Iterable[Completion]]) -> None:
        self._complete = complete

    def get_completions(
        self,
        document: Document,
        complete_event: CompleteEvent,  # noqa: ARG002 - prompt_toolkit's signature
    ) -> Iterable[Offer]:
        for completion in self._complete(document.text_before_cursor):
            yield Offer(completion.text, start_position=-completion.replaced)


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


_CUTS = ("linux", "rxvt", "screen")
"""Beginnings of TERM where rows are cut off instead; GNU screen's among them."""


def wraps_anew(environment: Mapping[str, str] = os.environ) -> bool:
    """Return whether a terminal that gets narrower wraps its rows, and does not cut them off."""
    if "TMUX" in environment:
        return True
    cuts = environment.get("TERM", "").startswith(_CUTS)
    return not cuts and "XTERM_VERSION" not in environment


class ResizedRows:
    """Erases the rows of an application that a narrower terminal has added by wrapping."""

    def __init__(self, app: Application[Any]) -> None:
        self._cells: list[int] = []  # of each row down to the cursor's
        self._cursor = 0  # its column
        app.after_render += self._remember
        app.before_render += self._erase

    def _remember(self, app: Application[Any]) -> None:
        screen = app.renderer.last_rendered_screen
        self._cells = []
        if screen is not None:
            place = screen.get_cursor_position(app.layout.current_window)
            self._cells = [_cells(screen, row) for row in range(place.y + 1)]
            self._cursor = place.x

    def _erase(self, app: Application[Any]) -> None:
        columns = max(1, app.output.get_size().columns)
        if max(self._cells, default=0) <= columns:
            return
        *above, last = (max(1, -(-cells // columns)) for cells in self._cells)
        added = sum(above) - len(above) + min(self._cursor // columns, last - 1)
        # Row by row: tmux keeps a copy of a screen that is erased from its top.
        app.output.write_raw("\r")
        for _ in range(added):
            app.output.cursor_up(1)
            app.output.erase_end_of_line()


def _cells(screen: Screen, row: int) -> int:
    """Return the cells of a row up to its last letter; blanks behind it are not written."""
    letters: Mapping[int, Char] = screen.data_buffer[row]
    return max(
        (place + cell.width for place, cell in letters.items() if cell.char != " "), default=0
    )
