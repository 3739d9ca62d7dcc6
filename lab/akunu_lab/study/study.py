"""What the laboratory's commands add to a measurement: kept items, CSV, hashes of models."""

import csv
import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import click

from akunu_py.api import Measurement

if TYPE_CHECKING:
    from akunu_lab.study.run import StudyRun
    from akunu_py.api import BenchResult, Engine, Table


@dataclass(kw_only=True)
class Study(Measurement):
    """A measurement whose items are kept as they are finished, in the folder of --output."""

    output_options: ClassVar[tuple[Callable[..., Any], ...]] = (
        *Measurement.output_options[:-1],
        click.option("--markdown", is_flag=True, help="Print the tables as Markdown."),
        click.option("--csv", "as_csv", is_flag=True, help="Print the tables as CSV."),
        click.option(
            "--output",
            type=click.Path(path_type=Path),
            metavar="DIR|FILE.json",
            help="Keep result.json and each table as CSV and Markdown in DIR; the same command "
            "goes on where it was interrupted. FILE.json gets the result alone.",
        ),
    )

    as_csv: bool = False
    markdown: bool = False

    def check(self) -> None:
        if self.as_json + self.as_csv + self.markdown > 1:
            raise click.UsageError("give one of --json, --csv and --markdown")
        if self.folder is not None and self.folder.is_dir():
            from akunu_lab.study.store import held_command
            from akunu_py.api import ConfigError

            # Before a model is loaded, and before anything there is written over.
            held = held_command(self.folder)
            if held not in {None, self.command}:
                raise ConfigError(
                    f"{self.folder} holds a run of `akunu bench {held:.40}`, and this is "
                    f"`akunu bench {self.command}`; give --output another folder"
                )
            return
        super().check()

    @property
    def folder(self) -> Path | None:
        """The folder that keeps items and tables, if any."""
        return None if self.output is None or self.result_file == self.output else self.output

    def study(
        self,
        arguments: Mapping[str, object],
        *,
        engine: "Engine | None" = None,
        draft: "Engine | None" = None,
        inputs: Mapping[str, object] | None = None,
    ) -> "StudyRun":
        """Begin a run, or go on with the one in the folder; a context manager.

        `inputs` are hashes of other inputs than the engine's models, such as traces. Raises
        ConfigError if the folder has another run's items, or cannot be used.
        """
        from akunu_lab.study.run import StudyRun

        return StudyRun(self, arguments, inputs or {}, engine=engine, draft=draft)

    def text(self, result: "BenchResult") -> str | None:
        if self.as_csv:
            return "\n".join(map(csv_of, result.tables))
        if self.markdown:
            from akunu_lab.study.markdown import markdown_of  # numpy

            return "\n".join(map(markdown_of, result.tables))
        return super().text(result)

    def keep(self, result: "BenchResult") -> None:
        super().keep(result)
        if self.folder is not None:
            from akunu_lab.study.files import write_text
            from akunu_lab.study.markdown import markdown_of

            for table in result.tables:
                write_text(self.folder / f"{table.name}.csv", csv_of(table))
                write_text(self.folder / f"{table.name}.md", markdown_of(table))

    @property
    def hint(self) -> str:
        if self.folder is None:
            return "with --output DIR the same command would go on from them"
        return "the same command goes on from them"


def csv_of(table: "Table") -> str:
    """Return a table as CSV (RFC 4180): numbers with all digits, an empty cell for None."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow([column.name for column in table.columns])
    for row in table.rows:
        writer.writerow([_csv_cell(cell) for cell in row])
    return stream.getvalue()


def _csv_cell(cell: str | float | bool | None) -> str:
    if cell is None:
        return ""
    if isinstance(cell, bool):
        return "true" if cell else "false"
    return cell if isinstance(cell, str) else repr(cell)
