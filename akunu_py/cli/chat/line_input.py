"""Where messages come from: a terminal, by prompt_toolkit, or a pipe, line by line."""

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, TextIO

import click

from akunu_py.cli.chat.commands import BLOCK, Completion
from akunu_py.cli.input_text import MOST_BYTES, decode_input
from akunu_py.cli.terminal import echo, is_dumb, printable

if TYPE_CHECKING:
    from prompt_toolkit.application import Application
    from prompt_toolkit.input import Input
    from prompt_toolkit.key_binding import KeyBindings
    from prompt_toolkit.output import Output

_FIRST, _NEXT = "> ", "  "
"""Before the first row typed, and the others."""
_DUMB_NEXT = "... "
_PROMPT_STYLE = "bold fg:#0087d7"

_SHOWN_CHARACTERS, _SHOWN_LINES = 1_000, 10
"""Pastes above either are shown by their size.

Drawing a megabyte at each key takes seconds, and what is taller than the screen is drawn twice.
"""

_KEPT_CHARACTERS = 10_000
"""Of a message that the history keeps."""


@dataclass(frozen=True, slots=True)
class InputLine:
    """What was read; `quoted` where it stood in three quotes, and so is not a command."""

    text: str
    quoted: bool = False


class PlainLines:
    """Lines of standard input; one that begins with three quotes goes on to the next three.

    `first` and `next_` are shown before the first line and the others of what is read.
    """

    def __init__(self, first: str = "", next_: str = "") -> None:
        self._first, self._next = first, next_
        self._num_bytes = 0

    def read(self) -> InputLine:
        """Return the next line or block, which the end of input ends as well.

        Raises EOFError at that end, and click.UsageError for a line that is not UTF-8 or too long.
        """
        text = self._read_line(self._first)
        if not text.lstrip().startswith(BLOCK):
            return InputLine(text)
        with suppress(EOFError):
            while not _closed(text):
                text += "\n" + self._read_line(self._next)
        return _line(text)

    def _read_line(self, prompt: str) -> str:
        if prompt:
            click.echo(prompt, nl=False, file=shown_on())
        with echo(True):
            data = sys.stdin.buffer.readline(MOST_BYTES + 1)
        if not data:
            raise EOFError
        text = decode_input(data, "standard input", self._num_bytes)
        self._num_bytes += len(data)
        return text.removesuffix("\n").removesuffix("\r")


