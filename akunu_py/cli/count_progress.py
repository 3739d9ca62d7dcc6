"""A bar on stderr for what is counted, where that is a terminal and --quiet was not given."""

import contextlib
import sys
from collections.abc import Callable, Iterator

from akunu_py.cli.verbosity import is_quiet


@contextlib.contextmanager
def count_progress(unit: str, waiting: str = "") -> Iterator[Callable[[int, int], None]]:
    """Give a callback for what is done and what there is to do, in `unit`s.

    `waiting` is shown until its first call.
    """
    if is_quiet() or not sys.stderr.isatty():
        yield lambda _done, _total: None
        return
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
