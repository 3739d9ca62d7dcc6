"""What is counted, on stderr: a bar on a terminal, a line now and then elsewhere."""

import contextlib
import sys
from collections.abc import Callable, Iterator
from time import monotonic

import click

from akunu_py.cli.verbosity import is_quiet

_EVERY_S = 10.0

Count = Callable[[int, int], None]


@contextlib.contextmanager
def count_progress(unit: str, waiting: str = "") -> Iterator[Count]:
    """Give a callback for what is done and what there is to do, in `unit`s.

    `waiting` is shown until its first call. With --quiet nothing is.
    """
    if is_quiet():
        yield lambda _done, _total: None
    elif sys.stderr.isatty():
        with _bar(unit, waiting) as progress:
            yield progress
    else:
        yield _lines(unit, waiting)


def _lines(unit: str, waiting: str) -> Count:
    """Return a callback for a file or a pipe, which prints a line every `_EVERY_S` at most."""
    if waiting:
        click.echo(f"akunu: {waiting}", err=True)
    said = monotonic()

    def progress(done: int, total: int) -> None:
        nonlocal said
        now = monotonic()
        if now - said >= _EVERY_S:
            said = now
            click.echo(f"akunu: {done}/{total} {unit}", err=True)

    return progress


@contextlib.contextmanager
def _bar(unit: str, waiting: str) -> Iterator[Count]:
    from rich.console import Console  # noqa: PLC0415 - 0.1 s that --help must not pay
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn  # noqa: PLC0415

    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
        # A thread that redraws would take its share of the machine that is measured.
        auto_refresh=False,
    )
    with bar:
        task = bar.add_task(waiting or unit, total=None)
        bar.refresh()

        def progress(done: int, total: int) -> None:
            description = f"{done}/{total} {unit}"
            bar.update(task, description=description, completed=done, total=total, refresh=True)

        yield progress
