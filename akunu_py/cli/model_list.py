"""`akunu models list` and `alias`: what there is to choose from, and by which names."""

import dataclasses
import json
from pathlib import Path

import click

from akunu_py.cli import completing
from akunu_py.cli.command import Command
from akunu_py.cli.terminal import printable
from akunu_py.model_store.inventory import ListedModel, inventory
from akunu_py.model_store.known_models import SMOLLM2
from akunu_py.system.settings import load_settings
from akunu_py.system.shown_text import size_text


@click.command("list", cls=Command)
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
        return (
            "",
            "alias",
            f"{name} -> {model.target}" + _notes("" if model.path else "not on this machine"),
        )
    size = "" if model.num_bytes is None else size_text(model.num_bytes)
    missing = "not fetched yet" if model.place == "akunu" else "incomplete"
    title = SMOLLM2.title if model.name == SMOLLM2.name else ""
    return size, model.quantization, name + _notes(title, "" if model.path else missing)


def _notes(*notes: str) -> str:
    said = ", ".join(filter(None, notes))
    return said and f"  ({said})"


@click.command(cls=Command)
@click.argument("name", required=False, shell_complete=completing.aliases)
@click.argument("target", required=False, shell_complete=completing.models)
@click.option("--delete", is_flag=True, help="Forget the alias NAME; its model stays.")
def alias(name: str | None, target: str | None, delete: bool) -> None:
    """Make NAME an alias of TARGET: a path, hf:OWNER/REPO or hf:OWNER/REPO:QUANT.

    With NAME alone, say what it stands for; without one, list all. A relative path is kept as an
    absolute one. An alias goes before a file of that name: write ./NAME for the file.

    \b
    Examples:
      akunu models alias qwen hf:unsloth/Qwen3-0.6B-GGUF:Q4_K_M
      akunu models alias mine ./my-model.gguf
      akunu models alias --delete qwen
    """  # noqa: D301 - \b keeps click from wrapping the examples
    from akunu_py.model_store.aliases import delete_alias, load_aliases, save_alias
    from akunu_py.model_store.names import locate

    if delete:
        if name is None or target is not None:
            raise click.UsageError("give the one alias to delete")
        delete_alias(name)
    elif target is not None and name is not None:
        meant = locate(target, load_settings())
        save_alias(name, str(meant.absolute() if isinstance(meant, Path) else meant))
    else:
        aliases = load_aliases()
        if name is not None and name not in aliases:
            raise click.UsageError(
                printable(
                    f"there is no alias named {name}; give the model that it should stand for"
                )
            )
        for each in [name] if name is not None else sorted(aliases):
            click.echo(printable(f"{each}  {aliases[each]}" if name is None else aliases[each]))
