"""What is done so far, on stderr: a bar on a terminal, a line now and then elsewhere."""

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
        yield from _bar(unit, waiting or unit)
    else:
        if waiting:
            click.echo(f"akunu: {waiting}", err=True)
        said = monotonic()

        def say(done: int, total: int) -> None:
            nonlocal said
            now = monotonic()
            if now - said >= _EVERY_S:
                said = now
                click.echo(f"akunu: {done}/{total} {unit}", err=True)

        yield say


def _bar(unit: str, waiting: str) -> Iterator[Count]:
    """Yield a callback that draws a bar, with the time left."""
    from rich.console import Console  # 0.1 s that --help must not pay
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TimeRemainingColumn(compact=True),
        console=Console(stderr=True),
        transient=True,
        # A thread that redraws would take its share of the machine that is measured.
        auto_refresh=False,
        # By default a step of half a minute leaves no pace to tell the time left by.
        speed_estimate_period=24 * 3600,
    ) as bar:
        task = bar.add_task(waiting, total=None)
        bar.refresh()
        yield lambda done, total: bar.update(
            task, description=f"{done}/{total} {unit}", completed=done, total=total, refresh=True
        )
