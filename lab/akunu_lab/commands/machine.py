"""`akunu bench machine`: a model measured on this machine, and a page about it."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from akunu_lab.study.printing import printable
from akunu_py.api import Command, ConfigError, Measurement, measuring

if TYPE_CHECKING:
    from akunu_lab.machine.report import FullReport

_INTERRUPTED = 130


@click.command(cls=Command)
@measuring(model=True, output=False)
@click.option(
    "--minutes",
    type=click.FloatRange(min=0.1, max=600),
    default=5.0,
    show_default=True,
    metavar="N",
    help="Measure for about N minutes.",
)
@click.option(
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Write the page to DIR instead of the current folder.",
)
@click.option("--html", "as_html", is_flag=True, help="Write the page as HTML, to send as a file.")
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON instead of text.")
def machine(
    bench: Measurement, minutes: float, output: Path | None, *, as_html: bool, as_json: bool
) -> None:
    """Measure a model on this machine, and write a page that can be pasted into an issue.

    Whether drafting changes its text, what passes cost, its speed next to mlx-lm's own loop, start,
    prefill and memory. The page, akunu-machine.md, and its figures, akunu-machine.json, contain
    nothing private. A slow machine measures fewer items. Ctrl-C keeps what was measured. Existing
    files are not overwritten.

    The exit code is 0, or 1 where something is wrong.

    \b
    Examples:
      akunu bench machine
      akunu bench machine model.gguf --minutes 15 --output measured
    """  # noqa: D301 - \b keeps click from wrapping the examples
    path, output = bench.model_path(), output or Path()
    from akunu_lab.machine.facts import read_facts  # imports MLX
    from akunu_lab.machine.page import KeptReport, json_text, page, summary
    from akunu_lab.machine.privacy import Privacy
    from akunu_lab.machine.run import run_full

    privacy = Privacy.of_this_user(path, output)
    facts = read_facts(privacy)
    kept = KeptReport(output, as_html=as_html)
    unwritten: list[ConfigError] = []

    def keep(report: "FullReport") -> None:
        unwritten.clear()
        try:
            kept.write(report)
        except ConfigError as error:
            # A full disk is told at the end; there may be room by then.
            unwritten.append(error)

    seconds = 60 * minutes
    with bench.progress("seconds") as progress:
        report = run_full(
            path, facts, privacy=privacy, keep=keep, seconds=seconds,
            tell=lambda over: progress(round(min(over, seconds)), round(seconds)),
        )  # fmt: skip
    if as_json:
        click.echo(json_text(report))
    else:
        for line in summary(report):
            click.echo(printable(line))
        for finding in report.findings:
            click.echo(printable(f"{finding.severity}: {finding.text}\n  {finding.advice}"))
    if unwritten:
        # What took minutes to measure is not lost.
        click.echo(printable(page(report)), err=True)
        raise unwritten[0]
    where = f"The page is {kept.page}, its figures {kept.record}. Read it before you publish it."
    click.echo(printable(where), err=True)
    if report.state == "interrupted":
        click.echo("Interrupted: the page has what was measured until then.", err=True)
        raise click.exceptions.Exit(_INTERRUPTED)
    if any(finding.severity == "error" for finding in report.findings):
        raise click.exceptions.Exit(1)
