"""Tables of notes: names, values and words about them."""

import textwrap
from collections.abc import Iterable, Iterator, Mapping

_LEAST_WORDS = 24
"""Columns for words beside name and value; where there are fewer the words go below."""


def tables(groups: Mapping[str, Iterable[tuple[str, str, str]]], width: int | None) -> str:
    """Return rows of name, value and words below the titles of their groups, "" for no title.

    Words are wrapped within `width` columns, if it is given.
    """
    rows = {title: list(group) for title, group in groups.items()}
    flat = [row for group in rows.values() for row in group]
    names = max(len(name) for name, _, _ in flat) + 2
    values = max(len(value) + 2 * bool(value) for _, value, _ in flat)
    lines = []
    for title, group in rows.items():
        lines += [title] if title else []
        for name, value, words in group:
            lines += _row(f"  {name:{names}}{value:{values}}", words, width)
    return "\n".join(lines)


def _row(beginning: str, words: str, width: int | None) -> Iterator[str]:
    if width is None:
        yield f"{beginning}{words}"
        return
    indent = len(beginning)
    if width - indent < _LEAST_WORDS:
        yield beginning.rstrip()
        indent = 4
        beginning = " " * indent
    yield from textwrap.wrap(
        words, max(width, indent + 1), initial_indent=beginning,
        subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip
