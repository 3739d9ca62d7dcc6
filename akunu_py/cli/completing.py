"""What a Tab offers for an argument or an option that no list of choices describes.

A failure, as of a damaged file of aliases, offers less: a Tab has no place for a message. MLX and
numpy are not imported: the answer is waited for.
"""

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

from akunu_py.system.errors import AkunuError

if TYPE_CHECKING:
    from akunu_py.cli.command_settings import CommandSetting

Items = list[CompletionItem]

DRAFTERS = ("auto", "ngram", "ngram-window", "lookup", "draft-model", "mtp", "none")
"""Akunu's own, for --help and Tab, which do without the registry; a test compares the two."""

ENTRY_POINTS = "akunu.drafters"
"""Where plug-ins name their drafters, as the registry has it, which needs numpy."""


def models(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> Items:
    """Offer aliases, akunu's own models, those of the hub's cache and of folders, and files."""
    names = [*_aliases(incomplete), *_listed(incomplete, {"akunu", "hub", "folder"})]
    return [*names, CompletionItem(incomplete, type="file")]


def hub_models(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> Items:
    """Offer aliases, models of the hub's cache, the default model and short names."""
    from akunu_py.model_store.known_models import KNOWN_MODELS, SMOLLM2  # as below

    own = _beginning(incomplete, [SMOLLM2.name, *KNOWN_MODELS])
    return [*_aliases(incomplete), *own, *_listed(incomplete, {"hub"})]


def aliases(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> Items:
    """Offer aliases."""
    return _aliases(incomplete)


def drafters(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> Items:
    """Offer drafters, those of plug-ins too."""
    from importlib.metadata import entry_points

    offered = sorted({point.name for point in entry_points(group=ENTRY_POINTS)} - {*DRAFTERS})
    return _beginning(incomplete, (*DRAFTERS, *offered))


def commands(context: click.Context, _parameter: click.Parameter, incomplete: str) -> Items:
    """Offer the words of a command, of which some may be typed already."""
    group: click.Command | None = context.find_root().command
    for word in context.params.get("command") or ():
        if not isinstance(group, click.Group):
            return []
        group = group.get_command(context, word)
    if not isinstance(group, click.Group):
        return []
    return _beginning(incomplete, group.list_commands(context))


def keys(context: click.Context, _parameter: click.Parameter, incomplete: str) -> Items:
    """Offer keys of the settings file; those of one command once something is typed."""
    from akunu_py.system.settings import FOLDERS_KEY, MODEL_KEY  # TOML

    settings = _settings(context)
    shared = {FOLDERS_KEY, MODEL_KEY, *(one.key for one in settings)}
    own = {".".join((*one.command, one.key)) for one in settings if incomplete}
    return _beginning(incomplete, sorted(shared | own))


def values(context: click.Context, _parameter: click.Parameter, incomplete: str) -> Items:
    """Offer what the option offers whose key is set."""
    *command, key = str(context.params.get("key") or "").replace("_", "-").split(".")
    for one in _settings(context):
        if one.key == key and one.command[: len(command)] == tuple(command):
            return one.parameter.shell_complete(context, incomplete)
    return []


def _settings(context: click.Context) -> "list[CommandSetting]":
    from akunu_py.cli.command_settings import settings_below  # it needs more

    return list(settings_below(context.find_root().command, context.find_root()))


def set_keys(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> Items:
    """Offer the keys that the settings file has."""
    from akunu_py.system.settings import load_settings  # TOML

    with contextlib.suppress(AkunuError):
        return _beginning(incomplete, _flat(load_settings().values))
    return []


def _flat(table: Mapping[str, object]) -> Iterator[str]:
    for name, value in table.items():
        if isinstance(value, Mapping):
            yield from (f"{name}.{below}" for below in _flat(value))
        else:
            yield name


def _aliases(incomplete: str) -> Items:
    from akunu_py.model_store.aliases import load_aliases  # TOML

    with contextlib.suppress(AkunuError, OSError, ValueError):
        return [
            CompletionItem(name, help=target)
            for name, target in sorted(load_aliases().items())
            if name.startswith(incomplete)
        ]
    return []


def _listed(incomplete: str, places: AbstractSet[str]) -> Items:
    from akunu_py.model_store.inventory import inventory  # huggingface_hub
    from akunu_py.system.settings import load_settings  # TOML

    with contextlib.suppress(AkunuError, OSError, ValueError):
        found = inventory(load_settings())
        return _beginning(incomplete, [one.name for one in found if one.place in places])
    return []


def _beginning(incomplete: str, names: Iterable[str]) -> Items:
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]
