"""`akunu conformance`: which rules of coding agents a server keeps."""

import json
import sys
from pathlib import Path

import click

from akunu_lab.conformance.client import Client
from akunu_lab.conformance.examined import examine
from akunu_lab.conformance.rows import ROWS, result_of
from akunu_py.cli.command import Command
from akunu_py.cli.terminal import fitted, printable
from akunu_py.cli.verbosity import is_quiet
from akunu_py.server.security import read_keys


@click.command(cls=Command)
@click.argument("url")
@click.option("--model", metavar="NAME", help="Examine this model.  [default: the server's first]")
@click.option(
    "--api-key-file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Send the first key in FILE.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON instead of text.")
def conformance(url: str, model: str | None, api_key_file: Path | None, as_json: bool) -> None:
    """Examine the server at URL: whether coding agents can rely on it.

    It is sent what coding agents send; the server may be akunu's or another one. A line is printed
    for each rule. The exit code is 0, or 1 where a rule is broken.

    \b
    Examples:
      akunu conformance http://127.0.0.1:8080
      akunu conformance http://studio.local:8080 --api-key-file keys.txt --json
    """  # noqa: D301 - \b keeps click from wrapping the examples
    key = "" if api_key_file is None else read_keys(api_key_file)[0]
    server = examine(Client(url, key), model)
    if not as_json and not is_quiet():
        context = "unknown" if server.context is None else f"{server.context} tokens"
        said = f"{server.model} at {server.client.url}, context {context}"
        click.echo(printable(said, sys.stderr), err=True)
    results = []
    for row in ROWS:
        results.append(result_of(row, server))
        if not as_json:
            result = results[-1]
            line = f"{result.number:2}  {result.state}  {result.rule}"
            if result.reason:
                line += f": {result.reason}"
            click.echo(printable(fitted(line, 12)))
    counts = {
        state: sum(result.state == state for result in results)
        for state in ("passed", "failed", "skipped")
    }
    if as_json:
        rows = [result.to_dict() for result in results]
        record = {"server": server.client.url, "model": server.model, "rows": rows, **counts}
        click.echo(json.dumps(record))
    else:
        click.echo("")
        click.echo(", ".join(f"{count} {state}" for state, count in counts.items()))
    if counts["failed"]:
        raise click.exceptions.Exit(1)