class TypedLines:
    """Lines typed at a terminal.

    Args:
        earlier: gives what was typed in earlier runs, the latest first; asked at the first line.
        complete: gives what may complete the text before the cursor.
        source: keys, and `screen`: where they are shown; the terminal where None.

    """

    def __init__(
        self,
        earlier: Callable[[], Iterable[str]],
        complete: Callable[[str], Iterable[Completion]],
        *,
        source: "Input | None" = None,
        screen: "Output | None" = None,
    ) -> None:
        from prompt_toolkit import PromptSession  # 0.2 s that --help must not pay
        from prompt_toolkit.output import create_output
        from prompt_toolkit.shortcuts import CompleteStyle

        from akunu_py.cli.chat.typing_aids import (
            AskingCompleter,
            HistoryOfThisRun,
            ResizedRows,
            WordWrap,
            wraps_anew,
        )

        self._pastes: dict[str, str] = {}
        self._shown_on = shown_on()
        self._session: PromptSession[str] = PromptSession(
            [(_PROMPT_STYLE, _FIRST)],
            multiline=True,
            prompt_continuation=_NEXT,
            history=HistoryOfThisRun(earlier, self._kept),
            completer=AskingCompleter(complete),
            complete_while_typing=False,
            complete_style=CompleteStyle.READLINE_LIKE,
            reserve_space_for_menu=0,
            input_processors=[WordWrap(len(_FIRST))],
            key_bindings=self._keys(),
            enable_suspend=True,
            tempfile_suffix=".md",
            input=source,
            output=screen or create_output(self._shown_on),
        )
        self._session.app.before_render += self._spare_first_row
        if wraps_anew():
            ResizedRows(self._session.app)

    def read(self) -> InputLine:
        """Return the line typed up to Enter.

        Raises EOFError for Ctrl-D, and KeyboardInterrupt for Ctrl-C at an empty line.
        """
        self._pastes.clear()
        app = self._session.app
        app.erase_when_done = False
        typed = self._session.prompt()
        if app.erase_when_done:
            app.output.cursor_goto(1, 1)
            app.output.erase_end_of_line()
            app.output.flush()
            columns = app.output.get_size().columns
            echo = f"\n{_NEXT}".join(prompt_rows(printable(typed, self._shown_on), columns))
            click.echo(f"{self._first()}{echo}", file=self._shown_on)
        text = self._expanded(typed)
        return _line(text) if text.lstrip().startswith(BLOCK) else InputLine(text)

    def _first(self) -> str:
        """Return the prompt before the first row, with the codes of its style."""
        plain = self._session.app.color_depth.value == "DEPTH_1_BIT"
        return click.style(_FIRST, bold=True, fg=None if plain else 32)

    def _keys(self) -> "KeyBindings":
        from prompt_toolkit.enums import DEFAULT_BUFFER
        from prompt_toolkit.filters import completion_is_selected, has_focus
        from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
        from prompt_toolkit.keys import Keys

        keys = KeyBindings()
        # Not in the field of Ctrl-R, where Enter and Ctrl-C end the search alone.
        typing = has_focus(DEFAULT_BUFFER)

        @keys.add("enter", filter=typing & ~completion_is_selected)
        def _(event: KeyPressEvent) -> None:
            buffer = event.current_buffer
            text = self._expanded(buffer.text)
            if text.lstrip().startswith(BLOCK) and not _closed(text):
                buffer.insert_text("\n")
            else:
                rows, columns = event.app.output.get_size()
                height = event.app.layout.current_window.preferred_height(columns, rows + 1)
                if height.preferred > rows:
                    self._accept_tall(event.app)
                else:
                    buffer.validate_and_handle()

        @keys.add("escape", "enter", filter=typing)
        def _(event: KeyPressEvent) -> None:
            event.current_buffer.insert_text("\n")

        @keys.add("c-x", "c-e", filter=typing)
        def _(event: KeyPressEvent) -> None:
            event.current_buffer.open_in_editor()

        @keys.add("c-c", filter=typing)
        def _(event: KeyPressEvent) -> None:
            if event.current_buffer.text:
                event.current_buffer.reset()
            else:
                event.app.exit(exception=KeyboardInterrupt())

        @keys.add(Keys.BracketedPaste)
        def _(event: KeyPressEvent) -> None:
            text = event.data.replace("\r\n", "\n").replace("\r", "\n")
            event.current_buffer.insert_text(self._shortened(text))

        return keys

    def _accept_tall(self, app: "Application[str]") -> None:
        """Accept what is taller than the screen, and leave nothing of it there.

        prompt_toolkit would draw its last screenful once more, and nothing of what is above.
        """
        buffer = app.current_buffer
        text = buffer.text
        buffer.append_to_history()
        buffer.reset()
        app.erase_when_done = True
        app.exit(result=text)

    @staticmethod
    def _spare_first_row(app: "Application[str]") -> None:
        """Have a screen erased from its second row on.

        Erased from its top it counts as scrolled out on some terminals, and is seen there.
        """
        if app.is_done and app.erase_when_done:
            app.output.cursor_goto(2, 1)
            app.renderer.reset()

    def _shortened(self, text: str) -> str:
        """Return a paste, or for a long one words that stand for it."""
        if len(text) <= _SHOWN_CHARACTERS and text.count("\n") < _SHOWN_LINES:
            return text
        words = f"[paste {len(self._pastes) + 1}: {len(text):,} characters]"
        self._pastes[words] = text
        return words

    def _expanded(self, text: str) -> str:
        for words, paste in self._pastes.items():
            text = text.replace(words, paste, 1)
        return text

    def _kept(self, text: str) -> str | None:
        """Return the part of a message that the history keeps; None for nothing."""
        text = self._expanded(text)
        return text if len(text) <= _KEPT_CHARACTERS else None


Lines = PlainLines | TypedLines
"""A source of messages."""


def open_lines(
    earlier: Callable[[], Iterable[str]], complete: Callable[[str], Iterable[Completion]]
) -> tuple[Lines, bool]:
    """Return standard input, and whether somebody types it; for both see `TypedLines`."""
    if not (sys.stdin.isatty() and (sys.stdout.isatty() or sys.stderr.isatty())):
        return PlainLines(), False
    if is_dumb():
        return PlainLines(_FIRST, _DUMB_NEXT), True
    return TypedLines(earlier, complete), True


def shown_on() -> TextIO:
    """Return where prompts go: standard output may be a file that wants the replies alone."""
    return sys.stdout if sys.stdout.isatty() else sys.stderr


def prompt_rows(text: str, columns: int) -> Iterator[str]:
    """Yield the rows that a text takes behind a prompt, wrapped as it was while it was typed."""
    from akunu_py.cli.chat.typing_aids import row_starts  # prompt_toolkit

    width = columns - len(_FIRST)
    for line in text.split("\n"):
        starts = row_starts(line, max(1, width))
        for begin, end in pairwise([*starts, len(line)]):
            yield line[begin:end].rstrip(" ") if end < len(line) else line[begin:end]


def _closed(text: str) -> bool:
    """Whether the last line of a text that begins with three quotes ends with three others."""
    last = text.rpartition("\n")[2]
    return last.rstrip().endswith(BLOCK) and len(text.strip()) >= 2 * len(BLOCK)


def _line(text: str) -> InputLine:
    """Return the text between three quotes and the next."""
    inner = text.strip().removeprefix(BLOCK).removesuffix(BLOCK)
    return InputLine(inner.strip("\n"), quoted=True)
