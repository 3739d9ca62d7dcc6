"""How commands under `akunu bench` begin a run, and print and keep its result."""

import functools
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from akunu_py.cli.terminal import printable

if TYPE_CHECKING:
    from rich.console import Console

    from akunu_py.bench.measured_model import Model
    from akunu_py.bench.result_file import BenchResult
    from akunu_py.bench.run import BenchRun
    from akunu_py.bench.tables import Table

Form = Literal["terminal", "json", "csv", "markdown"]

INTERRUPTED = 130
"""Exit code after Ctrl-C: 128 and the number of the signal, as shells have it."""

_WIDTH_OF_A_FILE = 100
"""Columns of a table that does not go to a terminal."""


def quick_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --quick, a flag `quick`."""
    return click.option(
        "--quick",
        is_flag=True,
        help="Take few items: seconds of a replay, minutes of the default model on two cores. "
        "Other options, such as --limit, override its numbers.",
    )(command)


def output_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --json, --csv, --markdown and --output; the command gets one `output`."""

    @click.option("--json", "as_json", is_flag=True, help="Print the result as one line of JSON.")
    @click.option("--csv", "as_csv", is_flag=True, help="Print the tables as CSV.")
    @click.option("--markdown", "as_markdown", is_flag=True, help="Print the tables as Markdown.")
    @click.option(
        "--output",
        "folder",
        type=click.Path(path_type=Path),
        metavar="DIR|FILE.json",
        help="Keep result.json and each table as CSV and Markdown in DIR; the same command goes on "
        "where it was interrupted. FILE.json gets the result alone.",
    )
    @functools.wraps(command)
    def wrapped(
        *args: Any,
        as_json: bool,
        as_csv: bool,
        as_markdown: bool,
        folder: Path | None,
        **kwargs: Any,
    ) -> Any:
        flags: dict[Form, bool] = {"json": as_json, "csv": as_csv, "markdown": as_markdown}
        chosen: list[Form] = [form for form, given in flags.items() if given]
        if len(chosen) > 1:
            raise click.UsageError("give one of --json, --csv and --markdown")
        form = chosen[0] if chosen else "terminal"
        file = folder if folder is not None and folder.suffix == ".json" else None
        if file is not None and not file.is_dir():
            return command(*args, output=Output(form, None, _file_to_write(file)), **kwargs)
        if folder is not None and folder.exists() and not folder.is_dir():
            raise click.UsageError(
                f"--output {folder} is a file; give a folder, or a name that ends in .json"
            )
        output = Output(form, folder)
        output.refuse_another_command(click.get_current_context().command.name)
        return command(*args, output=output, **kwargs)

    return wrapped


_WIDEST = 1000
"""Columns in which every table can be laid out without a cut."""


