"""What is done so far, on stderr: a bar on a terminal, a line now and then elsewhere."""

import contextlib
import sys
from collections.abc import Callable, Iterator
from time import monotonic

import click

from akunu_py.cli.verbosity import is_quiet

_EVERY_S = 10.0

_AT_ONCE_S = 0.05
"""What an earlier run has finished is counted within this time."""

Count = Callable[[int, int], None]


@contextlib.contextmanager
def count_progress(unit: str, waiting: str = "") -> Iterator[Count]:
    """Give a callback for what is done and what there is to do, in `unit`s.

    `waiting` is shown until its first call. With --quiet nothing is.
    """
    left = _TimeLeft()
    if is_quiet():
        yield lambda _done, _total: None
    elif sys.stderr.isatty():
        with _bar(waiting or unit) as show:
            yield lambda done, total: show(
                f"{done}/{total} {unit}", done, total, left.text(done, total)
            )
    else:
        if waiting:
            click.echo(f"akunu: {waiting}", err=True)
        said = monotonic()

        def say(done: int, total: int) -> None:
            nonlocal said
            now = monotonic()
            words = ", ".join(filter(None, [f"{done}/{total} {unit}", left.text(done, total)]))
            if now - said >= _EVERY_S:
                said = now
                click.echo(f"akunu: {words}", err=True)

        yield say


class _TimeLeft:
    """What the rest takes at the pace since the first call, without what was there at once."""

    def __init__(self) -> None:
        self._first: tuple[float, int] | None = None

    def text(self, done: int, total: int) -> str:
        """Return the time left in words, "" until there is a pace and at the end."""
        now = monotonic()
        if self._first is None:
            self._first = (now, done)
        began, before = self._first
        if now - began < _AT_ONCE_S:
            self._first = (began, done)
            return ""
        if done <= before or done >= total:
            return ""
        seconds = (now - began) / (done - before) * (total - done)
        for unit, size in (("h", 3600), ("min", 60)):
            # Two figures are enough for a guess.
            if seconds >= 1.5 * size:
                return f"about {seconds / size:.{0 if seconds >= 10 * size else 1}f} {unit} left"
        return f"about {max(1, round(seconds))} s left"


@contextlib.contextmanager
def _bar(description: str) -> "Iterator[Callable[[str, int, int, str], None]]":
    """Give a callback that draws a bar: its words, what is done and in all, words behind it."""
    from rich.console import Console  # 0.1 s that --help must not pay
    from rich.progress import BarColumn, Progress, TextColumn

    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        # Rich's own has no figure where a step takes half a minute.
        TextColumn("{task.fields[left]}"),
        console=Console(stderr=True),
        transient=True,
        # A thread that redraws would take its share of the machine that is measured.
        auto_refresh=False,
    ) as bar:
        task = bar.add_task(description, total=None, left="")
        bar.refresh()
        yield lambda text, done, total, left: bar.update(
            task, description=text, completed=done, total=total, left=left, refresh=True
        )
