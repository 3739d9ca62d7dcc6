"""How the result of a measurement is printed."""

import os
import sys
from typing import TYPE_CHECKING, Any

import click

from akunu_py.cli.terminal import printable

if TYPE_CHECKING:
    from rich.console import Console

    from akunu_py.bench.result_file import BenchResult
    from akunu_py.bench.tables import Table

INTERRUPTED = 130
"""Exit code after Ctrl-C: 128 and the number of the signal, as shells have it."""

_WIDTH_OF_A_FILE = 100
"""Columns of a table that does not go to a terminal."""

_WIDEST = 1000
"""Columns in which every table can be laid out without a cut."""


def end_command(result: "BenchResult", hint: str, unwritten: Exception | None) -> None:
    """Name doubts, failures and an interrupt on stderr, and end with their exit code.

    Raises `unwritten`, if anything could not be written.
    """
    for doubt in result.doubts:
        click.echo(printable(f"implausible costs of passes: {doubt}", sys.stderr), err=True)
    for failure in result.failures:
        click.echo(printable(f"failed: {failure.item}: {failure.error}", sys.stderr), err=True)
    if unwritten is not None:
        raise unwritten
    if not result.finished:
        items = f"{len(result.items)} item{'' if len(result.items) == 1 else 's'}"
        said = f"unfinished: interrupted after {items}"
        click.echo("; ".join(filter(None, [said, hint])), err=True)
        raise click.exceptions.Exit(INTERRUPTED)
    if result.failures and not result.items:
        raise click.exceptions.Exit(1)


def print_tables(result: "BenchResult", head: str, tail: str) -> None:
    """Print the tables that are not details, `head` above and `tail` below them."""
    from rich.console import Console  # 0.1 s that --help must not pay
    from rich.text import Text

    # COLUMNS is how a test or a user says how wide a terminal is; rich reads it by itself.
    known = sys.stdout.isatty() or "COLUMNS" in os.environ
    console = Console(width=None if known else _WIDTH_OF_A_FILE, highlight=False)
    shown = [table for table in result.tables if not table.detail]
    if head:
        # Text, not markup: a model's name may hold brackets.
        console.print(Text(printable(head)))
    for number, table in enumerate(shown):
        if number:
            console.print()
        if table.title:
            console.print(Text(printable(table.title), style="bold"))
        console.print(rich_table(table, console))
        if table.note:
            console.print(Text(printable(table.note), style="dim"))
    if tail:
        console.print(Text(printable(tail)))
    if not result.finished:
        console.print(Text("Unfinished: the run was interrupted.", style="bold"))


def rich_table(table: "Table", console: "Console") -> Any:
    """Return a table without the columns that are details, as wide as the console lets it be."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table as RichTable
    from rich.text import Text

    table = table.on_terminal()
    drawn = RichTable(
        box=SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        collapse_padding=True,
        padding=(0, 1, 0, 0),
    )
    for index, column in enumerate(table.columns):
        flush_right = table.is_number_column(index)
        drawn.add_column(
            Text(printable(column.heading)),
            justify="right" if flush_right else "left",
            no_wrap=flush_right or index == 0,
        )
    first_total = len(table.rows) - table.total_rows
    for number, row in enumerate(table.rows):
        if number == first_total:
            drawn.add_section()
        cells = [c.text(cell) for c, cell in zip(table.columns, row, strict=True)]
        drawn.add_row(
            *(Text(printable(cell)) for cell in cells),
            style="bold" if number >= first_total else None,
        )
    # One column stays free: a terminal that is written full breaks the line.
    wide = console.options.update(max_width=_WIDEST)
    if console.measure(drawn, options=wide).maximum >= console.width:
        drawn.padding = 0
    return drawn
