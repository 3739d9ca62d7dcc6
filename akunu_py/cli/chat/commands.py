"""Commands of a chat: their table, how a line is read as one, help, and completion."""

import difflib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from akunu_py.cli.chat.attachments import unfinished, unquote
from akunu_py.cli.chat.set_values import names
from akunu_py.cli.chat.tables import tables
from akunu_py.cli.terminal import wrapped
from akunu_py.system.errors import ConfigError

Completes = Literal["nothing", "file", "session", "setting", "switch"]


@dataclass(frozen=True, slots=True)
class ChatCommand:
    """A command; `argument` is how help writes what it takes, in brackets where it may miss.

    `/help` leaves the `rare` ones to `/help all`: it fits a screen of 24 rows.
    """

    name: str
    argument: str
    help: str
    completes: Completes = "nothing"
    rare: bool = False


COMMANDS = (
    ChatCommand("help", "[all]", "this list, or all commands and keys", "switch"),
    ChatCommand("file", "[PATH]", "add a file to the next message, as @PATH in it does", "file"),
    ChatCommand("system", "[TEXT]", 'show the system message, or set it; "" removes it'),
    ChatCommand(
        "set", "[NAME VALUE]", "list settings, or change one; default resets it", "setting"
    ),
    ChatCommand("stats", "", "figures of the last reply and of this run"),
    ChatCommand("retry", "", "answer the last message again"),
    ChatCommand("undo", "", "take back the last message and its reply"),
    ChatCommand("edit", "", "edit the last message in $EDITOR, and send it again"),
    ChatCommand("sessions", "[NAME|TEXT]", "list, find or continue conversations", "session"),
    ChatCommand("export", "FILE.md", "write the conversation as Markdown", "file"),
    ChatCommand("model", "[NAME]", "choose a model, or switch to NAME or default", "file"),
    ChatCommand(
        "draft", "[on|off|show|NAME]", "show or choose the drafter; show colours copies", "switch"
    ),
    ChatCommand("show", "", "model, path, context, system message and settings", rare=True),
    ChatCommand("save", "[FILE]", "save the conversation in a file", "file", rare=True),
    ChatCommand("load", "FILE", "continue what /save wrote", "file", rare=True),
    ChatCommand("clear", "", "clear the screen and the list of files", rare=True),
    ChatCommand("new", "", "begin another conversation; this one stays kept"),
    ChatCommand("reset", "", "forget the conversation, and delete what is kept"),
    ChatCommand("exit", "", "leave; Ctrl-D does, too"),
)

_BY_NAME = {command.name: command for command in COMMANDS}
_ALIASES = {"quit": "exit", "bye": "exit", "regen": "retry", "read": "file", "?": "help"}
BLOCK = '"""'
"""Before and behind a message of several lines."""

_LINE = re.compile(r"/([A-Za-z]+|\?)(?:\s+(.*))?", re.DOTALL)
_KEYS = (
    (f"{BLOCK}  //", "begin and end a message of several lines; begin one with a slash"),
    ("Tab  Up", "complete names, commands and @files; bring back what was typed"),
    ("Ctrl-C", "stop a reply and keep what was said; twice at an empty line: leave"),
    ("Esc Enter", "begin a new line; Ctrl-X Ctrl-E opens $EDITOR, Ctrl-R searches"),
)


def parse(line: str) -> tuple[ChatCommand, str] | None:
    """Return the command that a line gives, with its argument; None for a message.

    A message may begin with a path: only a word of letters behind the slash is a command. One of
    several lines is a command only as `/system`, whose text may have them.

    Raises ConfigError for a command that does not exist, or whose argument is missing or too much.
    """
    match = _LINE.fullmatch(line.strip())
    if match is None:
        return None
    name, argument = match[1].lower(), (match[2] or "").strip()
    name = _ALIASES.get(name, name)
    if "\n" in line.strip() and name != "system":
        return None
    command = _BY_NAME.get(name)
    if command is None:
        near = difflib.get_close_matches(name, _BY_NAME, n=1)
        hint = f"did you mean /{near[0]}? /help" if near else "/help"
        raise ConfigError(f"unknown command /{name}; {hint} lists the commands")
    if argument and not command.argument:
        raise ConfigError(f"/{name} takes no argument, but is followed by {argument!r}")
    if not argument and command.argument and not command.argument.startswith("["):
        raise ConfigError(f"give /{name} {command.argument}")
    return command, argument