@dataclass(frozen=True, slots=True)
class Output:
    """In which form a result is printed, and the folder it is kept in, if any."""

    form: Form = "terminal"
    folder: Path | None = None
    file: Path | None = None
    """The file that gets the result alone, if any."""

    def refuse_another_command(self, command: str | None) -> None:
        """Raise ConfigError where the folder holds a run or the result of another command.

        Before a model is loaded, and before anything there is written over.
        """
        if self.folder is None or not self.folder.exists():
            return
        from akunu_py.bench.resume import held_command
        from akunu_py.system.errors import ConfigError

        held = held_command(self.folder)
        if held not in {None, command}:
            raise ConfigError(
                f"{self.folder} holds a run of `akunu bench {held:.40}`, and this is "
                f"`akunu bench {command}`; give --output another folder"
            )

    def run(
        self,
        command: str,
        arguments: Mapping[str, object],
        *,
        model: "Model | None" = None,
        draft_model: "Model | None" = None,
        inputs: Mapping[str, object] | None = None,
    ) -> "BenchRun":
        """Begin a run, or go on with the one in the folder; see `BenchRun`.

        Paths among the arguments become texts.
        """
        from akunu_py.bench.run import BenchRun

        texts = {name: _without_paths(value) for name, value in arguments.items()}
        return BenchRun(
            self.folder, command, texts, model=model, draft_model=draft_model, inputs=inputs
        )

    def emit(self, result: "BenchResult", head: str = "", tail: str = "") -> None:
        """Write the result's files, print it, and end the command where it did not go well.

        `head` and `tail` are printed above and below the tables on a terminal. Implausible costs,
        failures and an interrupt are named on stderr in every form. Raises click's Exit with 130
        after an interrupt, with 1 where all items failed; ConfigError where a file cannot be
        written, after the result was printed.
        """
        from akunu_py.bench.result_file import write_result
        from akunu_py.bench.rows import encode
        from akunu_py.system.errors import ConfigError

        unwritten: ConfigError | None = None
        if self.folder is not None or self.file is not None:
            try:
                if self.folder is not None:
                    _write_files(result, self.folder)
                if self.file is not None:
                    write_result(result, self.file)
            except ConfigError as error:
                # A full disk is told below: what was measured is shown all the same.
                unwritten = error
        if self.form == "json":
            click.echo(encode(result))
        elif self.form == "csv":
            click.echo("\n".join(table.csv() for table in result.tables), nl=False)
        elif self.form == "markdown":
            click.echo("\n".join(table.markdown() for table in result.tables), nl=False)
        else:
            _print_tables(result, head, tail)
        for doubt in result.doubts:
            click.echo(printable(f"implausible costs of passes: {doubt}", sys.stderr), err=True)
        for failure in result.failures:
            click.echo(printable(f"failed: {failure.item}: {failure.error}", sys.stderr), err=True)
        if unwritten is not None:
            raise unwritten
        if not result.finished:
            click.echo(_interrupted(len(result.items), self.folder), err=True)
            raise click.exceptions.Exit(INTERRUPTED)
        if result.failures and not result.items:
            raise click.exceptions.Exit(1)


def _file_to_write(path: Path) -> Path:
    """Return a file for a result; refuse one that holds something else before it is measured."""
    from akunu_py.bench.result_file import BenchResult  # not for --help
    from akunu_py.bench.rows import parse, read_file, typed
    from akunu_py.system.errors import ConfigError

    if not path.absolute().parent.is_dir():
        raise ConfigError(f"the folder {path.parent} does not exist; make it, or write elsewhere")
    if path.exists():
        try:
            typed(parse(read_file(path), str(path)), BenchResult, str(path))
        except ConfigError:
            raise ConfigError(
                f"{path} exists and is not a result of akunu bench; give another name"
            ) from None
    return path


def model_line(result: "BenchResult", *, with_file: bool = False) -> str:
    """Return what was measured and on what, for the head of a result."""
    environment, model = result.environment, result.model
    name = ""
    if model is not None:
        file = f" ({Path(model.path).name})" if with_file else ""
        name = f"{model.name}{file}, {model.weights} weights; "
    return f"{name}{environment.device_name} ({environment.device}), MLX {environment.mlx}"


def _without_paths(value: object) -> object:
    if isinstance(value, list | tuple):
        return [_without_paths(entry) for entry in value]
    return str(value) if isinstance(value, Path) else value


def _interrupted(items: int, folder: Path | None) -> str:
    text = f"unfinished: interrupted after {items} item{'' if items == 1 else 's'}"
    if folder is None:
        return f"{text}; with --output DIR the same command would go on from them"
    return f"{text}; the same command goes on from them"


def _write_files(result: "BenchResult", folder: Path) -> None:
    from akunu_py.bench.result_file import write_result, write_text
    from akunu_py.system.errors import ConfigError

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"cannot make {folder}: {error.strerror or error}") from error
    write_result(result, folder / "result.json")
    for table in result.tables:
        write_text(folder / f"{table.name}.csv", table.csv())
        write_text(folder / f"{table.name}.md", table.markdown())


def _print_tables(result: "BenchResult", head: str, tail: str) -> None:
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
