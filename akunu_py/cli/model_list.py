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
    """List models: akunu's own, those in the hub's cache and in your folders, and aliases.

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
    # Names come last: they may be longer than a line, or wider than they have characters.
    rows = [("size", "weights", "name"), *map(_row, found)]
    widths = [max(len(row[column]) for row in rows) for column in range(2)]
    for size, weights, name in rows:
        click.echo(printable(f"{size:>{widths[0]}}  {weights:{widths[1]}}  {name}"))


def _record(model: ListedModel) -> dict[str, object]:
    record = dataclasses.asdict(model)
    return {**record, "path": None if model.path is None else str(model.path)}


def _row(model: ListedModel) -> tuple[str, str, str]:
    # A line a model, whatever a file is called.
    name = model.name if model.name.isprintable() else repr(model.name)
    if model.place == "alias":
        return "", "alias", f"{name} -> {model.target}" + _note("not on this machine", model)
    size = "" if model.num_bytes is None else size_text(model.num_bytes)
    missing = "not fetched yet" if model.place == "akunu" else "incomplete"
    return size, model.quantization, name + _note(missing, model)


def _note(text: str, model: ListedModel) -> str:
    return "" if model.path else f"  ({text})"
