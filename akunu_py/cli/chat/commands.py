"""Commands of a chat: their table, how a line is read as one, help, and completion."""

import difflib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from akunu_py.cli.chat.set_values import NAMES
from akunu_py.cli.chat.tables import tables
from akunu_py.system.errors import ConfigError

Completes = Literal["nothing", "file", "session", "setting", "switch"]


@dataclass(frozen=True, slots=True)
class ChatCommand:
    """A command; `argument` is how help writes what it takes, in brackets where it may miss."""

    name: str
    argument: str
    help: str
    completes: Completes = "nothing"


COMMANDS = (
    ChatCommand("help", "", "this list"),
    ChatCommand("system", "[TEXT]", 'show the system message, or set it; "" removes it'),
    ChatCommand(
        "set", "[NAME VALUE]", "list settings, or change one; default resets it", "setting"
    ),
    ChatCommand("show", "", "model, path, context, system message and settings"),
    ChatCommand("stats", "", "drafting statistics of this run"),
    ChatCommand("retry", "", "answer the last message again"),
    ChatCommand("undo", "", "take back the last message and its reply"),
    ChatCommand("edit", "", "edit the last message in $EDITOR, and send it again"),
    ChatCommand("file", "[PATH]", "list files for the next message, or add one", "file"),
    ChatCommand("save", "[FILE]", "save the conversation", "file"),
    ChatCommand("load", "FILE", "continue a saved conversation", "file"),
    ChatCommand("sessions", "[NAME]", "list kept conversations, or continue one", "session"),
    ChatCommand("export", "FILE.md", "write the conversation as Markdown", "file"),
    ChatCommand("model", "[NAME]", "show the model, or switch to another, or default", "file"),
    ChatCommand(
        "draft", "[on|off|show|NAME]", "show or choose the drafter; show colours copies", "switch"
    ),
    ChatCommand("trace", "[on|off]", "show replies step by step, or no longer", "switch"),
    ChatCommand("clear", "", "clear the screen and the list of files"),
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
    (BLOCK, "begins and ends a message of several lines; Esc Enter begins a new line"),
    ("Tab", "completes commands and files; Up and Ctrl-R bring back what was typed"),
    ("//", "begins a message with a slash; Ctrl-X Ctrl-E opens $EDITOR"),
    ("Ctrl-C", "stops a reply and keeps what was said; twice at an empty line leaves"),
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
    """Return what is typed to send a message: in three quotes where it would be read otherwise."""
    plain = not message.startswith(("//", BLOCK)) and _LINE.fullmatch(message.strip()) is None
    return message if plain else f"{BLOCK}\n{message}\n{BLOCK}"


def unquote(text: str) -> str:
    """Return a name as a shell reads it: without quotes around it, or without backslashes."""
    if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
        return text[1:-1]
    return text if os.name == "nt" else re.sub(r"\\(.)", r"\1", text)


def help_text(width: int | None) -> str:
    """Return all commands and keys, within `width` columns if it is given."""
    commands = [(f"/{command.name} {command.argument}", "", command.help) for command in COMMANDS]
    keys = [(key, "", does) for key, does in _KEYS]
    return f"{tables({'Commands': commands}, width)}\n{tables({'Keys': keys}, width)}"


@dataclass(frozen=True, slots=True)
class Completion:
    """What may stand in place of the last `replaced` characters before the cursor."""

    text: str
    replaced: int


def completions(before: str) -> Iterator[Completion]:
    """Yield what may complete a line, given what stands before the cursor."""
    match = re.fullmatch(r"/(\w*)(\s+)?(.*)", before)
    if match is None:
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

        names = [stored.name for stored in default_store().sessions()]
        yield from (Completion(n, len(argument)) for n in names if n.startswith(argument))
    elif " " not in argument:
        words = (*NAMES, "reasoning") if command.completes == "setting" else ()
        if command.completes == "switch":
            words = tuple(w for w in re.split(r"\W+", command.argument) if w.islower())
            words += _drafters() if command.name == "draft" else ()
        yield from (Completion(w, len(argument)) for w in words if w.startswith(argument))


def _drafters() -> tuple[str, ...]:
    from akunu_py.drafting.registry import drafter_names  # numpy, for --help

    return drafter_names()


def _paths(written: str) -> Iterator[Completion]:
    quote = written[:1] if written[:1] in ("'", '"') else ""
    # Written as a shell wants it, it is completed so.
    escaped = not quote and "\\" in written and os.name != "nt"
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
