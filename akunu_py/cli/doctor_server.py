"""`akunu doctor --server`: which rules of coding agents a server keeps."""

import json
import sys
from pathlib import Path

import click

from akunu_py.cli.terminal import fitted, printable
from akunu_py.cli.verbosity import is_quiet


def server_doctor(url: str, model: str | None, key_file: Path | None, *, as_json: bool) -> None:
    """Examine a server and print a row for each rule; end with 1 if one is broken."""
    from akunu_py.diagnosis.conformance.client import Client  # not for --help
    from akunu_py.diagnosis.conformance.examined import examine
    from akunu_py.diagnosis.conformance.rows import ROWS, result_of
    from akunu_py.server.security import read_keys

    key = "" if key_file is None else read_keys(key_file)[0]
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
