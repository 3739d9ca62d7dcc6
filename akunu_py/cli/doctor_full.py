"""`akunu doctor --full`: a model measured on this machine, and a page about it."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from akunu_py import __version__
from akunu_py.cli.bench_tables import INTERRUPTED
from akunu_py.cli.count_progress import share_progress
from akunu_py.cli.loading_options import model_path
from akunu_py.cli.terminal import fitted, let_others_end, printable
from akunu_py.system.errors import ConfigError

if TYPE_CHECKING:
    from akunu_py.diagnosis.full.report import FullReport


def full_doctor(model: str | None, output: Path | None, minutes: float, *, as_json: bool) -> None:
    """Measure a model for `minutes`; keep page and figures in a folder, and sum them up."""
    from akunu_py.diagnosis.facts import read_facts  # imports MLX
    from akunu_py.diagnosis.system import System

    system = System()
    facts = read_facts(system, __version__, {})
    if facts.backend is None:
        raise ConfigError(f"MLX cannot be imported: {facts.device}; akunu doctor says what to do")
    from akunu_py.diagnosis.full.page import KeptReport, json_text, page
    from akunu_py.diagnosis.full.privacy import Privacy
    from akunu_py.diagnosis.full.run import run_full

    folder = output or Path()
    path = model_path(model)
    let_others_end()
    kept = KeptReport(folder)
    unwritten: list[ConfigError] = []

    def keep(report: "FullReport") -> None:
        unwritten.clear()
        try:
            kept.write(report)
        except ConfigError as error:
            # A full disk is told at the end; there may be room by then.
            unwritten.append(error)

    with share_progress() as tell:
        report = run_full(
            path, facts, system,
            privacy=Privacy.of_this_user(path, folder), keep=keep, tell=tell, seconds=60 * minutes,
        )  # fmt: skip
    if as_json:
        click.echo(json_text(report))
    else:
        _sum_up(report)
    if unwritten:
        # What took minutes to measure is not lost.
        click.echo(printable(page(report), sys.stderr), err=True)
        raise unwritten[0]
    where = f"The page is {kept.page}, its figures {kept.record}. Read it before you publish it."
    click.echo(printable(where, sys.stderr), err=True)
    if report.state == "interrupted":
        click.echo("Interrupted: the page has what was measured until then.", err=True)
        raise click.exceptions.Exit(INTERRUPTED)
    if any(finding.severity == "error" for finding in report.findings):
        raise click.exceptions.Exit(1)


def _sum_up(report: "FullReport") -> None:
    from akunu_py.diagnosis.full.page import summary

    lines = summary(report)
    if lines and report.findings:
        lines.append("")
    for finding in report.findings:
        lines += [f"{finding.severity}: {finding.text}", f"  {finding.advice}"]
    for line in lines:
        click.echo(printable(fitted(line, 2)))
