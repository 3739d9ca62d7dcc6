"""`akunu models list`: what there is to choose from."""

import dataclasses
import json

import click

from akunu_py.cli.model_inventory import ListedModel, inventory
from akunu_py.cli.terminal import printable, size_text
from akunu_py.settings import load_settings


@click.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON.")
def list_models(as_json: bool) -> None:
    """List models: in the hub's cache, in the folders of the settings, and aliases.

    The settings name folders as model-folders, the environment as AKUNU_MODEL_FOLDERS. They are
    searched three folders deep.

    \b
    Examples:
      akunu models list
      AKUNU_MODEL_FOLDERS=~/models akunu models list --json
    """  # noqa: D301 - \b keeps click from wrapping the examples
    found = inventory(load_settings())
    if as_json:
        click.echo(json.dumps([_record(model) for model in found]))
        return
    if not found:
        click.echo("No models but the one that ships with akunu; akunu models pull fetches some.")
        return
    rows = [_row(model) for model in found]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    for name, size, quantization, note in rows:
        line = f"{name:{widths[0]}}  {size:>{widths[1]}}  {quantization:{widths[2]}}  {note}"
        click.echo(printable(line.rstrip()))


def _record(model: ListedModel) -> dict[str, object]:
    record = dataclasses.asdict(model)
    return {**record, "path": None if model.path is None else str(model.path)}


def _row(model: ListedModel) -> tuple[str, str, str, str]:
    # A line a model, whatever a file is called.
    name = model.name if model.name.isprintable() else repr(model.name)
    if model.place == "alias":
        note = f"-> {model.target}" + ("" if model.path else "  (not on this machine)")
        return name, "", "", note
    size = "" if model.num_bytes is None else size_text(model.num_bytes)
    return name, size, model.quantization, "" if model.path else "incomplete"
