"""Files that a message brings along."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from akunu_py.cli.chat.session_file import read_regular_file
from akunu_py.system.errors import ConfigError

MOST_BYTES = 2**20

_ATTACHED = re.compile(
    r"^(?P<name>\S[^\n]{0,255}):\n(?P<ticks>`{3,})\n.*?^(?P=ticks)$", re.DOTALL | re.MULTILINE
)


@dataclass(frozen=True, slots=True)
class Attachment:
    """A text file for the next message; a file is known by its path, however written."""

    path: Path
    text: str

    @property
    def name(self) -> str:
        """What the message calls it."""
        return self.path.name


def read_attachment(path: Path) -> Attachment:
    """Read a file of UTF-8 text; raises ConfigError for any other file."""
    content = read_regular_file(path, MOST_BYTES)
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is not UTF-8 text") from None
    if "\0" in text:
        raise ConfigError(f"{path} is not text: it has NUL bytes")
    return Attachment(path.absolute(), text)


def with_attachments(message: str, attachments: list[Attachment]) -> str:
    """Return a message with its files before it, each in a fence of its own."""
    return "\n\n".join([*(_fenced(attachment) for attachment in attachments), message])


def find_attachments(message: str) -> Iterator[tuple[int, int, str]]:
    """Yield the files of a message that `with_attachments` made: begin, end and name."""
    for match in _ATTACHED.finditer(message):
        yield match.start(), match.end(), match["name"]


def question_of(message: str) -> str:
    """Return a message without the files before it; where that leaves nothing, the message."""
    rest = message
    while (match := _ATTACHED.match(rest)) is not None and rest[match.end() :].startswith("\n\n"):
        rest = rest[match.end() + 2 :]
    return rest if rest.strip() else message


def _fenced(attachment: Attachment) -> str:
    ticks = "```"
    while ticks in attachment.text:
        ticks += "`"
    # A name may hold any character, a newline and backticks among them.
    name = " ".join(attachment.name.split())
    text = attachment.text.rstrip("\n")
    return f"{name}:\n{ticks}\n{text}\n{ticks}"
