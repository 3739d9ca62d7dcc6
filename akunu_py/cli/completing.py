"""What a Tab offers for an argument or an option that no list of choices describes.

A failure, as of a damaged file of aliases, offers less: a Tab has no place for a message. MLX and
numpy are not imported: the answer is waited for.
"""

import contextlib
from collections.abc import Iterable
from collections.abc import Set as AbstractSet

import click
from click.shell_completion import CompletionItem

from akunu_py.errors import AkunuError

Items = list[CompletionItem]

ENTRY_POINTS = "akunu.drafters"
"""Where plug-ins name their drafters, as the registry has it, which needs numpy."""


def models(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> Items:
    """Offer aliases, models of the hub's cache and of the settings' folders, and files."""
    names = [*_aliases(incomplete), *_listed(incomplete, {"hub", "folder"})]
    return [*names, CompletionItem(incomplete, type="file")]


def hub_models(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> Items:
    """Offer aliases and models of the hub's cache."""
    return [*_aliases(incomplete), *_listed(incomplete, {"hub"})]


def aliases(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> Items:
    """Offer aliases."""
    return _aliases(incomplete)


def drafters(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> Items:
    """Offer drafters, those of plug-ins too."""
    from importlib.metadata import entry_points  # noqa: PLC0415 - --help does without

    from akunu_py.cli.reply_options import DRAFTERS  # noqa: PLC0415 - it imports this module

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


def _aliases(incomplete: str) -> Items:
    from akunu_py.model_store.aliases import load_aliases  # noqa: PLC0415 - TOML

    with contextlib.suppress(AkunuError, OSError, ValueError):
        return [
            CompletionItem(name, help=target)
            for name, target in sorted(load_aliases().items())
            if name.startswith(incomplete)
        ]
    return []


def _listed(incomplete: str, places: AbstractSet[str]) -> Items:
    from akunu_py.model_store.inventory import inventory  # noqa: PLC0415 - huggingface_hub
    from akunu_py.settings import load_settings  # noqa: PLC0415 - TOML

    with contextlib.suppress(AkunuError, OSError, ValueError):
        found = inventory(load_settings())
        return _beginning(incomplete, [one.name for one in found if one.place in places])
    return []


def _beginning(incomplete: str, names: Iterable[str]) -> Items:
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]
