"""Files that a message brings along, or names with an @, and where they lie in a prompt."""

import bisect
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from akunu_py.cli.chat.session_file import read_regular_file
from akunu_py.protocols import Tokenizer
from akunu_py.system.errors import ConfigError
from akunu_py.values.messages import Message

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


_NAME = r"""(?:"[^"\n]*"?|'[^'\n]*'?|(?:\\.|[^\s\\])*)"""
_MENTION = re.compile(rf"(?<!\S)@({_NAME})")
_UNFINISHED = re.compile(rf"(?<!\S)@({_NAME})$")

_PUNCTUATION = ".,;:!?)"
"""What may follow a name in a sentence."""


def unquote(text: str) -> str:
    """Return a name as a shell reads it: without quotes around it, or without backslashes."""
    if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
        return text[1:-1]
    return text if os.name == "nt" else re.sub(r"\\(.)", r"\1", text)


def mentions(message: str) -> Iterator[tuple[str, Path | None]]:
    """Yield the names behind an @ that begins a word, with the files that they are.

    A name with a slash that is not a file has None. Other words, such as decorators, are left out.
    """
    for match in _MENTION.finditer(message):
        written = match[1]
        for name in (written, written.rstrip(_PUNCTUATION)):
            try:
                path = Path(unquote(name)).expanduser()
                if path.is_file():
                    yield name, path
                    break
            except (OSError, RuntimeError, ValueError):
                continue
        else:
            if "/" in written:
                yield written, None


def unfinished(before: str) -> str | None:
    """Return the name behind the @ that the text before a cursor ends with; None for none."""
    match = _UNFINISHED.search(before)
    return None if match is None else match[1]


THIS_CHAT = "this chat"


class PromptParts:
    """Names parts of one prompt: files by their names, all else is this chat.

    The prompt is read when the first place is asked for: that takes some milliseconds.
    """

    def __init__(
        self, prompt: Sequence[int], messages: Sequence[Message], tokenizer: Tokenizer
    ) -> None:
        self._prompt = prompt
        self._messages = messages
        self._tokenizer = tokenizer
        self._ends: list[int] = []  # of each token in the text
        self._borders: list[int] = []  # where a part begins
        self._names: list[str] = []

    def name(self, place: int) -> str:
        """Return the name of the part that a token of the prompt is in."""
        if not self._ends:
            self._read()
        if not 0 <= place < len(self._ends):
            return THIS_CHAT
        part = bisect.bisect_right(self._borders, max(0, self._ends[place] - 1)) - 1
        return self._names[part]

    def _read(self) -> None:
        detokenizer = self._tokenizer.detokenizer()
        pieces = []
        size = 0
        for token in self._prompt:
            pieces.append(detokenizer.feed((token,)))
            size += len(pieces[-1])
            self._ends.append(size)
        text = "".join(pieces)
        self._begin(0, THIS_CHAT)
        place = 0
        for message in self._messages:
            # Templates take the blanks around a message away.
            said = message.text.strip()
            begin = text.find(said, place)
            if begin < 0 or not said:
                continue
            for offset, name in _parts(message.role, said):
                self._begin(begin + offset, name)
            place = begin + len(said)
            self._begin(place, THIS_CHAT)

    def _begin(self, place: int, name: str) -> None:
        self._borders.append(place)
        self._names.append(name)


def _parts(role: str, said: str) -> Iterator[tuple[int, str]]:
    """Yield where files begin and end in what a user said, in order, with the names of parts."""
    for begin, end, name in find_attachments(said) if role == "user" else ():
        yield begin, name
        yield end, THIS_CHAT
