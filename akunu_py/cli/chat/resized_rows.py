"""Typed rows on a terminal that changes its width.

prompt_toolkit erases as many rows as it drew. Most terminals wrap what they show anew when they get
narrower, so there are more rows by then, and the first ones would stay.
"""

import os
from collections.abc import Mapping
from typing import Any

from prompt_toolkit.application import Application
from prompt_toolkit.layout.screen import Char, Screen

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