def message_of(line: str) -> str:
    """Return the message that a line is; two slashes at its beginning stand for one."""
    return line[1:] if line.startswith("//") else line


def line_of(message: str) -> str:
    """Return a message as it is typed: in three quotes where it would be read otherwise."""
    plain = not message.startswith(("//", BLOCK)) and _LINE.fullmatch(message.strip()) is None
    return message if plain else f"{BLOCK}\n{message}\n{BLOCK}"


def help_text(width: int | None, *, everything: bool = False) -> str:
    """Return commands, all or the usual ones, and keys, within `width` columns if it is given."""
    commands = [
        (f"/{command.name} {command.argument}", "", command.help)
        for command in COMMANDS
        if everything or not command.rare
    ]
    keys = [(key, "", does) for key, does in _KEYS]
    rare = ", ".join(f"/{command.name}" for command in COMMANDS if command.rare)
    parts = [tables({"": rows}, width) for rows in (commands, keys)]
    more = f"/help all explains {rare}, too."
    return "\n".join(parts if everything else [*parts, wrapped(more, width or len(more))])


@dataclass(frozen=True, slots=True)
class Completion:
    """What may stand in place of the last `replaced` characters before the cursor."""

    text: str
    replaced: int


def completions(before: str) -> Iterator[Completion]:
    """Yield completions of a line, given the text before the cursor."""
    match = re.fullmatch(r"/(\w*)(\s+)?(.*)", before)
    if match is None:
        if (mention := unfinished(before)) is not None:
            yield from _paths(mention, in_text=True)
        return
    word, gap, argument = match.groups()
    if not gap:
        for command in COMMANDS:
            if command.name.startswith(word):
                gap = " " if command.argument else ""
                yield Completion(f"/{command.name}{gap}", len(before))
        return
    named = _BY_NAME.get(word)
    if named is None:
        return
    command = named
    if command.completes == "file":
        yield from _paths(argument)
    elif command.completes == "session":
        from akunu_py.cli.chat.session_store import default_store  # a Tab alone

        kept = [stored.name for stored in default_store().sessions()]
        yield from (Completion(n, len(argument)) for n in kept if n.startswith(argument))
    elif " " not in argument:
        words = (*names(), "reasoning") if command.completes == "setting" else ()
        if command.completes == "switch":
            words = tuple(w for w in re.split(r"\W+", command.argument) if w.islower())
            words += _drafters() if command.name == "draft" else ()
        yield from (Completion(w, len(argument)) for w in words if w.startswith(argument))


def _drafters() -> tuple[str, ...]:
    from akunu_py.drafting.registry import DrafterKind  # numpy, for --help

    return DrafterKind.names()


def _paths(written: str, *, in_text: bool = False) -> Iterator[Completion]:
    """Yield completions of a path; one `in_text` ends at a blank, unless a backslash is before."""
    quote = written[:1] if written[:1] in ("'", '"') else ""
    # Written as a shell wants it, it is completed so.
    escaped = not quote and ("\\" in written or in_text) and os.name != "nt"
    meant = unquote(written) if escaped else written.removeprefix(quote)
    folder, _, beginning = meant.rpartition("/")
    place = Path(folder or ("/" if meant.startswith("/") else ".")).expanduser()
    try:
        with os.scandir(place) as entries:
            found = sorted((entry.name, entry.is_dir()) for entry in entries)
    except (OSError, RuntimeError, ValueError):
        return
    replaced = len(written.rpartition("/")[2]) - (len(quote) if "/" not in written else 0)
    for name, is_folder in found:
        # Hidden files are offered to those who ask for them.
        if name.startswith(beginning) and (beginning or not name.startswith(".")):
            text = re.sub(r"([\s\\'\"])", r"\\\1", name) if escaped else name
            yield Completion(text + ("/" if is_folder else quote), replaced)
