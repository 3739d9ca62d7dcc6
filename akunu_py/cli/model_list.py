"""`akunu models list`, `alias` and `search`: what there is to choose from, and by which names."""

import dataclasses
import json
from pathlib import Path

import click

from akunu_py.cli import completing
from akunu_py.cli.command import Command
from akunu_py.cli.terminal import printable
from akunu_py.model_store.hub import is_offline, search_hub
from akunu_py.model_store.inventory import ListedModel, inventory
from akunu_py.model_store.known_models import SMOLLM2, KnownModel, find_known
from akunu_py.system.errors import AkunuError, ConfigError, HubError
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


@click.command(cls=Command)
@click.argument("terms", nargs=-1, metavar="[WORD]...")
def search(terms: tuple[str, ...]) -> None:
    """List models by words: akunu's short names, then GGUF models of the Hugging Face hub.

    A short name such as qwen3:4b stands for one file of the hub; it is a MODEL in every command.
    Without words all short names are listed, and the hub is not asked. Models of the hub come in
    the order of their downloads.

    \b
    Examples:
      akunu models search
      akunu models search qwen3 coder
      akunu models pull qwen3:4b
    """  # noqa: D301 - \b keeps click from wrapping the examples
    text = " ".join(terms)
    known = find_known(text)
    found: list[tuple[str, int]] = []
    trouble: AkunuError | None = None
    if terms and is_offline():
        trouble = ConfigError("HF_HUB_OFFLINE forbids asking the hub; unset it to search there")
    elif terms:
        try:
            found = search_hub(text)
        except HubError as error:
            trouble = error
    if not known and not found:
        raise trouble or ConfigError(f"no model is called {text!r}; try fewer words")
    for line in [*_known_lines(known), *_hub_lines(found)]:
        click.echo(printable(line))
    if trouble is not None:
        click.echo(f"Warning: {trouble}", err=True)


def _known_lines(models: list[KnownModel]) -> list[str]:
    """Return the short names with size and licence, and what they stand for below each."""
    rows = [
        (model.name, "" if model.num_bytes is None else size_text(model.num_bytes), model.licence)
        for model in models
    ]
    names, sizes = (max((len(row[column]) for row in rows), default=0) for column in range(2))
    lines = []
    for (name, size, licence), model in zip(rows, models, strict=True):
        lines += [f"{name:{names}}  {size:>{sizes}}  {licence}", f"  {model.hub_name}"]
    return lines


def _hub_lines(models: list[tuple[str, int]]) -> list[str]:
    if not models:
        return []
    lines = [f"  hf:{name}  {count:,} downloads" for name, count in models]
    return ["on the Hugging Face hub (akunu models show NAME lists its files):", *lines]
