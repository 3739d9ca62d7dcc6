"""`akunu bench report`: results as a page."""

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from akunu_py.api import Command, ConfigError

if TYPE_CHECKING:
    from akunu_py.api import BenchResult


@click.command(cls=Command)
@click.argument("results", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--output",
    "folder",
    required=True,
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Write report.html, report.md and pictures/ here.",
)
@click.option("--no-pictures", is_flag=True, help="Write only tables, without matplotlib.")
def report(results: tuple[Path, ...], folder: Path, *, no_pictures: bool) -> None:
    """Combine RESULTS into one page, in HTML and Markdown.

    RESULTS are the result.json files that the other commands write with --output, or their folders.
    The page begins with failures, replies that differ, and ratios below 1. report.html needs no
    other file and no network.

    \b
    Examples:
      akunu bench hit-rate --output kept
      akunu bench report kept --output page
    """  # noqa: D301 - \b keeps click from wrapping the examples
    from akunu_lab.pages.content import KeptResult, make_page  # --help without
    from akunu_lab.pages.forms import PICTURES, html_page, markdown_page
    from akunu_lab.pages.hit_rate import studied
    from akunu_lab.study.files import write_text
    from akunu_py.api import BenchResult

    above = click.get_current_context().parent
    bench = above.command if above is not None else click.Group()
    assert isinstance(bench, click.Group)  # noqa: S101 - the command is one of its own
    kept: list[KeptResult] = []
    for path in results:
        result = studied(BenchResult.read(path))
        kept.append(KeptResult(str(path), command_text(result, bench), result))
    page = make_page(kept, pictures=not no_pictures)
    try:
        (folder / PICTURES if not no_pictures else folder).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"cannot make {folder}: {error.strerror or error}") from error
    for section in page.sections:
        for picture in section.pictures:
            write_text(folder / PICTURES / f"{picture.file}.svg", picture.svg.decode("utf-8"))
    write_text(folder / "report.html", html_page(page))
    write_text(folder / "report.md", markdown_page(page))
    warnings = f", {len(page.warnings)} things to know first" if page.warnings else ""
    click.echo(f"wrote {folder / 'report.html'} and report.md{warnings}")


def command_text(result: "BenchResult", bench: click.Group) -> str:
    """Return the command under `akunu bench` that repeats a result, as one would type it."""
    command = bench.get_command(click.Context(bench), result.command)
    typed = _typed(command, result.arguments) if isinstance(command, Command) else None
    # Of a result of another version only the name may be known.
    before, behind = typed or ((), ())
    return shlex.join([*before, "akunu", "bench", result.command, *behind])


def _typed(command: Command, arguments: Mapping[str, object]) -> tuple[list[str], list[str]] | None:
    """Return the variables, as NAME=VALUE, and the words that give a command these arguments.

    An argument has the name of an option, or that of the parameter it becomes; None if one is
    neither.
    """
    parameters = command.with_draft_options()
    known = {
        word.removeprefix("--").replace("-", "_"): parameter
        for parameter in parameters
        for word in parameter.opts
    }
    # MODEL is also an option, which says the same.
    known |= {parameter.name or "": parameter for parameter in parameters}
    variables: list[str] = []
    options: list[str] = []
    positional: list[str] = []
    for name, value in arguments.items():
        if value is None:
            continue
        found = known.get(name)
        values = value if isinstance(value, list | tuple) else [value]
        match found:
            case None:
                return None
            case click.Argument():
                positional += map(str, values)
            case click.Option(is_flag=True):
                options += [found.opts[0]] if value else found.secondary_opts[:1]
            case click.Option():
                word = max(found.opts, key=len)
                options += [f"{word}={entry}" for entry in values]
            case _ if value != found.default:  # a setting
                variables.append(f"AKUNU_{name.upper()}={value}")
    return variables, positional + options
