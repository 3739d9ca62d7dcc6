"""`akunu models search`: short names, and models of the hub, by words."""

import click

from akunu_py.cli.command import Command
from akunu_py.cli.terminal import printable
from akunu_py.model_store.hub import is_offline, search_hub
from akunu_py.model_store.known_models import KnownModel, find_known
from akunu_py.system.errors import AkunuError, ConfigError, HubError
from akunu_py.system.shown_text import size_text


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
