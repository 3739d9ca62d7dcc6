"""Prompts from files (docs/measuring.md has the format, and how to make it of others)."""

import codecs
import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta

from akunu_py.bench.result_file import Failure
from akunu_py.bench.rows import FieldError, Row, convert, read_record
from akunu_py.bench.workloads import Prompt, Said, Text
from akunu_py.system.errors import ConfigError

MAX_FILE_BYTES = 1 << 28
"""Limit of the decompressed text, so that a small file cannot fill the memory."""
MAX_LINE_BYTES = 1 << 24

_GZIP = b"\x1f\x8b"


def read_prompts(path: Path) -> tuple[tuple[Prompt, ...], tuple[Failure, ...]]:
    """Return the prompts of a JSON Lines file, and the lines that are not prompts.

    The file may be compressed by gzip. Raises ConfigError for a file that cannot be read, is larger
    than MAX_FILE_BYTES or has no prompt.
    """
    return parse_prompt_file(_read(path), path.name)


def parse_prompt_file(data: bytes, name: str) -> tuple[tuple[Prompt, ...], tuple[Failure, ...]]:
    """Read the lines of a file, which errors call `name`. Raises as `read_prompts` does."""
    reader = _Reader()
    failures: list[Failure] = []
    for number, line in _lines(data):
        if len(line) > MAX_LINE_BYTES:
            failures.append(
                Failure(f"{name}, line {number}", f"longer than {MAX_LINE_BYTES >> 20} MiB")
            )
            continue
        try:
            reader.take(read_record(line))
        except ConfigError as error:
            failures.append(Failure(f"{name}, line {number}", str(error)))
    if not reader.prompts:
        if not failures:
            raise ConfigError(f"{name} is empty; give one JSON object a line")
        first = failures[0]
        raise ConfigError(f"{name} has no prompt that can be used; {first.item}: {first.error}")
    return tuple(reader.prompts), tuple(failures)


class PromptLine(Row, frozen=True):
    """A line of `akunu generate --prompts`: a prompt, or the messages of a chat."""

    id: int | str | None = None
    prompt: str = ""
    messages: list[dict[str, Any]] | None = None
    max_tokens: int | None = None


def read_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Return the lines of a file that are not blank, with their numbers, from 1 on.

    Raises ConfigError for a file that cannot be read or is larger than MAX_FILE_BYTES.
    """
    return _lines(_read(path))


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
        if data.startswith(_GZIP):
            with gzip.open(path) as file:
                data = file.read(MAX_FILE_BYTES + 1)
    except (OSError, EOFError, ValueError, zlib.error) as error:
        # A path with a zero byte raises ValueError; a truncated gzip file the others.
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise ConfigError(f"{path} cannot be read: {reason}") from None
    if len(data) > MAX_FILE_BYTES:
        raise ConfigError(f"{path} has more than {MAX_FILE_BYTES >> 20} MiB; split it")
    return data


def _lines(data: bytes) -> Iterator[tuple[int, bytes]]:
    # Not splitlines: JSON allows U+2028 inside a string.
    lines = data.removeprefix(codecs.BOM_UTF8).split(b"\n")
    return ((number, line) for number, line in enumerate(lines, start=1) if line.strip())


class _Reader:
    """Takes records."""

    def __init__(self) -> None:
        self.prompts: list[Prompt] = []
        self._ids: set[str] = set()
        self._sessions: set[str] = set()

    def take(self, record: dict[str, Any]) -> None:
        """Add the prompts of a record; raise ConfigError and add none of them."""
        if record.get("kind") == "session":
            prompts = convert(record, _Session).prompts()
        else:
            prompts = [convert(record, Prompt)]
        self._check_place(prompts)
        self.prompts += prompts
        self._ids.update(prompt.id for prompt in prompts)
        self._sessions.update(prompt.session for prompt in prompts)

    def _check_place(self, prompts: list[Prompt]) -> None:
        """Check that ids are new, and that turns of a session are adjacent and in order."""
        last = self.prompts[-1] if self.prompts else None
        for prompt in prompts:
            if prompt.id in self._ids:
                raise FieldError("", f"an earlier line has the id {prompt.id!r:.60}")
            same = last is not None and last.session == prompt.session
            if same and last is not None and prompt.turn <= last.turn:
                raise FieldError("", f"turn {prompt.turn} of a session follows turn {last.turn}")
            if not same and prompt.session in self._sessions:
                raise FieldError(
                    "",
                    f"the session {prompt.session!r:.60} has earlier lines; put its lines together",
                )
            last = prompt


class _Turn(Row, frozen=True):
    user: Text
    assistant: Text


class _Session(Row, frozen=True):
    id: Text
    category: Text
    kind: Literal["session"]
    turns: Annotated[tuple[_Turn, ...], Meta(min_length=1)]
    language: str = ""
    system: Text = ""

    def prompts(self) -> list[Prompt]:
        """Return a prompt for each turn, after the earlier turns as they are written."""
        said: list[Said] = []
        if self.system:
            said.append({"role": "system", "content": self.system})
        prompts: list[Prompt] = []
        for number, turn in enumerate(self.turns):
            said.append({"role": "user", "content": turn.user})
            prompts.append(
                Prompt(
                    f"{self.id}/{number}",
                    self.category,
                    "chat",
                    messages=tuple(said),
                    language=self.language,
                    reference=turn.assistant,
                    session=self.id,
                    turn=number,
                )
            )
            said.append({"role": "assistant", "content": turn.assistant})
        return prompts
