"""`akunu sessions`: conversations that `akunu chat` kept."""

import json

import click

from akunu_py.cli.command import Command, option
from akunu_py.cli.group import CommandGroup
from akunu_py.cli.terminal import fitted, printable
from akunu_py.system.errors import ConfigError


def _names(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    from akunu_py.cli.chat.session_store import default_store  # numpy

    names = (stored.name for stored in default_store().sessions())
    return [name for name in names if name.startswith(incomplete)]


@click.group(cls=CommandGroup)
def sessions() -> None:
    """List, search, show and delete the conversations that akunu chat kept.

    Conversations at a terminal are kept on this machine, in files that only you can read, unless
    akunu chat --no-keep is given. Nothing else of what is typed is kept. The 200 newest stay. A
    NAME may be shortened as long as only one conversation begins with it.

    \b
    Examples:
      akunu sessions list
      akunu sessions search borrow checker
      akunu sessions show 2026-11-22
      akunu chat --continue
    """  # noqa: D301 - \b keeps click from wrapping the examples


@sessions.command("list", cls=Command)
@option("--json", "as_json", is_flag=True, help="Print one line of JSON.")
def list_sessions(as_json: bool) -> None:
    """List the conversations, the latest first: name, last change, turns and first question.

    \b
    Examples:
      akunu sessions list
      akunu sessions list --json
    """  # noqa: D301 - \b keeps click from wrapping the examples
    from akunu_py.cli.chat.session_store import default_store, describe_session

    found = default_store().sessions()
    rows = [(stored, *describe_session(stored)) for stored in found]
    if as_json:
        records = [
            {"name": stored.name, "changed": stored.changed, "turns": turns, "begins": begins}
            for stored, turns, begins in rows
        ]
        click.echo(json.dumps(records))
        return
    if not rows:
        click.echo("No conversation is kept yet.", err=True)
        return
    names = max(len(stored.name) for stored, _, _ in rows)
    counts = max(len(turns) for _, turns, _ in rows)
    for stored, turns, begins in rows:
        start = f"{stored.name:{names}}  {stored.when}  {turns:>{counts}}  "
        click.echo(printable(fitted(f"{start}{begins}", len(start))))


@sessions.command(cls=Command)
@click.argument("text", nargs=-1, required=True, metavar="TEXT...")
def search(text: tuple[str, ...]) -> None:
    """List the conversations in which TEXT was said, the latest first, and where it was.

    Messages, their files and replies are searched, in any case of letters. Several words are one
    text.

    \b
    Examples:
      akunu sessions search borrow checker
      akunu chat --continue
    """  # noqa: D301 - \b keeps click from wrapping the examples
    from akunu_py.cli.chat.session_store import default_store

    words = " ".join(text)
    found = list(default_store().search(words))
    if not found:
        raise ConfigError(f"no conversation has {words!r}; `akunu sessions list` lists them")
    for stored, said in found:
        start = f"{stored.name}  {stored.when}  "
        click.echo(printable(fitted(f"{start}{said}", len(start))))


@sessions.command(cls=Command)
@click.argument("name", shell_complete=_names)
def show(name: str) -> None:
    """Print a conversation as Markdown.

    \b
    Examples:
      akunu sessions show 2026-11-22-183405
      akunu sessions show 2026-11-22 > conversation.md
    """  # noqa: D301 - \b keeps click from wrapping the examples
    from akunu_py.cli.chat.session_file import markdown
    from akunu_py.cli.chat.session_store import default_store

    click.echo(printable(markdown(default_store().find(name).load())), nl=False)


@sessions.command("rm", cls=Command)
@click.argument("names", nargs=-1, metavar="[NAME]...", shell_complete=_names)
@option("--all", "everything", is_flag=True, help="Delete all of them.")
@option("-y", "--yes", is_flag=True, help="Do not ask.")
def remove(names: tuple[str, ...], everything: bool, yes: bool) -> None:
    """Delete conversations.

    \b
    Examples:
      akunu sessions rm 2026-11-22-183405
      akunu sessions rm --all --yes
    """  # noqa: D301 - \b keeps click from wrapping the examples
    from akunu_py.cli.chat.session_store import default_store

    if bool(names) == everything:
        raise click.UsageError("give the NAME of a session, or --all")
    store = default_store()
    found = store.sessions() if everything else [store.find(name) for name in names]
    if found and not yes:
        which = found[0].name if len(found) == 1 else f"{len(found)} conversations"
        click.confirm(f"Delete {which}?", abort=True, err=True)
    left = []
    for stored in found:
        try:
            store.remove(stored.path)
            click.echo(f"deleted {stored.name}", err=True)
        except ConfigError as error:
            left.append(error.message)
    store.sweep()
    if left:
        raise ConfigError("not everything could be deleted:", choices=left)
    if not found:
        raise ConfigError("no conversation is kept yet")
