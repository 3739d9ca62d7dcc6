"""Tables of notes: names, values and words about them, such as a conversation's statistics."""

import textwrap
from collections.abc import Iterable, Iterator, Mapping

from akunu_py.values.types import DecodeStats

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


def statistics_rows(stats: DecodeStats) -> Iterator[tuple[str, str, str]]:
    """Yield name, value and meaning of each number that is known."""
    yield "tokens", f"{stats.output_tokens:,}", "written by the model"
    yield (
        "passes", f"{stats.steps:,}",
        "runs of the model; each checks a draft and adds a token of its own",
    )  # fmt: skip
    if stats.tokens_per_pass is not None:
        yield (
            "tokens a pass", f"{stats.tokens_per_pass:.2f}",
            "1 without drafting; more is faster, unless the larger passes cost too much",
        )  # fmt: skip
    if stats.fire_rate is not None:
        yield "fire rate", f"{stats.fire_rate:.0%}", "passes that checked a draft"
    if stats.hit_rate is not None and stats.alpha is not None:
        yield "drafted", f"{stats.drafted:,}", "tokens guessed from earlier text"
        yield "accepted", f"{stats.accepted:,}", "guesses that were the model's own choice"
        yield "hit rate", f"{stats.hit_rate:.0%}", "accepted of drafted"
        yield (
            "alpha", f"{stats.alpha:.0%}",
            "accepted of those compared; guesses after a wrong one are not",
        )  # fmt: skip
