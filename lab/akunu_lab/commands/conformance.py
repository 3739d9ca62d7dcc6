"""`akunu conformance`: which rules of coding agents a server keeps."""

import json
import shutil
import sys
import textwrap
from pathlib import Path

import click

from akunu_lab.conformance.client import Client
from akunu_lab.conformance.examined import examine
from akunu_lab.conformance.rows import ROWS, result_of
from akunu_lab.study.printing import printable
from akunu_py.api import Command, ConfigError


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
    key = "" if api_key_file is None else _first_key(api_key_file)
    server = examine(Client(url, key), model)
    if not (as_json or click.get_current_context().find_root().params.get("quiet")):
        context = "unknown" if server.context is None else f"{server.context} tokens"
        said = f"{server.model} at {server.client.url}, context {context}"
        click.echo(printable(said), err=True)
    results = []
    for row in ROWS:
        results.append(result_of(row, server))
        if not as_json:
            result = results[-1]
            line = f"{result.number:2}  {result.state}  {result.rule}"
            if result.reason:
                line += f": {result.reason}"
            click.echo(_fitted(printable(line)))
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


def _first_key(path: Path) -> str:
    """Return the first line of a file that is not a comment; no message quotes it."""
    try:
        lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ConfigError(f"{path} cannot be read as a file of API keys: {reason}") from None
    keys = [line for line in lines if line and not line.startswith("#")]
    if not keys:
        raise ConfigError(f"{path} has no API key; write one on a line of its own")
    return keys[0]


def _fitted(line: str) -> str:
    """Return a line as standard output takes it: broken for a terminal, for a pipe as it is."""
    if not sys.stdout.isatty():
        return line
    width = shutil.get_terminal_size().columns
    return textwrap.fill(line, width, subsequent_indent=" " * 12, break_long_words=False)
